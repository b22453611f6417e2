"""Laws of selection over columns with models in workers: columns and the kernel do what the kernel does alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.codec import Codec
from schemas.records import ModelPredictions, ModelQueries, Outcome, PolicyState, Prediction, Tensor
from streams.operators.contract import (
    Batch,
    DeadLetter,
    Emit,
    EmitBatch,
    FetchStates,
    Record,
    Skip,
    StateKey,
)
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.operators.selection.state_view import STALE_US
from streams.topology import state_partition
from tests.batches import batch
from tests.property.test_columns_select import (
    CHANGES,
    CODEC,
    FIRST,
    FORMS,
    MODELS,
    NOW,
    PARTITIONS,
    PLAIN,
    POLICIES,
    SAID,
    application,
    learnt,
    records_of,
    usual,
)
from tests.workers import model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Effects, Operator

select = pytest.importorskip("streams.columns.select", reason="Skysail is not compiled here")

Row = tuple[str, int, str, int, bytes]  # topic, reply partition, id, when it is due, input


@dataclass
class Twin:
    """One of two that are asked the same: the kernel alone, or behind columns.

    Attributes:
        is_columnar: whether it is the latter.
        codec: of all records.
        admission: whether queries are refused that models cannot answer in time.
        said: key, value and headers of predictions, by partition.
        done: positions that are complete.
        letters: causes by position.
        asked: rows that models were asked.
        emitted: the same as records.
        states: of policies, by key.
        fetched: keys of those that were ever asked for.
    """

    is_columnar: bool
    codec: Codec = CODEC
    admission: bool = False
    said: dict[int, list[tuple[bytes | None, bytes, object]]] = field(default_factory=dict)
    done: set[tuple[str, int, int]] = field(default_factory=set)
    letters: dict[tuple[str, int, int], str] = field(default_factory=dict)
    asked: list[Row] = field(default_factory=list)
    emitted: list[Emit] = field(default_factory=list)
    states: dict[StateKey, PolicyState] = field(default_factory=dict)
    wanted: list[StateKey] = field(default_factory=list)
    fetched: set[StateKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.selection = Selection(
            self.codec, SelectionSettings(partitions=PARTITIONS, remembered=8, admission=self.admission)
        )
        self.kernel: Operator = self.selection
        if self.is_columnar:
            self.kernel = select.ColumnSelection(self.selection, self.selection, {}, self.codec, records_of)
        self.kernel.on_partitions(dict.fromkeys(range(PARTITIONS), 0))

    def give(self, items: Sequence[Record | Batch], now_us: int) -> None:
        """Give records and batches; then the answer of the store."""
        given: list[Any] = [*items]
        if not self.is_columnar:
            given = [one for each in items for one in (records_of(each) if isinstance(each, Batch) else [each])]
        self.perform(self.kernel.on_records(given, now_us), now_us)
        wanted, self.wanted = self.wanted, []
        if wanted:
            self.perform(self.kernel.on_states({key: self.states.get(key) for key in wanted}, now_us), now_us)

    def configure(self, topic: str, key: str, record: object, now_us: int) -> None:
        """Publish a model or an application."""
        self.give([Record(topic, 0, 0, now_us, key.encode(), CODEC.encode(record))], now_us)

    def deploy(self, policy: str, form: dict[str, object]) -> None:
        """Deploy all models, two applications that ask the same ones, and learn the form of inputs."""
        for name in MODELS:
            self.configure(topics.MODELS, name, model(name), NOW)
        self.configure(topics.APPLICATIONS, "digits", application("digits", policy, **form), NOW)
        self.configure(topics.APPLICATIONS, "others", application("others", "exp4"), NOW)
        twins = application("twins", policy, **(form | {"timings": False}))
        self.configure(topics.APPLICATIONS, "twins", twins, NOW)
        self.give([FIRST], NOW)
        value = CODEC.encode(usual("first", np.ones(4, np.float32))._replace(application="twins"))
        self.give([Batch(topics.QUERIES, 1, 0, 1, batch(0, [(None, value, [])]))], NOW)

    def perform(self, effects: Effects, now_us: int) -> None:
        """Take effects."""
        for effect in effects:
            if isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS:
                self.said.setdefault(effect.partition, []).append((effect.key, effect.value, effect.headers))
                self.done |= {*effect.completes}
            elif isinstance(effect, Emit) and effect.topic != topics.SHADOWS:
                self.emitted.append(effect)
                self._ask(effect)
            elif isinstance(effect, EmitBatch):
                records = records_of(Batch(effect.topic, effect.partition, 0, effect.count, effect.data))
                assert len(records) == effect.count == sum(span.end - span.begin for span in effect.completes)
                self.said.setdefault(effect.partition, []).extend((r.key, r.value or b"", r.headers) for r in records)
                for span in effect.completes:
                    self.done |= {(span.topic, span.partition, offset) for offset in range(span.begin, span.end)}
            elif isinstance(effect, Skip):
                self.done |= {*effect.completes}
            elif isinstance(effect, DeadLetter):
                self.letters[effect.record.position] = effect.cause
            elif isinstance(effect, FetchStates):
                self.wanted += effect.keys
                self.fetched |= {*effect.keys}

    def _ask(self, emit: Emit) -> None:
        rows = CODEC.decode(ModelQueries, emit.value)
        column = rows.inputs
        given = column if isinstance(column, tuple) else column.numpy()
        inputs = [row.tobytes() if isinstance(row, np.ndarray | np.void) else repr(row) for row in given]
        for query_id, due_us, row in zip(rows.query_ids, rows.due_us, inputs, strict=True):
            self.asked.append((emit.topic, rows.reply_partition, query_id, due_us, row))  # type: ignore[arg-type]

    def seen(self) -> dict[str, object]:
        """Return all that somebody outside can see."""
        figures = {k: v for k, v in self.kernel.statistics().items() if "columns" not in k and "queries_left" not in k}
        said = {partition: sorted(said, key=repr) for partition, said in self.said.items()}
        asked = Counter(self.asked)
        return {"said": said, "done": self.done, "letters": self.letters, "figures": figures, "asked": asked}


def answered(name: str, ids: Sequence[str], random: Random) -> ModelPredictions:
    """Return what a worker answers, seldom something unusual; some are slow, or have many rows that wait."""
    count = len(ids)
    load = random.choice((7, 200_000)), count, 8, random.choice((0, 30))
    kinds: dict[str, Any] = {
        "one": Tensor.of(np.array([random.randrange(-9, 9) for _ in ids], np.int32)),
        "two": Tensor.of(np.array([random.random() for _ in ids], np.float32)),
        "three": tuple(random.choice(("class ü", "", "b")) for _ in ids),
        "four": Tensor.of(np.array([random.randrange(3) for _ in ids], np.int64)),
    }
    usual_batch = ModelPredictions(
        name, "7", "w", (*ids,), (Outcome.OK,) * count, kinds[name], None, (*range(0, 5000 * count, 5000),), *load
    )
    if random.random() < 0.7:
        return usual_batch
    outcomes = tuple(random.choice((Outcome.OK, Outcome.FAILED, Outcome.EXPIRED, Outcome.INVALID)) for _ in ids)
    changes: list[dict[str, Any]] = [
        {"outcomes": outcomes},
        {"outcomes": outcomes, "messages": ("no",) * count},
        {"scores": Tensor.of(np.ones((count, 2)))},
        {"version": "8"},
        {"model": random.choice(MODELS)},
        {"steps": (1,) * count},
        {"answers": ("x" * 5000,) * count},
        {"answers": Tensor.of(np.full(count, 2**63 - 1))},
        {"answers": Tensor.of(np.arange(count, dtype=np.uint64) + np.uint64(2**63 - 1))},
        {"answers": Tensor.of(np.where(np.arange(count) % 3, np.inf, 0.5))},
        {"answers": Tensor.of(np.arange(count) % 2 == 0)},
        {"answers": Tensor.of(np.ones((count, 2)))},
    ]
    return usual_batch._replace(**random.choice(changes))


@dataclass
class Workers:
    """Answers what was asked, in parts, in any order, some of it twice, some never."""

    random: Random
    waiting: list[Row] = field(default_factory=list)
    offset: int = 0

    def answer(self, now_us: int) -> list[Record]:
        """Return records of answers to some of what waits."""
        found, random = [], self.random
        for topic, partition in sorted({row[:2] for row in self.waiting}):
            rows = [row for row in self.waiting if row[:2] == (topic, partition)]
            if random.random() < 0.3:
                continue
            taken = rows if random.random() < 0.5 else [row for row in rows if random.random() < 0.6]
            ids = [row[2] for row in taken]
            if random.random() < 0.2:
                random.shuffle(ids)
                ids += random.choice(([], ids[:1], ["nobody"]))
            for row in taken:
                if random.random() < 0.9:
                    self.waiting.remove(row)
            if ids:
                value: bytes = CODEC.encode(answered(topics.asked_model(topic), ids, random))
                value = value if random.random() < 0.95 else value[: random.randrange(len(value))]
                headers = (("behind", b""),) if random.random() < 0.03 else ()
                stamp_us = now_us - random.choice((0, 1_000, 4_000, -2_000))
                found.append(Record(topics.MODEL_PREDICTIONS, partition, self.offset, stamp_us, None, value, headers))
                self.offset += 1
        random.shuffle(found)
        return found


POLLS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.one_of(PLAIN, PLAIN, SAID)), max_size=5),
        st.sampled_from([0, 0, 1, 2, 3, 4]),
        st.sampled_from([0, 0, 3_000, 60_000]),
    ),
    min_size=1,
    max_size=6,
)


def other(value: bytes | None, random: Random) -> bytes | None:
    """Return the same query to the other application, sometimes: both are asked under the same ids."""
    if value is None or random.random() < 0.6:
        return value
    return value.replace(b"\x0cdigits", b"\x0atwins")


def batches_of(groups: list[Any], offsets: list[int], random: Random) -> list[Batch]:
    """Return a poll's record batches; offsets move on."""
    found = []
    for partition, said in groups:
        given_to = [(key, other(value, random), headers) for key, value, headers in said]
        begin = offsets[partition]
        found.append(Batch(topics.QUERIES, partition, begin, begin + len(said), batch(begin, given_to)))
        offsets[partition] += len(said)
    return found


