"""Errors of bytes, records and names.

    FormatError
    ├── DecodeError         bad input: these bytes are no record of ours; never worth a retry, so dead-letter them
    ├── SchemaError         our bug (also a ValueError): this value, or this name, does not fit its schema
    │   └── OversizedError  for its size
    ├── CompatibilityError  our bug: the schemas in the tree can no longer read released ones
    └── RegistryError       the schema registry did not answer as needed; starting again may help

Messages say what was found where. They never show a payload.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Cause: TypeAlias = Literal["empty", "oversized", "unknown_schema", "truncated", "trailing", "invalid"]


class FormatError(Exception):
    """Base of every error this package raises on purpose."""


class DecodeError(FormatError):
    """Bytes that are no record of ours.

    Attributes:
        cause: One word to group by, fit for a header or a metric's label.
        message: What a person needs; holds no payload.
    """

    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(cause, message)  # both, so that a copy of it can be made in another process
        self.cause = cause
        self.message = message

    def __str__(self) -> str:
        return f"{self.cause}: {self.message}"


class SchemaError(FormatError, ValueError):
    """A value that its schema has no place for; the message names the field."""


class OversizedError(SchemaError):
    """A record that is larger than the deployment takes."""


class CompatibilityError(FormatError):
    """The current schemas cannot read what a released version wrote."""


class RegistryError(FormatError):
    """The schema registry is unreachable, or refuses our schemas."""
