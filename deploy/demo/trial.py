"""A new version of one model on trial: it answers a share of that model's queries for a while, and then all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class VersionCount:
    """What one version of a model answered, by second, and how much of it was wrong."""

    answered: Counter[int] = field(default_factory=Counter)
    wrong: Counter[int] = field(default_factory=Counter)


class Trial(NamedTuple):
    """What is tried, and when; seconds from the start of the load."""

    model: str
    before: str  # the version that serves until then
    version: str
    share: float
    begin_s: float
    end_s: float  # from here on it serves

    def state(self, second: float) -> str:
        """Say in a word or two what the version does at a moment."""
        if second < self.begin_s:
            return f"from {self.begin_s:.0f} s"
        return f"canary {self.share:.0%}" if second < self.end_s else "serves"


class Tried(NamedTuple):
    """What came of it, by the second in which queries were meant to be sent; the error of no answers is None."""

    answered: int  # as a canary
    error: float | None
    beside: int  # by the version before, meanwhile
    error_beside: float | None
    since: int  # by the new version, since it serves


def tried(versions: Mapping[str, VersionCount], trial: Trial) -> Tried:
    """Return what came of a trial.

    Args:
        versions: of the model, with what each has answered.
        trial: of one of them.
    """
    canary, beside = (_during(versions.get(name), trial) for name in (trial.version, trial.before))
    new = versions.get(trial.version)
    return Tried(*canary, *beside, since=new.answered.total() - canary[0] if new else 0)


def _during(count: VersionCount | None, trial: Trial) -> tuple[int, float | None]:
    """Return how many queries a version answered during the trial, and the share of them that was wrong."""
    if count is None:
        return 0, None
    seconds = [second for second in count.answered if int(trial.begin_s) <= second < trial.end_s]
    answered, wrong = (sum(counts[second] for second in seconds) for counts in (count.answered, count.wrong))
    return answered, wrong / answered if answered else None
