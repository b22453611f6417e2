"""Restricts any controller to allowed batch sizes, for models whose shapes are fixed or compiled one by one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, NamedTuple, TypeVar

from policies.errors import require

if TYPE_CHECKING:
    from policies.batching import BatchController


S = TypeVar("S")  # the state of the controller inside


class Sized(NamedTuple, Generic[S]):
    """The state of the controller inside, and what each size took last: (size, us), by size."""

    inner: S
    times: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class AllowedSizes(Generic[S]):
    """Lower another controller's cap to an allowed size; the executor pads smaller batches up to one.

    The inner controller would never pass the gap between two sizes: a batch that fills the lower size does not fill its
    cap. So `observe` reports an estimated batch of `cap` rows instead:

        estimate = min(duration * cap / size, line through the nearest other measured size at cap), at least duration

    Without a second measured size the estimate is the duration itself. A larger size is thus tried when it should fit
    the objective. A size that was too slow is tried less and less often, unless the one below it gets faster.

    Args:
        inner: The controller.
        sizes: Rows, rising, each at least 1.

    Examples:
        >>> from policies.aimd import Aimd, Cap
        >>> allowed = AllowedSizes(Aimd(), (1, 8, 32))
        >>> allowed.cap(Sized(Cap(20), ()))
        8
    """

    name: ClassVar[str] = "allowed"

    inner: BatchController[S]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the sizes."""
        require(bool(self.sizes) and self.sizes[0] >= 1, f"allowed sizes are {self.sizes}; give some, each at least 1")
        require(list(self.sizes) == sorted(set(self.sizes)), f"allowed sizes are {self.sizes}; let them rise")

    @property
    def linger_us(self) -> int:
        """Return how long the controller inside lets a free model wait."""
        return self.inner.linger_us

    def init(self) -> Sized[S]:
        """Return the controller's own beginning."""
        return Sized(self.inner.init(), ())

    def cap(self, state: Sized[S]) -> int:
        """Return the largest allowed size that the controller's cap holds, or the smallest of all."""
        wanted = self.inner.cap(state.inner)
        return max((size for size in self.sizes if size <= wanted), default=self.sizes[0])

    def observe(self, state: Sized[S], rows: int, duration_us: int, objective_us: int) -> Sized[S]:
        """Return the state after one batch of `rows`, padded up to an allowed size."""
        size = padded(rows, self.sizes)
        wanted = self.inner.cap(state.inner)
        times = tuple(sorted({**dict(state.times), size: duration_us}.items()))
        told = min(size, wanted), duration_us
        if size < wanted and rows >= self.cap(state):
            told = wanted, _reckoned(times, size, duration_us, wanted)
        return Sized(self.inner.observe(state.inner, *told, objective_us), times)

    def arrived(self, state: Sized[S], rows: int, now_us: int) -> Sized[S]:
        """Return the state after `rows` more were queued."""
        return state._replace(inner=self.inner.arrived(state.inner, rows, now_us))

    def wait_until(self, state: Sized[S], queued: int, due_us: int, now_us: int) -> int:
        """Return until when the controller inside would wait."""
        return self.inner.wait_until(state.inner, queued, due_us, now_us)


def padded(rows: int, sizes: tuple[int, ...]) -> int:
    """Return the smallest of the rising sizes that holds the rows, or the largest of all."""
    return next((size for size in sizes if size >= rows), sizes[-1])


def _reckoned(times: tuple[tuple[int, int], ...], size: int, duration_us: int, rows: int) -> int:
    """Return what a batch of `rows` should take, a batch of `size` < `rows` having taken `duration_us`."""
    proportional_us = duration_us * rows // size
    larger = [each for each in times if each[0] > size][:1]
    smaller = [each for each in times if each[0] < size][-1:]
    for other, took_us in larger or smaller:
        line_us = duration_us + (rows - size) * (took_us - duration_us) // (other - size)
        return max(duration_us, min(proportional_us, line_us))
    return duration_us