@settings(max_examples=60, deadline=None, print_blob=True)
@given(st.sampled_from(POLICIES), st.sampled_from(FORMS), POLLS, st.integers(0, 2**32), st.booleans(), st.booleans())
def test_columns_and_the_rest_do_what_the_kernel_does_alone(
    policy: str, form: dict[str, object], polls: list[Any], seed: int, admission: bool, timings: bool
) -> None:
    """What is asked and answered, completions, dead letters and statistics are the same, whatever comes."""
    random, form = Random(seed), form | {"timings": timings}
    alone, columns = twins = Twin(is_columnar=False, admission=admission), Twin(is_columnar=True, admission=admission)
    for twin in twins:
        twin.deploy(policy, form)
    workers, offsets, now_us, known = Workers(random), [1, 1, 0], NOW, 0
    for step, (groups, change, wait_us) in enumerate(polls):
        items: list[Record | Batch] = [*batches_of(groups, offsets, random)]
        answers = workers.answer(now_us)
        items = [*answers, *items] if random.random() < 0.5 else [*items, *answers]
        revoked = random.randrange(PARTITIONS) if random.random() < 0.1 else None
        for twin in twins:
            twin.give(items, now_us)
            if change:
                changed = application(
                    "digits", policy, **(form | CHANGES[change] | {"timings": timings != (change == 1)})
                )
                twin.configure(topics.APPLICATIONS, "digits", changed, now_us)
            if change == 3:
                # When a state is read again is not said: columns read it for a copy of a query, too.
                twin.states[StateKey(state_partition("digits", PARTITIONS), "digits")] = learnt(policy, step)
                keys = sorted(alone.fetched | columns.fetched)
                twin.perform(twin.kernel.on_states({key: twin.states.get(key) for key in keys}, now_us), now_us)
            if revoked is not None:
                twin.kernel.on_partitions({revoked: None})
        now_us += wait_us
        for twin in twins:
            due_us = twin.kernel.needs().deadline_us
            if due_us is not None and due_us <= now_us:
                twin.perform(twin.kernel.on_timer(now_us), now_us)
        assert columns.seen() == alone.seen()
        workers.waiting += alone.asked[known:]
        known = len(alone.asked)
    for twin in twins:
        twin.perform(twin.kernel.on_timer(now_us + 10_000_000), now_us + 10_000_000)
    assert columns.seen() == alone.seen()
    assert columns.kernel.statistics()["pending"] == 0
    assert all(not quota.places for quota in columns.selection.quotas)


