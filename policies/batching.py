"""What every batch-size controller is: how many rows a worker takes at once, from how long batches took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from policies.aimd import Aimd
from policies.fixed import Fixed
from policies.parameters import build
from policies.quantile import Quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

S = TypeVar("S")  # a controller's state: an immutable value


class BatchController(Protocol[S]):
    """Sizes batches. Stateless; every method is pure."""

    name: ClassVar[str]

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


CONTROLLERS: Mapping[str, Callable[..., BatchController[Any]]] = {
    Aimd.name: Aimd,
    Fixed.name: Fixed,
    Quantile.name: Quantile,
}


def create_controller(name: str, parameters: Mapping[str, float] | None = None) -> BatchController[Any]:
    """Return the controller of that name; parameters left out have their defaults.

    Raises:
        PolicyError: Unknown name or parameter (the nearest is named), or a value out of range.
    """
    return build("batch controller", CONTROLLERS, name, parameters or {})
