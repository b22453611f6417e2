"""The demo's client: seeded open-loop queries with feedback from the true labels, every topic of interest read back."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from load.openloop import Asked, OpenLoop
from load.recorder import Recorder
from load.workload import Rows
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Observation, Report, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deploy.demo.digits import Digits
    from deploy.demo.tally import Tally
    from load.wire import Arrival, Wire
    from schemas.codec import Codec
    from streams.topology import Topology

R = TypeVar("R", Observation, Report)
SETTLE_S = 10.0
WARM_UP_SEED = -1  # of query ids that no counted run has
QUIET_S = 2.5  # learners report once a second; after two reports without news nothing more is coming
TURN_S = 0.1


def warm_up(
    wire: Wire, codec: Codec, application: str, data: Digits, offsets_us: Iterable[int], now_us: Callable[[], int]
) -> int:
    """Ask without feedback and without counting until broker, roles and models have done everything once.

    A cold JVM and first calls into models take some hundred milliseconds; they are no part of how the loop behaves.

    Returns:
        how many queries were asked; nothing is learnt from them.
    """
    wire.follow((topics.PREDICTIONS,))
    recorder = Recorder(now_us(), slo_us=1)
    rows = Rows(application, [Tensor.of(row) for row in data.train_rows], seed=WARM_UP_SEED)
    OpenLoop(wire, codec, rows, recorder, now_us).run(offsets_us)
    return recorder.total.sent


class Queries:
    """The workload: held-out rows in a seeded order; tells the tally of every query.

    Args:
        application: that is asked.
        data: rows and their true labels.
        order: row number of each query, cyclically.
        tally: is told of each query before it is sent.
        seed: of the query ids.
    """

    def __init__(self, application: str, data: Digits, order: NDArray[np.intp], tally: Tally, seed: int) -> None:
        self._order = [int(row) for row in order]
        tensors = [Tensor.of(row) for row in data.asked_rows]
        labels = [int(label) for label in data.asked_labels]
        inputs, truths = [tensors[row] for row in self._order], [labels[row] for row in self._order]
        self._rows = Rows(application, inputs, truths, seed=seed)
        self._tally = tally

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`."""
        asked = self._rows(index, intended_us)
        assert asked.label is not None
        self._tally.asked(asked.query.query_id, self._order[index % len(self._order)], asked.label, intended_us)
        return asked


class Traffic:
    """Sends and reads in one thread; see `run`.

    Args:
        wire: to the deployment's broker.
        codec: of the records.
        queries: what is asked.
        recorder: of answers.
        tally: of everything else.
        topology: names the dead-letter topics.
        now_us: the clock.
    """

    def __init__(
        self,
        wire: Wire,
        codec: Codec,
        queries: Queries,
        recorder: Recorder,
        tally: Tally,
        topology: Topology,
        now_us: Callable[[], int],
    ) -> None:
        self._codec = codec
        self._tally = tally
        self._now_us = now_us
        self._stopped = False
        taps: dict[str, Callable[[Sequence[Arrival]], None]] = {
            topics.OBSERVATIONS: lambda found: tally.observations(self._decoded(Observation, found)),
            topics.REPORTS: lambda found: tally.reports(self._decoded(Report, found)),
        }
        ending = topics.dead_letters("")
        taps |= {name: self._dead for name in topology.topics if name.endswith(ending)}
        wire.follow((topics.PREDICTIONS, *taps))
        self._loop = OpenLoop(wire, codec, queries, recorder, now_us, on_predictions=tally.predictions, taps=taps)

    @property
    def feedback_sent(self) -> int:
        """Feedback records handed to the broker."""
        return self._loop.feedback_sent

    def run(self, offsets_us: Iterable[int]) -> None:
        """Send all queries when they are due, then read on until no more is joined and learnt, at most 10 s."""
        self._loop.run(offsets_us)
        end_us = self._now_us() + int(SETTLE_S * 1e6)
        quiet_us, last = self._now_us() + int(QUIET_S * 1e6), (0, 0)
        while not self._stopped and self._now_us() < min(end_us, quiet_us):
            self._loop.turn(TURN_S)
            if last != (last := (self._tally.joined, self._tally.applied)):
                quiet_us = self._now_us() + int(QUIET_S * 1e6)

    def stop(self) -> None:
        """End the sending early; may be called from another thread."""
        self._stopped = True
        self._loop.stop()

    def _dead(self, found: Sequence[Arrival]) -> None:
        self._tally.dead_letters += len(found)

    def _decoded(self, record: type[R], found: Iterable[Arrival]) -> Iterator[R]:
        for arrival in found:
            try:
                yield self._codec.decode(record, arrival.value)
            except DecodeError:
                continue