def test_times_are_told_over_columns() -> None:
    """Each row's own wait, and what its worker says of the batch; of an application without timings nothing."""
    twin = Twin(is_columnar=True)
    twin.deploy("single", {"timings": True})
    queries = [usual(f"q{n}", np.ones(4, np.float32), sent_us=NOW) for n in range(6)]
    queries = [query._replace(application=("digits", "twins")[n % 2]) for n, query in enumerate(queries)]
    for offset, query in enumerate(queries, 1):
        data = batch(offset, [(None, CODEC.encode(query), [])])
        twin.give([Batch(topics.QUERIES, 0, offset, offset + 1, data)], NOW)
    ids = tuple(query.query_id for query in queries)
    waited = tuple(100_000 * n for n in range(6))
    said = ModelPredictions(
        "one", "7", "w", ids, (Outcome.OK,) * 6, Tensor.of(np.arange(6)), None, waited, 40_000, 64, 64, 0
    )
    twin.give([Record(topics.MODEL_PREDICTIONS, 0, 0, NOW, None, CODEC.encode(said))], NOW + 5_000)
    answers = [CODEC.decode(Prediction, value) for _, value, _ in twin.said[0]]
    found = {one.query_id: one.outputs[0] for one in answers if one.outputs}
    statistics = twin.kernel.statistics()
    assert statistics["answers_by_columns_total{application=digits}"] == 3
    assert statistics["answers_by_columns_total{application=twins}"] == 3
    assert {name: found[name].answer for name in ids} == {name: n for n, name in enumerate(ids)}
    expected = {name: (waited[n], 40_000, 64) if n % 2 == 0 else (0, 0, 0) for n, name in enumerate(ids)}
    assert {name: found[name].times for name in ids} == expected


