"""Makes data frames of the rows of a table, for models that were fitted on them. Only this module needs pandas."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from workers.errors import PackageError
from workers.extras import install

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.manifest import Signature
    from workers.runtimes.contract import Rows

_DTYPES = {"string": object, "category": object}


def shaper(signature: Signature) -> Callable[[Rows], Any]:
    """Return a function that brings a batch into the model's form: rows of a table become a data frame.

    Raises:
        PackageError: that needs pandas, which is not installed.
    """
    if signature.kind != "table":
        return lambda rows: rows
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise PackageError(
            f"a model fitted on data frames needs pandas where it runs, too: {install('pandas')}"
        ) from error
    categories = {name: "category" for name, kind in signature.columns if kind == "category"}

    def shaped(rows: Rows) -> Any:
        columns = zip(signature.columns, zip(*rows, strict=True), strict=True)
        arrays = {name: np.array(values, dtype=_DTYPES.get(kind, kind)) for (name, kind), values in columns}
        return pandas.DataFrame(arrays).astype(categories)

    return shaped
