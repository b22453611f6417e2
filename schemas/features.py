"""Features: the numbers that a query may give contextual policies."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from schemas.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

# 2 KB, which travel with the query, its answer and its observation.
MAX_FEATURES: Final = 256


def as_features(values: Iterable[float]) -> tuple[float, ...]:
    """Return numbers as a query's features.

    Raises:
        SchemaError: They are not numbers, not finite, or more than a query may have.
    """
    try:
        features = tuple([float(value) for value in values])
    except (TypeError, ValueError, OverflowError) as error:
        raise SchemaError(f"features: a list of numbers is needed; {error}") from error
    if len(features) > MAX_FEATURES:
        raise SchemaError(f"features: {len(features)} of them; a query may have {MAX_FEATURES}")
    if not all(map(math.isfinite, features)):
        raise SchemaError("features: one of them is not finite; leave such a query's features out, or put 0")
    return features