def test_what_workers_are_asked_is_the_same_record_for_record() -> None:
    """Where all queries of a poll are plain, so are partition, order and everything else of what is asked."""
    alone, columns = twins = Twin(is_columnar=False), Twin(is_columnar=True)
    for twin in twins:
        twin.deploy("exp3", {})
    for poll in range(5):
        queries = [usual(f"q{poll}-{n}", np.full(4, n, np.float32), sent_us=NOW - n) for n in range(40)]
        data = batch(1 + 40 * poll, [(None, CODEC.encode(query), []) for query in queries])
        for twin in twins:
            twin.give([Batch(topics.QUERIES, 0, 1 + 40 * poll, 41 + 40 * poll, data)], NOW)
    assert columns.kernel.statistics()["pending"] == alone.kernel.statistics()["pending"] == 200.0
    key = lambda emit: (emit.topic, emit.partition, emit.value)  # noqa: E731
    assert sorted(columns.emitted, key=key) == sorted(alone.emitted, key=key)


def test_plain_queries_to_workers_are_answered_by_columns_and_no_object_waits_for_them() -> None:
    """The kernel holds nothing, and each answer is counted as one by columns."""
    twin = Twin(is_columnar=True)
    twin.deploy("exp3", {})
    twin.perform(twin.kernel.on_timer(NOW + 1_000_000), NOW + 1_000_000)
    twin.asked.clear()
    queries = [usual(f"q{n}", np.ones(4, np.float32), sent_us=NOW) for n in range(50)]
    data = batch(1, [(None, CODEC.encode(query), []) for query in queries])
    twin.give([Batch(topics.QUERIES, 0, 1, 51, data)], NOW)
    assert not any(twin.selection.serving.combiner.waiting.values())
    assert len(twin.asked) == 50
    for offset, name in enumerate(MODELS):
        ids = tuple(row[2] for row in twin.asked if row[0] == topics.model_queries(name))
        answers = Tensor.of(np.arange(len(ids)))
        value = CODEC.encode(
            ModelPredictions(name, "7", "w", ids, (Outcome.OK,) * len(ids), answers, None, (1,) * len(ids), 1, 1, 1, 0)
        )
        twin.give([Record(topics.MODEL_PREDICTIONS, 0, offset, NOW, None, value)], NOW)
    figures = twin.kernel.statistics()
    assert figures["answers_by_columns_total{application=digits}"] == 50
    assert figures["pending"] == 0


