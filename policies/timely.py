"""`timely`: `exp4` that asks only models which will answer in time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from policies.errors import require
from policies.exp4 import Exp4

if TYPE_CHECKING:
    from collections.abc import Callable

    from policies.contract import Situation, State


@dataclass(frozen=True, slots=True)
class Timely(Exp4):
    """Ask every arm whose latency, at a high quantile, fits the time that is left, no other; then vote.

    A model that would miss the deadline costs its work, gives nothing, and delays the answer to the last moment. If no
    arm fits, none is asked, and the query is answered by default at once. The time left is the query's own, so a query
    with a longer deadline still asks slow arms. An arm without a known latency fits. One query tries an arm that was
    left out again after 1 s. While it stays silent, the next try comes 2 s later, then 4, ..., 64. For one situation
    the choice is certain: propensities are 1.0 for the arms asked and 0.0 for the others. An arm that was not asked
    sleeps: its weight stays as it was, and the sum of the others' weights stays the same.

    Args:
        eta: Learning rate, positive.
        share: Part of the weight spread evenly over the arms that answered, at each step, in [0, 1].
        least: 1 = where no arm fits, the quickest is asked all the same: it may be in time more often than not; else 0.

    Examples:
        >>> from policies.contract import Situation
        >>> policy = Timely()
        >>> policy.propensities_in(policy.init(3), 3)(Situation(left_us=20_000, latencies_us=(5_000, 90_000, 0)))
        (1.0, 0.0, 1.0)

    References:
        Crankshaw et al., Clipper, NSDI 2017, section 5.2.2 (stragglers in ensembles); Freund et al., Using and
        combining predictors that specialize, STOC 1997 (sleeping experts).
    """

    name: ClassVar[str] = "timely"
    uses: ClassVar[Literal["latencies"]] = "latencies"

    least: int = 0

    def __post_init__(self) -> None:
        """Check the parameters."""
        Exp4.__post_init__(self)
        require(self.least in {0, 1}, f"timely: least is {self.least}; it must be 0 or 1")

    def floor(self, arms: int) -> float:
        """Return 0.0: a slow arm is not asked."""
        return 0.0

    def propensities_in(self, state: State, arms: int) -> Callable[[Situation], tuple[float, ...]]:
        """Return 1.0 for each arm that fits; if none does, for the quickest or for none, as `least` says."""
        everyone, unknown = (1.0,) * arms, (0.0,) * arms

        def propensities(situation: Situation) -> tuple[float, ...]:
            latencies, left_us = situation.latencies_us or unknown, situation.left_us
            if self.least:
                left_us = max(left_us, min(latencies))
            if max(latencies) <= left_us:
                return everyone
            return tuple([1.0 if latency <= left_us else 0.0 for latency in latencies])

        return propensities
