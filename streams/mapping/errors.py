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


class UnknownSchemaError(Exception):
    """A record is written by a schema that is still to be looked up.

    Args:
        key: under which it is looked up.
    """

    def __init__(self, key: str) -> None:
        super().__init__(f"schema {key} is not known yet")
        self.key = key