def answers_of(name: str, ids: Sequence[str], answers: object, written_us: int, offset: int) -> Record:
    """Return a worker batch, all of whose rows were answered."""
    count = len(ids)
    made = ModelPredictions(
        name,
        "7",
        "w",
        (*ids,),
        (Outcome.OK,) * count,
        answers,
        None,
        (1,) * count,
        1,
        count,
        count,
        0,  # type: ignore[arg-type]
    )
    return Record(topics.MODEL_PREDICTIONS, 0, offset, written_us, None, CODEC.encode(made))


def asked_together(policy: str, count: int) -> tuple[Twin, Twin]:
    """Return the kernel alone, and behind columns, both of which have asked about as many queries: q0, q1, ..."""
    data = batch(
        1, [(None, CODEC.encode(usual(f"q{n}", np.ones(4, np.float32), sent_us=NOW)), []) for n in range(count)]
    )
    twins = Twin(is_columnar=False), Twin(is_columnar=True)
    for twin in twins:
        twin.deploy(policy, {})
        twin.give([Batch(topics.QUERIES, 0, 1, 1 + count, data)], NOW)
    return twins


def test_worker_batches_are_answered_in_their_order_whoever_answers_them() -> None:
    """How long their ways back took is learnt in that order, and the next queries' due times follow from it."""
    alone, columns = twins = asked_together("single", 9)
    said = [(("x" * 5000,), 900), ((4,), 2_500), (("x" * 5000,), 3_100), ((5,), 700)]  # long texts are the kernel's
    records = [
        answers_of("one", [f"q{n}"], a if isinstance(a[0], str) else Tensor.of(np.array(a)), NOW + 4_000 - took_us, n)
        for n, (a, took_us) in enumerate(said)
    ]
    for twin in twins:
        twin.give(records, NOW + 4_000)
    assert columns.seen() == alone.seen()
    assert columns.kernel.statistics()["answers_by_columns_total{application=digits}"] == 2


def test_a_copy_of_a_query_has_a_stale_state_read_again_and_does_nothing_else() -> None:
    """The kernel does not read it again: which queries come first is known to columns only after their state."""
    value = CODEC.encode(usual("q", np.ones(4, np.float32), sent_us=NOW, slo_ms=1_000.0))
    data = [batch(1 + copy, [(None, value, [])]) for copy in range(2)]
    alone, columns = twins = Twin(is_columnar=False), Twin(is_columnar=True)
    key = StateKey(state_partition("digits", PARTITIONS), "digits")
    for twin in twins:
        twin.deploy("exp3", {})
        twin.give([Batch(topics.QUERIES, 0, 1, 2, data[0])], NOW)
        twin.fetched.clear()
        twin.give([Batch(topics.QUERIES, 0, 2, 3, data[1])], NOW + STALE_US)
    assert (alone.fetched, columns.fetched) == (set(), {key})
    assert columns.seen() == alone.seen()


