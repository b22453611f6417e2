"""Errors of scenarios: public data that is missing, and compared systems that cannot run."""

from __future__ import annotations


class MissingDataError(Exception):
    """A data set that does not come with the project is not there; the message says how to point to it."""


class PeerUnavailableError(Exception):
    """A system that Skysail is compared with cannot be installed here; the message says why."""


class PeerFailedError(Exception):
    """A system that Skysail is compared with did not start, or ended while it was measured; the message says how."""
