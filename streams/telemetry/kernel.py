"""Legs of sampled queries, from the log: what was fetched in, legs out. Pure; every time is an argument."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.records import Outcome
from streams.operators.contract import Batch
from streams.story.gathering import Gathering
from streams.story.values import Told
from streams.telemetry.held import HeldBatches
from streams.telemetry.joins import AwaitedJoins
from streams.telemetry.legs import LegWriter
from streams.telemetry.sampling import Sampling
from streams.telemetry.values import TimedLeg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.telemetry.values import LegContext, SampledQuery

# Topics are fetched one by one: so long after one record all that was written before has been fetched, too.
SETTLE_US: Final = 2_000_000
# Records tell whole milliseconds, by the clocks of several machines.
SLACK_US: Final = 20_000
KEPT_US: Final = 30_000_000  # batches: a query whose answer takes longer has fewer legs
HELD_BYTES: Final = 64 << 20
MOST: Final = 10_000  # queries that settle


class LegReader:
    """Reads the legs of sampled queries.

    Args:
        codec: of all records.
        unpack: returns the records of a batch; raises `ValueError` where it is none.
        real: returns a topic's or group's name on the broker.
        rate: share of the queries without a header that are sampled.
        held_bytes: of batches that may still be asked for.
    """

    def __init__(
        self,
        codec: Codec,
        unpack: Callable[[Batch], Sequence[Record]],
        real: Callable[[str], str],
        rate: float,
        held_bytes: int = HELD_BYTES,
    ) -> None:
        def unpacked(batch: Batch) -> Sequence[Record]:
            try:
                return unpack(batch)
            except ValueError:
                self._counts["unreadable"] += 1
                return ()

        self._codec = codec
        self._sampling = Sampling(codec, unpacked, rate)
        self._held = HeldBatches(unpacked, held_bytes)
        self._joins = AwaitedJoins(unpacked)
        self._writer = LegWriter(real)
        self._settling: deque[tuple[int, SampledQuery]] = deque()
        self._observed: deque[tuple[int, Record | Batch]] = deque()
        self._observed_bytes, self._held_bytes = 0, held_bytes
        self._ran: dict[LegContext, tuple[int, TimedLeg]] = {}
        self._counts = Counter[str]()

    def take(self, fetched: Sequence[Record | Batch], now_us: int) -> None:
        """Take what was fetched of any topic."""
        for one in fetched:
            topic = one[0]
            if topic == topics.PREDICTIONS:
                self._settling.extend([(now_us, query) for query in self._sampling.of(one)])
            elif topic == topics.OBSERVATIONS:
                self._observed.append((now_us, one))
                self._observed_bytes += _size(one)
            else:
                self._held.add(one, now_us)
        while len(self._settling) > MOST:
            self._settling.popleft()
            self._counts["many"] += 1

    def due(self, now_us: int) -> list[TimedLeg]:
        """Return the legs about which all is known."""
        until_us, found = now_us - SETTLE_US, list[TimedLeg]()
        while self._settling and self._settling[0][0] <= until_us:
            found += self._legs(self._settling.popleft()[1], now_us)
        while self._observed and (
            self._observed[0][0] <= until_us - SETTLE_US or self._observed_bytes > self._held_bytes
        ):
            _, fetched = self._observed.popleft()
            self._observed_bytes -= _size(fetched)
            found += self._joined(fetched)
        for at in [at for at, (since_us, _) in self._ran.items() if since_us <= until_us]:
            found.append(self._ran.pop(at)[1])
        self._held.forget(now_us - KEPT_US)
        return found

    def _legs(self, query: SampledQuery, now_us: int) -> Iterator[TimedLeg]:
        self._counts["sampled"] += 1
        self._joins.expect(query)
        for leg in self._writer.of(query, self._gathered(query)):
            if leg.at.trace_id == query.at.trace_id:
                yield leg
                continue
            _, before = self._ran.get(leg.at, (0, None))  # a batch of several sampled queries has links to all
            links = leg.links if before is None else (*before.links, *leg.links)
            self._ran[leg.at] = now_us, leg._replace(links=links)

    def _gathered(self, query: SampledQuery) -> Gathering:
        """Return what the log says about a query: what was written while it waited, and outputs that came later."""
        said, needle = query.said, query.said.query_id.encode()
        found = Gathering(self._codec, said.query_id)
        since_us, until_us = said.received_us - SLACK_US, said.answered_us + SLACK_US
        decision = said.decision
        models = {decision.arms[arm] for arm in decision.chosen} if decision is not None else set()
        models |= {output.model for output in said.outputs} | {row.model for row in said.stages}
        is_short = any(output.outcome is Outcome.MISSING for output in said.outputs)
        late_us = until_us + SETTLE_US if is_short else until_us
        partition = query.place.partition
        for record in self._held.find(topics.MODEL_PREDICTIONS, partition, needle, since_us, late_us):
            found.take(record)
        for model in sorted(models):
            for record in self._held.find(topics.model_queries(model), None, needle, since_us, until_us):
                found.take(record)
        found.answers.append(Told(query.place, query.time_us, said))
        return found

    def _joined(self, fetched: Record | Batch) -> Iterator[TimedLeg]:
        for query, record in self._joins.of(fetched):
            found = Gathering(self._codec, query.said.query_id)
            found.take(record)
            for seen in found.observations[:1]:
                self._counts["joined"] += 1
                yield self._writer.joined(query, seen)

    def statistics(self) -> Mapping[str, float]:
        """Return what was sampled, what is held, and what could not be."""
        told = ("sampled", "joined", "many", "unreadable")
        sampled, joined, many, unreadable = (float(self._counts[what]) for what in told)
        return {
            "telemetry_queries_total": sampled,
            "telemetry_joined_total": joined,
            "telemetry_dropped_total{why=many}": many,
            "telemetry_dropped_total{why=unreadable}": unreadable,
            "telemetry_let_go_total": float(self._held.let_go),
            "telemetry_held_bytes": float(self._held.bytes),
            "telemetry_awaits_joins": float(len(self._joins)),
        }


def _size(fetched: Record | Batch) -> int:
    return len(fetched.data if isinstance(fetched, Batch) else fetched.value or b"")
