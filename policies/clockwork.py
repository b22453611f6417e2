"""`clockwork`: the largest batch that is in time by the 99th percentile of the last ten of its size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from policies.errors import require
from policies.fixed import Linger

if TYPE_CHECKING:
    from collections.abc import Iterable

# Rows that are told apart: each whole number up to 16, then eight steps to the double.
SIZES: Final = (*range(1, 16), *((8 + step) << power for power in range(1, 10) for step in range(8)))
SAMPLES: Final = 10  # by which a time is predicted
_REMEMBERED = 100  # batches for which a size that is not run counts: one that a pause made slow is tried again
_GROWTH = 4  # a step up is at most a quarter: beyond the sizes measured the line is a guess
_PROBED = 0.9  # of the objective: where all batches had one size there is no slope, and the next size shows it


class Size(NamedTuple):
    """What batches of one size took (us), the last of them last, and the number of that batch."""

    rows: int
    took_us: tuple[int, ...]
    number: int

    @property
    def p99_us(self) -> int:
        """What a batch of this size is reckoned to take (us)."""
        return p99(self.took_us)


class CapProfile(NamedTuple):
    """The state: the cap, what the sizes took, how many batches there were, and whether the last was late."""

    cap: int
    sizes: tuple[Size, ...] = ()
    batches: int = 0
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class Clockwork(Linger):
    """Predict a batch by the last ten of its size, and take the largest size that is in time by that.

    A size that was not run lies on the line through the two next to it that were. One late batch may be a pause: it
    costs a step down, and only a size that never ran before remembers it. A second late batch in a row means that the
    model has changed: it and each later one halve the cap, and earlier times are forgotten. What orders several models
    of one process is `workers.kernel.schedule`.

    Args:
        max_rows: The cap never passes this.
        linger_ms: A free model waits at most so long for a full batch; 0 = it never waits.

    Examples:
        >>> clockwork = Clockwork()
        >>> clockwork.cap(clockwork.observe(clockwork.init(), rows=1, duration_us=5_100, objective_us=20_000))
        2

    References:
        Gujarati et al., Serving DNNs like Clockwork, OSDI 2020, section 5.
    """

    name: ClassVar[str] = "clockwork"

    max_rows: int = 4096

    def __post_init__(self) -> None:
        """Check the parameters."""
        self.require_linger(self.name)
        require(self.max_rows >= 1, f"clockwork: max_rows is {self.max_rows}; it must be at least 1")

    def init(self) -> CapProfile:
        """Return a cap of one row and no times."""
        return CapProfile(1)

    def cap(self, state: CapProfile) -> int:
        """Return the cap."""
        return state.cap

    def observe(self, state: CapProfile, rows: int, duration_us: int, objective_us: int) -> CapProfile:
        """Return the state after one batch."""
        if rows < 1:
            return state
        number, size = state.batches + 1, SIZES[min(bisect_left(SIZES, rows), len(SIZES) - 1)]
        if duration_us > objective_us and state.is_late:
            return CapProfile(max(1, state.cap // 2), (), number, is_late=True)
        is_known = any(each.rows == size for each in state.sizes)
        sizes = state.sizes
        if duration_us <= objective_us or not is_known:
            sizes = _noted(state.sizes, size, duration_us, number)
        if duration_us > objective_us:
            return CapProfile(_below(state.cap), sizes, number, is_late=True)
        cap = self._raised(state.cap, sizes, objective_us) if rows >= state.cap else state.cap
        return CapProfile(cap, sizes, number)

    def _raised(self, cap: int, sizes: tuple[Size, ...], objective_us: int) -> int:
        """Return the largest size that is in time and no more than a step above the cap."""
        most = min(cap + max(1, cap // _GROWTH), self.max_rows)
        larger = [size for size in SIZES if cap < size <= most]
        if len(sizes) > 1:
            return max((size for size in larger if reckoned(sizes, size) <= objective_us), default=cap)
        return max(larger, default=cap) if sizes[0].p99_us < objective_us * _PROBED else cap


def p99(samples: Iterable[int]) -> int:
    """Return the 99th percentile of the last ten: the largest."""
    return max(samples)


def reckoned(sizes: tuple[Size, ...], rows: int) -> float:
    """Return what a batch of `rows` is reckoned to take (us); sizes rise, and there are two at least."""
    at = bisect_left(sizes, rows, key=lambda size: size.rows)
    if at < len(sizes) and sizes[at].rows == rows:
        return sizes[at].p99_us
    right = min(max(at, 1), len(sizes) - 1)
    first, second = sizes[right - 1], sizes[right]
    slope = max(0.0, (second.p99_us - first.p99_us) / (second.rows - first.rows))
    return first.p99_us + slope * (rows - first.rows)


def _noted(sizes: tuple[Size, ...], rows: int, took_us: int, number: int) -> tuple[Size, ...]:
    """Return what sizes took after one more batch, without those that have not run for long."""
    before = next((size.took_us for size in sizes if size.rows == rows), ())
    noted = Size(rows, (*before, took_us)[-SAMPLES:], number)
    others = (size for size in sizes if size.rows != rows and size.number > number - _REMEMBERED)
    return tuple(sorted((*others, noted)))


def _below(cap: int) -> int:
    """Return the next smaller size."""
    size: int = SIZES[max(0, bisect_right(SIZES, max(1, cap - 1)) - 1)]
    return size
