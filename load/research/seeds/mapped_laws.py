"""What must become of others' records, by the records alone: who wrote which order, and what stands in `scored`.

order ─▶ one query, under its id │ dead letter │ nothing, where it is not meant
truth ─▶ feedback on its order   │ dead letter │ nothing, where nothing is told
answer of the application ─▶ a record in `scored`, with what its order is kept of
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from load.research.seeds.laws import Violation
from load.research.seeds.mapped import NAME, NEW, ORDERS, SCORED, TRUTHS
from load.research.seeds.models import said
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Feedback, Prediction, Query, Status, Tensor
from streams.operators.contract import Position
from streams.topology import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from load.research.seeds.mapped import Mapped
    from load.research.seeds.plan import Plan
    from schemas.codec import Codec
    from streams.operators.contract import Record
    from streams.runtime.ports import TopicPartition
    from streams.testing.broker import FakeBroker

_KEY, _ROW = "key", "row"  # headers by which an answer finds the one that asked


class Meant(NamedTuple):
    """What a record of others is to become.

    Attributes:
        what: `query`, `feedback`, `nothing`, or `refused`.
        name: of a query its id and number, of feedback its query and label: so many of them are to be there.
    """

    what: str
    name: tuple[Any, ...] = ()


class MappedLedger:
    """Follows others' records, and judges them.

    Attributes:
        mapped: what is mapped.
    """

    def __init__(self, plan: Plan, mapped: Mapped, broker: FakeBroker, codec: Codec) -> None:
        self.mapped = mapped
        self._broker = broker
        self._codec = codec
        self._partitions = plan.selection.partitions
        self._made: Counter[tuple[Any, ...]] = Counter()  # queries, feedback and answers, by name
        self._passed: Counter[tuple[Any, ...]] = Counter()  # what commits have passed must have become
        self._looked: dict[TopicPartition, int] = {}
        self._dead: set[Position] = set()
        self._early: list[str] = []
        broker.appended.append(self.on_record)

    def on_record(self, record: Record) -> None:
        """Note what was made of something."""
        if record.topic == topics.dead_letters(ORDERS):
            self._dead.add(_refused(dict(record.headers)))
        elif (name := self._name(record)) is not None:
            self._made[name] += 1

    def on_commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Look whether everything before a commit has become what it is to become."""
        for place, offset in offsets.items():
            begin = self._looked.get(place, 0)
            for record in self._broker.readable(place, begin, offset):
                meant = self._meant(record)
                self._passed[meant.name] += bool(meant.name)
                is_refused = meant.what == "refused" and record.position not in self._dead
                if is_refused or self._made[meant.name] < self._passed[meant.name]:
                    self._early.append(f"{group} committed {place[0]}-{place[1]} past {record.offset}")
            self._looked[place] = max(begin, offset)

    def violations(self, dead: Mapping[Position, str]) -> list[Violation]:
        """Return what is wrong."""
        found = {"commits": self._early, "mapped": self._mapped(dead), "scored": self._scored()}
        return [Violation(law, what) for law, its in found.items() for what in its]

    def _mapped(self, dead: Mapping[Position, str]) -> Iterator[str]:
        """Hold queries and feedback against orders and truths."""
        wanted: Counter[tuple[Any, ...]] = Counter()
        for record in self._read(ORDERS, TRUTHS):
            meant = self._meant(record)
            if (meant.what == "refused") is not (record.position in dead):
                yield f"{_shown(record)} is meant to be {meant.what}, is a dead letter: {dead.get(record.position)}"
            wanted[meant.name] += bool(meant.name)
        for name, count in wanted.items():
            if self._made[name] < count:
                yield f"{count} records mean {name}, there are {self._made[name]}"
        for record in self._read(topics.QUERIES, topics.FEEDBACK):
            made = self._name(record)
            if made is not None and not wanted[made]:
                yield f"{_shown(record)} is {made}, which nobody meant"

    def _scored(self) -> Iterator[str]:
        """Hold the records of answers against answers, and these against what models say."""
        wanted: defaultdict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for record in self._read(topics.PREDICTIONS):
            row = self._row(record)
            if row is not None:
                wanted[row["query"]].append((self._placed(record), row))
        found: Counter[str] = Counter()
        for record in self._read(SCORED):
            row = json.loads(record.value or b"null")
            found[row["query"]] += 1
            if ((record.partition, record.key), row) not in wanted[row["query"]]:
                yield f"{_shown(record)} is {row}, answered was {wanted[row['query']]}"
            yield from [f"{_shown(record)}: {what}" for what in _misread(row)]
        for query_id, rows in wanted.items():
            if found[query_id] < len(rows):
                yield f"{query_id} was answered {len(rows)} times, {found[query_id]} of them are in {SCORED}"

    def _meant(self, record: Record) -> Meant:
        """Return what a record is to become."""
        if record.topic == topics.PREDICTIONS:
            row = self._row(record)
            return Meant("nothing") if row is None else Meant("answer", (SCORED, row["query"]))
        if record.value is None:
            return Meant("nothing")
        try:
            row = json.loads(record.value)
        except ValueError:
            return Meant("refused")
        if record.topic == TRUTHS:
            told = row["label"]
            return Meant("nothing") if told is None else Meant("feedback", (TRUTHS, row["order"]["id"], told))
        if row["state"] != NEW:
            return Meant("nothing")
        return Meant("query", (ORDERS, row["id"], row["number"])) if "number" in row else Meant("refused")

    def _name(self, record: Record) -> tuple[Any, ...] | None:
        """Return of what a record of ours was made; None: of nothing that others wrote."""
        try:
            match record.topic:
                case topics.QUERIES:
                    query = self._codec.decode(Query, record.value)
                    return (ORDERS, query.query_id, _number(query)) if query.application == NAME else None
                case topics.FEEDBACK:
                    told = self._codec.decode(Feedback, record.value)
                    is_theirs = told.query_id.startswith(("o", "n"))
                    return (TRUTHS, told.query_id, told.label) if is_theirs else None
        except DecodeError:
            return None
        return (SCORED, json.loads(record.value or b"null")["query"]) if record.topic == SCORED else None

    def _row(self, record: Record) -> dict[str, Any] | None:
        """Return what an answer is to become; None: it is none of the application's, or not wanted."""
        try:
            prediction = self._codec.decode(Prediction, record.value)
        except DecodeError:
            return None
        spec = self.mapped.spec["to"]
        is_unwanted = "where" in spec and prediction.status is Status.DEFAULT
        if prediction.application != NAME or is_unwanted:
            return None
        order = json.loads(dict(record.headers).get(_ROW, b"{}"))
        kept = order if spec["keep"] == "all" else {name: order.get(name) for name in spec["keep"]}
        models = {
            each.model: {"answer": each.answer, "version": each.version, "outcome": each.outcome.value}
            for each in prediction.outputs
        }
        shown = {"query": prediction.query_id, "answer": prediction.answer, "status": prediction.status.value}
        return {**kept, **shown, "models": models}

    def _placed(self, record: Record) -> tuple[int, bytes | None]:
        """Return where the record of an answer is to be, and under which key."""
        key, count = dict(record.headers).get(_KEY, record.key), self.mapped.partitions[SCORED]
        return (record.partition % count if key is None else partition_of(key, count)), key

    def _read(self, *names: str) -> Iterator[Record]:
        for name in names:
            for place in self._broker.places(name):
                yield from self._broker.readable(place, 0)


def _misread(row: Mapping[str, Any]) -> Iterator[str]:
    """Hold an answer against its order: what its models say of that, or the default."""
    if row["query"] != row["id"]:
        yield f"order {row['id']} stands beside the answer to {row['query']}"
    number, answers = row["number"], {-1}
    for name, its in row["models"].items():
        if its["answer"] is None or number is None:
            continue
        answers.add(its["answer"])
        if its["answer"] != said(name, its["version"], number):
            yield f"{name} {its['version']} has answered {its['answer']} to {number}"
    if row["answer"] not in answers:
        yield f"{row['answer']} was answered, models say {answers}"


def _number(query: Query) -> int | None:
    """Return the number of an order: one without it travels by name."""
    if isinstance(query.input, Tensor):
        return int(query.input.numpy()[0])
    found: int | None = json.loads(str(query.input))["number"]
    return found


def _refused(headers: Mapping[str, bytes]) -> Position:
    where = [headers[f"skysail.error.{name}"].decode() for name in ("topic", "partition", "offset")]
    return Position(where[0], int(where[1]), int(where[2]))


def _shown(record: Record) -> str:
    return f"{record.topic}-{record.partition}@{record.offset}"
