"""How often versions that could not be loaded are tried again, and why the last attempt failed.

fails ─▶ after a pause, again ─▶ fails … ─▶ after so many retries it is given up
                                             └─ a record about the model, e.g. of a mended package ─▶ anew
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streams.operators.statistics import as_label, render

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Failing(NamedTuple):
    """A version that could not be had: the attempts to load it that failed, and why the last did.

    With `is_hopeless` it is not tried again.
    """

    attempts: int
    fault: str
    is_hopeless: bool = False


class Retries:
    """What failed of late, by version.

    Args:
        most: so often a version that could not be loaded is loaded again.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._failing: dict[str, _Failing] = {}

    def fail(self, version: str, fault: str, *, is_attempt: bool = True) -> None:
        """Note why a version could not be had; `is_attempt`: loading it was tried."""
        before = self._failing.get(version, _Failing(0, ""))
        self._failing[version] = before._replace(attempts=before.attempts + is_attempt, fault=fault)

    def give_up(self, version: str, fault: str) -> None:
        """Try a version no more: nothing but another package would help."""
        self._failing[version] = self._failing.get(version, _Failing(0, fault))._replace(is_hopeless=True)

    def succeed(self, version: str) -> None:
        """Forget what failed before."""
        self._failing.pop(version, None)

    def begin_anew(self) -> None:
        """Try all again: the package may have been mended, or another one is wanted."""
        self._failing.clear()

    def are_over(self, version: str) -> bool:
        """Whether a version has been given up."""
        failing = self._failing.get(version)
        return failing is not None and (failing.is_hopeless or failing.attempts > self._most)

    @property
    def has_any(self) -> bool:
        """Whether some version that failed has not been given up."""
        return not all(map(self.are_over, self._failing))

    def statistics(self, model: str) -> Mapping[str, float]:
        """Return the failed attempts of each version with the reason of the last, and which are given up."""
        figures = {}
        for version, (attempts, fault, _) in self._failing.items():
            about = "model", model, "version", version
            figures[render(("version_fault", *about, "reason", as_label(fault)))] = float(attempts)
            if self.are_over(version):
                figures[render(("version_given_up", *about))] = 1.0
        return figures
