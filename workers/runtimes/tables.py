"""Makes data frames of the rows of a table, for models that were fitted on them. Only this module needs pandas."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from workers.errors import PackageError
from workers.extras import install
from workers.manifest import MOMENT
from workers.runtimes.contract import by_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from workers.manifest import Signature
    from workers.runtimes.contract import Rows

_TEXTS = frozenset({"string", "category"})


class Series(Protocol):
    """What is read of a column of a data frame."""

    dtype: np.dtype[np.generic]  # or one of pandas' own, which has a `kind`, too

    def dropna(self) -> Iterable[object]:
        """Return the values that are there."""
        ...


@runtime_checkable
class PandasFrame(Protocol):
    """What is read of a data frame of pandas, by which one is known, too."""

    columns: Iterable[object]
    dtypes: Iterable[np.dtype[np.generic]]

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def __getitem__(self, name: str, /) -> Series:
        """Return a column."""
        ...

    def itertuples(self, *, index: bool, name: None) -> Iterable[tuple[object, ...]]:
        """Return the rows."""
        ...

    def to_numpy(self) -> NDArray[np.generic]:
        """Return it as an array."""
        ...


def shaper(signature: Signature) -> Callable[[Rows], Rows | PandasFrame]:
    """Return what makes of a batch what the model takes: of the rows of a table a data frame.

    Raises:
        PackageError: that needs pandas, which is not installed.
    """
    if signature.kind != "table":
        return by_name
    try:
        pandas = importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise PackageError(
            f"a model fitted on data frames needs pandas where it runs, too: {install('pandas')}"
        ) from error
    columns = signature.read
    categories = {name: "category" for name, kind in columns if kind.startswith("category")}
    zones = {name: found[2] for name, kind in columns if (found := MOMENT.fullmatch(kind)) and found[2]}
    dtypes = [_dtype(kind) for _, kind in columns]

    def shaped(rows: Rows) -> PandasFrame:
        values = zip(columns, dtypes, zip(*rows, strict=True), strict=True)
        arrays = {name: np.array(column, dtype=dtype) for (name, _), dtype, column in values}
        frame: Any = pandas.DataFrame(arrays).astype(categories)
        for name, zone in zones.items():
            frame[name] = frame[name].dt.tz_localize("UTC").dt.tz_convert(zone)
        return frame  # type: ignore[no-any-return] # a data frame

    return shaped


def _dtype(kind: str) -> str | type[object]:
    """Return the type of a column's array; of moments in UTC."""
    found = MOMENT.fullmatch(kind)
    return f"datetime64[{found[1]}]" if found else object if kind in _TEXTS else kind.removeprefix("category_")
