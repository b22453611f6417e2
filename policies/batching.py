"""The contract of batch controllers: from batch times to how many rows a worker takes at once, and when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

from policies.aimd import Aimd
from policies.clockwork import Clockwork
from policies.deferred import Deferred
from policies.errors import build
from policies.fixed import Fixed
from policies.quantile import Quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

S = TypeVar("S")  # a controller's state: an immutable value


class BatchController(Protocol[S]):
    """Sizes batches, and may wait for more rows. Stateless; every method is pure. `Lingering` has the simple kind."""

    name: ClassVar[str]

    @property
    def linger_us(self) -> int:
        """How long a free model may be kept waiting for more rows at most."""
        ...

    def init(self) -> S:
        """Return the state before any batch."""
        ...

    def cap(self, state: S) -> int:
        """Return how many rows the next take may hold, at least 1."""
        ...

    def observe(self, state: S, rows: int, duration_us: int, objective_us: int) -> S:
        """Return the state after one batch.

        Args:
            state: The state that gave the cap of this batch.
            rows: How many rows it held, at most that cap.
            duration_us: From its rows being taken to its outputs being there, without what they had waited.
            objective_us: How long it should have taken at most.
        """
        ...

    def arrived(self, state: S, rows: int, now_us: int) -> S:
        """Return the state after `rows` more were queued."""
        ...

    def wait_until(self, state: S, queued: int, due_us: int, now_us: int) -> int:
        """Return the latest moment at which a batch that does not fill the cap should start.

        Args:
            state: The state that gives the cap.
            queued: How many rows there are, at least 1 and fewer than the cap.
            due_us: When the most urgent of them is due.
            now_us: When the model is free; returned if nothing is gained by waiting.

        Returns:
            A time in the future: wait for more rows until then. An earlier one than `now_us`: it has passed.
        """
        ...


Controller: TypeAlias = BatchController[Any]  # of any state

CONTROLLERS: Mapping[str, Callable[..., Controller]] = {
    Aimd.name: Aimd,
    Clockwork.name: Clockwork,
    Deferred.name: Deferred,
    Fixed.name: Fixed,
    Quantile.name: Quantile,
}


def create_controller(name: str, parameters: Mapping[str, float] | None = None) -> Controller:
    """Return the controller of that name; parameters left out have their defaults.

    Raises:
        PolicyError: Unknown name or parameter (the nearest is named), or a value out of range.
    """
    return build("batch controller", CONTROLLERS, name, parameters or {})
