"""The demo's client: it sends seeded open-loop queries and feedback, and reads every topic of interest."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from load.harness.openloop import Asked, OpenLoop
from load.harness.recorder import Recorder
from load.harness.workload import Rows
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import ModelPredictions, Observation, Observations, Prediction, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deploy.demo.models import Digits
    from deploy.demo.tally import Tally
    from load.harness.wire import Arrival, Wire
    from schemas.codec import Codec
    from streams.topology import Topology

R = TypeVar("R", ModelPredictions, Observations, Prediction)
SETTLE_S = 10.0
WARM_UP_SEED = -1  # of query ids that no counted run has
CLOSING_SEED = -2
QUIET_S = 2.5  # without news: nothing more is coming
TURN_S = 0.1
DEAD = topics.dead_letters("")


class Link(NamedTuple):
    """How a client reaches the deployment: a wire that follows what `followed` names, the records' codec, the clock."""

    wire: Wire
    codec: Codec
    now_us: Callable[[], int]


def followed(topology: Topology) -> tuple[str, ...]:
    """Return the topics that the client reads."""
    dead = (name for name in topology.topics if name.endswith(DEAD))
    return (topics.PREDICTIONS, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS, *dead)


class WarmUp:
    """Asks without feedback and without counting until broker, roles and models have done everything once.

    A cold JVM and first calls into models take some hundred milliseconds; they are no part of how the loop behaves.
    Nothing is learnt from these queries.
    """

    def __init__(self, link: Link, application: str, data: Digits, on_first: Callable[[], None]) -> None:
        """Prepare.

        Args:
            link: to the deployment.
            application: that is asked.
            data: whose training rows are asked about.
            on_first: called when the first answer has been read.
        """
        self._recorder = Recorder(link.now_us(), slo_us=1)
        self._on_first = on_first
        rows = Rows(application, [Tensor.of(row) for row in data.train_rows], seed=WARM_UP_SEED)
        self._loop = OpenLoop(link.wire, link.codec, rows, self._recorder, link.now_us, on_predictions=self._answered)
        self.stop = self._loop.stop

    def run(self, offsets_us: Iterable[int]) -> int:
        """Ask at these offsets from when this was made; returns how many queries were asked."""
        self._loop.run(offsets_us)
        return self._recorder.total.sent

    def _answered(self, answers: Sequence[Prediction]) -> None:
        if self._recorder.total.answered == len(answers):
            self._on_first()


class Queries:
    """The workload: held-out rows in a seeded order; tells the tally of every query.

    Args:
        application: that is asked.
        data: rows and their true labels.
        order: row number of each query, cyclically.
        tally: counts each query before it is sent.
        seed: of the query ids.
    """

    def __init__(self, application: str, data: Digits, order: NDArray[np.intp], tally: Tally, seed: int) -> None:
        self._order = [int(row) for row in order]
        tensors = [Tensor.of(row) for row in data.asked_rows]
        labels = [int(label) for label in data.asked_labels]
        inputs, truths = [tensors[row] for row in self._order], [labels[row] for row in self._order]
        self._rows = Rows(application, inputs, truths, seed=seed)
        self._closing = Rows(application, inputs, seed=CLOSING_SEED)
        self._tally = tally

    def __call__(self, index: int, intended_us: int) -> Asked:
        """Return query number `index`."""
        asked = self._rows(index, intended_us)
        assert asked.label is not None
        self._tally.asked(asked.query.query_id, self._order[index % len(self._order)], asked.label, intended_us)
        return asked

    def closing(self, index: int, now_us: int) -> Asked:
        """Return closing query number `index`: it is not counted and gets no feedback."""
        return self._closing(index, now_us)


class DemoTraffic:
    """Sends and reads in one thread; see `run`.

    Args:
        link: to the deployment.
        queries: what is asked.
        recorder: of answers.
        tally: of everything else.
        topology: names the topics that are read.
    """

    def __init__(self, link: Link, queries: Queries, recorder: Recorder, tally: Tally, topology: Topology) -> None:
        self._link = link
        self._queries = queries
        self._tally = tally
        taps: dict[str, Callable[[Sequence[Arrival]], None]] = dict.fromkeys(followed(topology), self._dead) | {
            topics.PREDICTIONS: self._closed,
            topics.MODEL_PREDICTIONS: lambda found: tally.model_predictions(self._decoded(ModelPredictions, found)),
            topics.OBSERVATIONS: lambda found: tally.observations(self._observed(found)),
        }
        self._loop = OpenLoop(
            link.wire, link.codec, queries, recorder, link.now_us, on_predictions=tally.predictions, taps=taps
        )
        self._settling = False
        self.stop = self._loop.stop  # ends the sending early; may be called from another thread

    @property
    def feedback_sent(self) -> int:
        """Feedback records handed to the broker."""
        return self._loop.feedback_sent

    def run(self, offsets_us: Iterable[int]) -> None:
        """Send all queries when they are due, then read on until no more is joined and learnt, at most 10 s."""
        self._loop.run(offsets_us)
        if self._tally.questions:
            self._settle()

    def _settle(self) -> None:
        """Ask, without counting, until everything joined is in the state that decides, or nothing is new lately."""
        self._settling = True
        end_us = self._link.now_us() + int(SETTLE_S * 1e6)
        index, news_us, last = 0, 0, (-1, -1, -1)
        while not self._is_settled and (now_us := self._link.now_us()) < end_us:
            if last != (last := self._tally.read):
                news_us = now_us
            if now_us - news_us > QUIET_S * 1e6:
                return
            query = self._queries.closing(index, now_us).query
            self._link.wire.produce(topics.QUERIES, query.query_id.encode(), self._link.codec.encode(query))
            index += 1
            self._turn_until(now_us + int(TURN_S * 1e6))

    @property
    def _is_settled(self) -> bool:
        return self._tally.applied == self._tally.joined == self.feedback_sent

    def _turn_until(self, end_us: int) -> None:
        while (left_us := end_us - self._link.now_us()) > 0:
            self._loop.turn(left_us / 1e6)

    def _closed(self, found: Sequence[Arrival]) -> None:
        """Take the answers to closing queries; the others have been counted."""
        if self._settling:
            for answer in self._decoded(Prediction, found):
                self._tally.decided(answer.decision)

    def _dead(self, found: Sequence[Arrival]) -> None:
        self._tally.dead_letters += len(found)

    def _observed(self, found: Iterable[Arrival]) -> Iterator[Observation]:
        for several in self._decoded(Observations, found):
            yield from several.items

    def _decoded(self, record: type[R], found: Iterable[Arrival]) -> Iterator[R]:
        for arrival in found:
            try:
                yield self._link.codec.decode(record, arrival.value)
            except DecodeError:
                continue
