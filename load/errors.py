"""What a scenario can lack."""

from __future__ import annotations


class MissingDataError(Exception):
    """A data set that does not come with the project is not there; the message says how to point to it."""
