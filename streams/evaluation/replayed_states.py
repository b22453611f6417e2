"""A policy's states beside the one that served: at each decision, what had been observed by then.

Where an application bounds what a teacher may teach within a minute (`streams.operators.learn.bounds`), this is
approximate. The learner counts by timestamps of records, each partition's on its own, and counts copies, too. A history
has the first observation of each query alone, without its record: here minutes are those in which observations were
made, and copies do not count. So near a bound another lesson may be the one too many.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from policies.errors import PolicyError
from streams.operators.learn.bounds import LessonCounts
from streams.operators.learn.fold import taught

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.records import Observation, PolicyState


def fold_along(
    decisions: Sequence[Observation],
    lessons: Sequence[Observation],
    told: Callable[[Observation], Observation | None] = lambda seen: seen,
) -> Iterator[tuple[int, Mapping[str, PolicyState | None]]]:
    """Yield the place of each decision, in order of time, and the states that were known before it.

    Args:
        decisions: that are judged.
        lessons: all that was observed, in the order of the log.
        told: makes an observation a lesson of the policy in question, when all decisions before it have been yielded;
            None = it teaches nothing.
    """
    states: dict[str, PolicyState | None] = {}
    counts = LessonCounts()
    coming = iter(sorted(lessons, key=lambda seen: seen.observed_us))  # as they became known; equal ones as in the log
    latest = next(coming, None)
    for row in sorted(range(len(decisions)), key=lambda at: decisions[at].predicted_us):
        while latest is not None and latest.observed_us < decisions[row].predicted_us:
            with suppress(PolicyError):  # the learner passes over what it cannot fold, too
                if (its := told(latest)) is not None:
                    reach = counts.reach(its, its.observed_us)
                    states.update(taught(states, its, its.observed_us, 0, reach))
            latest = next(coming, None)
        yield row, states
