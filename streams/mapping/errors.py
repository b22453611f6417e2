"""What is wrong with a mapping, or with a record that is mapped."""

from __future__ import annotations


class MappingError(ValueError):
    """Something does not fit.

    Args:
        where: the path, key or expression.
        what: is wrong with it.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.where = where
        self.what = what
