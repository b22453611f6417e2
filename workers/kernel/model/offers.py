"""What a model's worker offers its host, which chooses when batches start: what waits for each copy.

worker ── offers ──▶ host ── start, refuse ──▶ worker ── Predict ──▶ the models' process
└──── ended ──────────▶
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.records import Model
    from workers.kernel.model.batcher import Learnt
    from workers.kernel.model.lane import Lane
    from workers.settings import WorkerSettings


class CopyOffer(NamedTuple):
    """What waits for a copy of a version.

    Attributes:
        unit: its name among all units of the host: the model's, if it serves, or `model@version`.
        is_serving: whether it is the version that serves.
        is_ready: whether the copy can be asked.
        is_idle: whether no batch is with it.
        fault: why its rows fail at once; None = they wait.
        dues_us: when the rows that wait are due (us), rising.
        since_us: since when the first of them has waited (us); 0 = none waits.
        cap: rows that a batch may hold, at least 1.
        objective: returns how long a batch may take (us), by the time.
        trunk: digest of the one that its model shares with others; "" = none.
    """

    unit: str
    is_serving: bool
    is_ready: bool
    is_idle: bool
    fault: str | None
    dues_us: Sequence[int]
    since_us: int
    cap: int
    objective: Callable[[int], int]
    trunk: str


class Offers(NamedTuple):
    """What a worker offers.

    Attributes:
        asked: rows that it has read.
        by_copy: what waits, by the number of the copy that is to be asked; the one that serves comes first.
    """

    asked: int = 0
    by_copy: Mapping[int, CopyOffer] = MappingProxyType({})

    @property
    def serving(self) -> CopyOffer | None:
        """That of the version that serves; None = there is no worker yet."""
        return next(iter(self.by_copy.values()), None)


NOTHING: Final = Offers()


class Trunks:
    """What the models of a host have in common, by trunk: what their batches have taught."""

    def __init__(self, settings: WorkerSettings) -> None:
        """Know no trunk; a model that takes batches of some sizes only shares none."""
        self._alone = frozenset(settings.allowed_batch_sizes)
        self._learnt: WeakValueDictionary[str, Learnt] = WeakValueDictionary()

    def of(self, lane: Lane, model: Model) -> str:
        """Return the trunk that a lane shares with others from now on; "" = none."""
        trunk = "" if model.name in self._alone else model.trunk
        if trunk != lane.trunk:
            lane.trunk = trunk
            found = self._learnt.get(trunk) if trunk else None
            lane.batcher.learnt = lane.batcher.unlearnt() if found is None else found
            if trunk:
                self._learnt[trunk] = lane.batcher.learnt
        return trunk


class SharedHost(NamedTuple):
    """What the workers of one host share.

    Attributes:
        copies: numbers of copies, each given once.
        trunks: what batches have taught.
    """

    copies: Iterator[int]
    trunks: Trunks


def offer_of(lane: Lane, *, is_serving: bool) -> CopyOffer:
    """Return what waits for the copy that a lane asks."""
    (name, version, _), batcher = lane.identity, lane.batcher
    waits = lane.fault is None and len(batcher) > 0
    return CopyOffer(
        name if is_serving else f"{name}@{version}",
        is_serving,
        lane.is_ready,
        lane.running is None,
        lane.fault,
        batcher.dues_us if waits else (),
        batcher.since_us if waits else 0,
        batcher.cap,
        batcher.objective,
        lane.trunk,
    )