@pytest.mark.parametrize(
    "answers", [np.ones((3, 2)), np.array([0.5, np.nan, np.inf]), np.arange(2**63 - 1, 2**63 + 2, dtype=np.uint64)]
)
def test_rows_that_are_no_answers_have_failed(answers: np.ndarray[Any, Any]) -> None:
    """Their queries are answered at once, by default or by the others, and every prediction can be read."""
    for policy, names in (("single", ["one"]), ("exp4", ["one", "three", "four"])):
        alone, columns = twins = asked_together(policy, 3)
        for number, name in enumerate(names):
            given = Tensor.of(answers if name == "one" else np.arange(3))
            for twin in twins:
                twin.give([answers_of(name, ["q0", "q1", "q2"], given, NOW, number)], NOW)
        assert columns.seen() == alone.seen()
        read = [CODEC.decode(Prediction, value) for _, value, _ in columns.said[0]]
        found = [made for made in read if made.query_id != "first"]
        failed = sorted(made.query_id for made in found if made.outputs[0].outcome is Outcome.FAILED)
        assert len(found) == 3
        assert failed == [f"q{n}" for n in range(3) if answers.ndim > 1 or not 0 <= answers[n] < 2**63]


def test_a_flipped_byte_of_a_worker_batch_makes_the_same_dead_letter() -> None:
    """Whatever byte it is: the same letters and answers."""
    queries = [usual(f"q{n}", np.ones(4, np.float32), sent_us=NOW) for n in range(3)]
    data = batch(1, [(None, CODEC.encode(query), []) for query in queries])
    batches = ModelPredictions(
        "one", "7", "w", ("q0", "q1", "q2"), (Outcome.OK,) * 3, Tensor.of(np.arange(3)), None, (1,) * 3, 1, 3, 3, 0
    )
    value = CODEC.encode(batches)
    for at in range(len(value)):
        alone, columns = twins = Twin(is_columnar=False), Twin(is_columnar=True)
        spoilt = value[:at] + bytes([value[at] ^ 1]) + value[at + 1 :]
        for twin in twins:
            twin.deploy("single", {})
            twin.give([Batch(topics.QUERIES, 0, 1, 4, data)], NOW)
            twin.give([Record(topics.MODEL_PREDICTIONS, 0, 0, NOW, None, spoilt)], NOW)
        assert columns.seen() == alone.seen(), at


def test_what_is_too_large_for_a_record_is_asked_in_halves() -> None:
    """As the kernel halves it; an input that is too large for columns is the kernel's."""
    for size, count in ((4, 3000), (30_000, 2)):
        alone, columns = twins = Twin(is_columnar=False), Twin(is_columnar=True)
        row = np.ones(size, np.float32)
        queries = [usual(f"q{n}", row, sent_us=NOW) for n in range(count)]
        data = batch(1, [(None, CODEC.encode(query), []) for query in queries])
        for twin in twins:
            twin.deploy("single", {})
            twin.give([Batch(topics.QUERIES, 0, 1, 1 + count, data)], NOW)
        assert columns.seen() == alone.seen()


def test_records_are_halved_where_a_deployment_takes_small_ones_only() -> None:
    """Each of the halves is a record that the codec takes."""
    small = Codec(max_bytes=3_000)
    twin = Twin(is_columnar=True, codec=small)
    twin.deploy("single", {})
    twin.asked.clear()
    queries = [usual(f"q{n}", np.full(4, n, np.float32), sent_us=NOW) for n in range(200)]
    data = batch(1, [(None, CODEC.encode(query), []) for query in queries])
    twin.give([Batch(topics.QUERIES, 0, 1, 201, data)], NOW)
    assert [row[2] for row in twin.asked] == [query.query_id for query in queries]
    assert [np.frombuffer(row[4], np.float32)[0] for row in twin.asked] == [*range(200)]
    assert len(twin.emitted) > 1


