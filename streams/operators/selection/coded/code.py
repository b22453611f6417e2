"""Coded inference: the sum of k inputs is asked of a parity model, and its answer stands in for one that does not come.

    x1 ─▶ model ─▶ F(x1)
    x2 ─▶ model ─▶ F(x2) does not come
    x1 + x2 ─▶ parity model ─▶ P(x1 + x2)         P is trained so that P(x1 + x2) ≈ F(x1) + F(x2)
                                  └──────▶ F(x2) ≈ P(x1 + x2) - F(x1)

Kosaian, Rashmi and Venkataraman, "Parity Models", SOSP 2019: the addition code with one parity row, k = 2, 3 or 4. For
an affine model F(x) = Wx + b the parity model P(s) = Ws + kb is exact. `groups` forms the groups.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from policies.calibration import KNOTS
from schemas.records import Outcome
from schemas.topics import MODEL_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from schemas.records import Model, ModelOutput

ROWS: Final = (2, 3, 4)
_PREFIX: Final = "parity"  # of the ids of parity rows
_FLOATS: Final = ("float32", "float64")


class Code(NamedTuple):
    """How the rows of a model are coded."""

    model: str
    version: str
    parity: str  # the parity model
    parity_version: str
    k: int
    dtype: str  # of the parity model's rows
    shape: tuple[int, ...]  # of a row
    partitions: int  # of the model's topic
    right: tuple[float, ...] = ()  # how often decoded answers are, at each knot of `policies.calibration`


def code_of(parity: Model, models: Mapping[str, Model]) -> Code | None:
    """Return how rows are coded with a parity model; None if that one does not fit the version that serves.

    Args:
        parity: that is deployed.
        models: that are deployed, by name.
    """
    name, _, version = parity.parity_of.partition(MODEL_VERSION)
    model = models.get(name)
    if model is None or model.version != version or parity.parity_k not in ROWS:
        return None
    if model.output != parity.output or model.output == "label" or model.shape != parity.shape:
        return None
    if model.dtype is None or parity.dtype not in _FLOATS or model.partitions < parity.parity_k:
        return None
    its = name, version, parity.name, parity.version, parity.parity_k, parity.dtype, model.shape, model.partitions
    return Code(*its, curve_of(parity))


def curve_of(parity: Model) -> tuple[float, ...]:
    """Return how often decoded answers are right, at each knot; empty where a model's record does not say it so."""
    right = parity.parity_right
    return right if len(right) == len(KNOTS) and all(0.0 <= share <= 1.0 for share in right) else ()


def decoded(parity: NDArray[np.generic], others: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
    """Return the output that is missing of a group, in the type of the others: the parity model's less theirs.

    Args:
        parity: of the sum, any shape.
        others: outputs of all rows but one, of that shape, in the order of the group. Differences are taken in double
            precision.
    """
    left = parity.astype(np.float64)
    for other in others:
        left -= other.astype(np.float64)
    return left.astype(others[0].dtype)


class CodedRow(NamedTuple):
    """A row of a group."""

    partition: int  # to which its output returns
    row_id: str
    asked_us: int
    due_us: int  # when its output must be on its way back
    until_us: int  # how long it is waited for


class ParityRow(NamedTuple):
    """What a parity model is asked; its output returns to the partition of the group's first row."""

    code: Code
    row_id: str
    partition: int
    due_us: int
    total: NDArray[np.generic]


class Reconstructed(NamedTuple):
    """The output of a row that did not come."""

    code: Code
    partition: int
    row_id: str
    output: NDArray[np.generic]


def members_of(row_id: str) -> tuple[tuple[int, str], ...]:
    """Return partition and id of the rows that a parity row is the sum of, in order; none if it is no such id."""
    if not row_id.startswith(_PREFIX):
        return ()
    try:
        return tuple([(int(partition), str(member)) for partition, member in json.loads(row_id[len(_PREFIX) :])])
    except (ValueError, TypeError):
        return ()


def parity_id(rows: Sequence[CodedRow]) -> str:
    """Return the id of a group's parity row: the log tells by it what was summed, in this order."""
    return _PREFIX + json.dumps([[row.partition, row.row_id] for row in rows], separators=(",", ":"))


def numbers_of(output: ModelOutput) -> NDArray[np.generic] | None:
    """Return the scores of an output, or its number; None if it has neither."""
    if output.outcome is not Outcome.OK:
        return None
    if output.scores is not None:
        return output.scores.numpy()
    return np.array(output.answer) if isinstance(output.answer, float) else None