def test_what_is_read_again_after_a_kill_is_asked_and_answered_the_same() -> None:
    """The new owner draws the same models, and takes the answers to the first questions, too."""
    queries = [usual(f"q{n}", np.full(4, n, np.float32), sent_us=NOW) for n in range(30)]
    data = batch(1, [(None, CODEC.encode(query), []) for query in queries])
    first, again = twins = Twin(is_columnar=True), Twin(is_columnar=True)
    for twin in twins:
        twin.deploy("exp3", {})
        twin.asked.clear()
        twin.give([Batch(topics.QUERIES, 0, 1, 31, data)], NOW)
    again.kernel.on_partitions({0: 1})
    again.give([Batch(topics.QUERIES, 0, 1, 31, data)], NOW)
    assert again.asked == 2 * first.asked
    for twin in twins:
        for offset, name in enumerate(MODELS):
            ids = tuple(row[2] for row in first.asked if row[0] == topics.model_queries(name))
            answers = Tensor.of(np.arange(len(ids)))
            made = ModelPredictions(
                name, "7", "w", ids, (Outcome.OK,) * len(ids), answers, None, (1,) * len(ids), 1, 1, 1, 0
            )
            for copy in range(2):  # of the second no query waits any more
                record = Record(topics.MODEL_PREDICTIONS, 0, 2 * offset + copy, NOW, None, CODEC.encode(made))
                twin.give([record], NOW + 5_000)
    assert again.said == first.said
    assert again.done == first.done
    assert again.kernel.statistics()["pending"] == 0


def test_with_admission_few_queries_go_by_columns_and_the_others_are_the_kernels() -> None:
    """As many as a model answers in one batch, those that wait included; of more, whoever would be late is refused."""
    alone, columns = twins = Twin(is_columnar=False, admission=True), Twin(is_columnar=True, admission=True)
    for twin in twins:
        twin.deploy("single", {})
        twin.perform(twin.kernel.on_timer(NOW + 1_000_000), NOW + 1_000_000)
    now_us, offset, taken = NOW + 2_000_000, 1, []
    waiting: list[str] = []
    for poll, (count, answered_now) in enumerate([(8, 8), (5, 0), (3, 8), (200, 200), (6, 0), (6, 12), (8, 8)]):
        queries = [usual(f"p{poll}-{n}", np.ones(4, np.float32), sent_us=now_us) for n in range(count)]
        data = batch(offset, [(None, CODEC.encode(query), []) for query in queries])
        waiting += [query.query_id for query in queries]
        for twin in twins:
            twin.give([Batch(topics.QUERIES, 0, offset, offset + count, data)], now_us)
            if answered_now:
                twin.give([_said_slowly(waiting, poll, now_us)], now_us)
        waiting = [] if answered_now else waiting
        offset, now_us = offset + count, now_us + 1_000
        taken.append(columns.kernel.statistics()["answers_by_columns_total{application=digits}"])
        assert columns.seen() == alone.seen()
    assert taken == [8, 8, 16, 16, 16, 16, 24]
    assert alone.kernel.statistics()["overloaded_total{model=one}"] > 100


def _said_slowly(ids: Sequence[str], offset: int, now_us: int) -> Record:
    """Return what a worker says that takes 40 ms for eight rows."""
    count = len(ids)
    batch_of_it = ModelPredictions(
        "one",
        "7",
        "w",
        (*ids,),
        (Outcome.OK,) * count,
        Tensor.of(np.arange(count)),
        None,
        (1,) * count,
        40_000,
        8,
        8,
        0,
    )
    return Record(topics.MODEL_PREDICTIONS, 0, offset, now_us, None, CODEC.encode(batch_of_it))
