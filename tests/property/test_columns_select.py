"""Laws of selection over columns: columns and the kernel behind them do what the kernel does alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import registry
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Feedback, NamedTensors, Outcome, PolicyState, Prediction, Query, Tensor
from streams.operators.contract import (
    Batch,
    DeadLetter,
    Emit,
    EmitBatch,
    FetchStates,
    Loaded,
    Predict,
    Predicted,
    Ran,
    Record,
    Skip,
    Span,
    StateKey,
)
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.kafka.fast.record_batches import unpack
from streams.runtime.role.local import Local, LocalCodec
from streams.topology import state_partition
from tests.batches import batch
from tests.workers import model, worker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.operators.contract import Effects, Operator

select = pytest.importorskip("streams.columns.select", reason="Skysail is not compiled here")

CODEC = Codec()
NOW = 1_700_000_000_000_000
MODELS = ("one", "two", "three", "four")
PARTITIONS = 3
INSIDE = frozenset(map(topics.model_queries, MODELS))
TOGETHER = frozenset({"exp4", "class_vote"})
POLICIES = ("single", "exp3", "epsilon_greedy", "ucb1", "discounted_ucb", "thompson", "exp4", "class_vote")


def answers(name: str, rows: np.ndarray[Any, Any]) -> Predicted:
    """Answer rows as a model does: a whole number, a double or a text each."""
    sums = np.abs(np.nan_to_num(rows)).sum(axis=1) % 5
    outcomes = (Outcome.OK,) * len(rows)
    if name == "one":
        return Predicted(outcomes, sums.astype(np.int32))
    if name == "two":
        return Predicted(outcomes, (sums / 3).astype(np.float32))
    if name == "four":
        return Predicted(outcomes, (sums // 2).astype(np.uint8))
    return Predicted(outcomes, tuple(f"class {number:g} ü" for number in sums))


def predicted(name: str, rows: Sequence[Any]) -> Predicted:
    """Answer rows of which some may not fit."""
    fit = [isinstance(row, Tensor) and row.dtype == "float32" and row.shape == (4,) for row in rows]
    none = np.zeros(4, np.float32)
    found = answers(name, np.stack([row.numpy() if fits else none for row, fits in zip(rows, fit, strict=True)]))
    return replace(found, outcomes=tuple(Outcome.OK if fits else Outcome.INVALID for fits in fit))


@dataclass
class Twin:
    """One of two that are asked the same: the kernel alone, or behind columns.

    Attributes:
        said: key, value and headers of predictions, by partition.
        done: positions that are complete.
        letters: causes by position.
        states: of policies, by key.
        fetched: keys of those that were ever asked for.
    """

    is_columnar: bool
    refuses: frozenset[str] = frozenset()
    has_scores: bool = False
    remembered: int = 8
    calls: int = 0  # of models, at once
    said: dict[int, list[tuple[bytes | None, bytes, object]]] = field(default_factory=dict)
    done: set[tuple[str, int, int]] = field(default_factory=set)
    letters: dict[tuple[str, int, int], str] = field(default_factory=dict)
    states: dict[StateKey, PolicyState] = field(default_factory=dict)
    asked: list[StateKey] = field(default_factory=list)
    fetched: set[StateKey] = field(default_factory=set)

    def __post_init__(self) -> None:
        codec = LocalCodec(CODEC)
        given = SelectionSettings(partitions=PARTITIONS, inside=INSIDE, remembered=self.remembered)
        self.selection = Selection(codec, given)
        self.models = {name: worker(name, codec=codec, limit=10_000) for name in MODELS}
        self.kernel: Operator = Local(self.selection, self.models, codec)
        if self.is_columnar:
            self.kernel = select.ColumnSelection(
                self.kernel, self.selection, self.models, CODEC, records_of, ask=self._ask
            )
        for name in MODELS:
            self.perform(self.kernel.on_loaded(Loaded(name, "7"), NOW), NOW)
        self.kernel.on_partitions(dict.fromkeys(range(PARTITIONS), 0))

    def _ask(self, name: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int] | None:
        """Ask as it is asked now."""
        return self.ask_now(name, copy, rows, patience_us)

    def ask_now(self, name: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int] | None:
        """Answer at once, unless the model refuses to."""
        assert copy == self.models[name]._serving.copy
        assert patience_us > 0
        self.calls += 1
        if name in self.refuses:
            return None
        found = answers(name, rows.numpy())
        return (replace(found, scores=np.ones((rows.shape[0], 2))) if self.has_scores else found), 0

    def configure(self, topic: str, key: str, record: object, now_us: int) -> None:
        """Publish a model or an application."""
        value = None if record is None else CODEC.encode(record)
        self.perform(self.kernel.on_records([Record(topic, 0, 0, now_us, key.encode(), value)], now_us), now_us)

    def poll(self, batches: Sequence[Batch], now_us: int) -> None:
        """Give a poll's batches, or their records; then the answer of the store."""
        items: list[Any] = [*batches]
        if not self.is_columnar:
            items = [record for each in batches for record in records_of(each)]
        self.perform(self.kernel.on_records(items, now_us), now_us)
        asked, self.asked = self.asked, []
        if asked:
            self.perform(self.kernel.on_states({key: self.states.get(key) for key in asked}, now_us), now_us)

    def perform(self, effects: Effects, now_us: int) -> None:
        """Take effects; models answer at once."""
        for effect in effects:
            if isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS:
                self.said.setdefault(effect.partition, []).append((effect.key, effect.value, effect.headers))
                self.done |= {*effect.completes}
            elif isinstance(effect, EmitBatch):
                self._perform_batch(effect)
            elif isinstance(effect, Skip):
                self.done |= {*effect.completes}
            elif isinstance(effect, DeadLetter):
                self.letters[effect.record.position] = effect.cause
            elif isinstance(effect, FetchStates):
                self.asked += effect.keys
                self.fetched |= {*effect.keys}
            elif isinstance(effect, Predict):
                found = predicted(effect.model, effect.rows)
                self.perform(self.kernel.on_predicted(effect.batch_id, Ran(found, 0, is_blocking=True), now_us), now_us)

    def _perform_batch(self, effect: EmitBatch) -> None:
        records = records_of(Batch(effect.topic, effect.partition, 0, effect.count, effect.data))
        assert len(records) == effect.count
        self.said.setdefault(effect.partition, []).extend((r.key, r.value or b"", r.headers) for r in records)
        for span in effect.completes:
            assert isinstance(span, Span)
            self.done |= {(span.topic, span.partition, offset) for offset in range(span.begin, span.end)}

    def seen(self) -> dict[str, object]:
        """Return all that somebody outside can see."""
        figures = dict(self.selection.statistics())
        said = {partition: sorted(said, key=repr) for partition, said in self.said.items()}
        return {"said": said, "done": self.done, "letters": self.letters, "figures": figures}


def records_of(given: Batch) -> list[Record]:
    """Return the records of a batch."""
    found, _ = unpack(given.data, given.topic, given.partition, given.offset)
    return [record for record in found if record.offset < given.end]


ROWS = st.sampled_from([np.arange(4, dtype=np.float32), np.ones(4, np.float32), np.full(4, -2.5, np.float32)])
NAMED = NamedTensors.named({"left": np.ones(4, np.float32), "right": np.array(1)})
OTHER_ROWS = st.sampled_from([Tensor.of(np.ones(3, np.float32)), Tensor.of(np.ones(4)), "a text", b"bytes", NAMED])
# Few ids, which come again soon or late; many, which draw all arms; and those that are unusual.
IDS = st.one_of(
    st.sampled_from([f"q{number}" for number in range(24)]),
    st.integers(0, 10_000).map(lambda number: f"query-{number}"),
    st.sampled_from(["ü" * 20, "x" * 128, "x" * 129, "", "\U0001f600"]),
)
# Around the bounds: of the future, and of what is left of 100 ms with 5 for the way back.
SENT = st.sampled_from(
    [NOW, NOW - 3_000, 0, NOW + 1_000_000, NOW + 1_000_001, NOW - 94_999, NOW - 95_000, NOW - 95_001]
)


def usual(query_id: str, row: Any, **options: Any) -> Query:
    """Return a query of the application that columns answer."""
    return Query(query_id, "digits", Tensor.of(row), **options)


USUAL = st.builds(
    usual,
    IDS,
    ROWS,
    context=st.sampled_from([None, "", "user-1", "ä" * 600]),
    sent_us=SENT,
    slo_ms=st.sampled_from([None, None, None, 80.0, 12.3456, 1000.0, 1000.001]),
    reply_token=st.sampled_from(["", "token-1", "token-2"]),
)
UNUSUAL = st.one_of(
    st.builds(lambda query, row: query._replace(input=row), USUAL, OTHER_ROWS),
    st.builds(
        lambda query, changes: query._replace(**changes),
        USUAL,
        st.sampled_from(
            [
                {"application": "others"},
                {"application": "nobody"},
                {"priority": 2},
                {"features": (1.0, 2.0)},
                {"version": "7"},
                {"version": "8"},
                {"sent_us": NOW - 10_000_000},
                {"sent_us": NOW + 2_000_000},
                {"sent_us": NOW + 60_000_000},
                {"sent_us": -5},
                {"slo_ms": 1e9},
                {"slo_ms": -1.0},
                {"top": 3},
                {"candidates": ("a", "b")},
            ]
        ),
    ),
)
VALUES = st.one_of(
    USUAL.map(CODEC.encode),
    USUAL.map(CODEC.encode),
    USUAL.map(CODEC.encode),
    UNUSUAL.map(CODEC.encode),
    st.builds(lambda query, end: CODEC.encode(query)[: 5 + end], USUAL, st.integers(0, 60)),
    st.just(CODEC.encode(Feedback("q1", label=3))),
    st.sampled_from([None, b"", b"foreign", b"\xc3\x01", CODEC.encode(Query("\x80", "digits", "x"))[:-1] + b"\xff"]),
)
KEYS = st.sampled_from([None, b"", b"user-1", b"\xff"])
HEADERS = st.sampled_from(
    [[], [], [], [("traceparent", b"00-1")], [("ü", None), ("", b""), ("row", b"x" * 700), ("row", b"y" * 400)]]
)
SAID = st.lists(st.tuples(KEYS, VALUES, HEADERS), min_size=1, max_size=6)
PLAIN = st.lists(st.tuples(KEYS, USUAL.map(CODEC.encode), st.just([])), min_size=1, max_size=12)
POLLS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, PARTITIONS - 1), st.one_of(PLAIN, PLAIN, SAID)), max_size=5),
        st.sampled_from([0, 0, 1, 2, 3, 4]),
        st.sampled_from([0, 0, 3_000]),
    ),
    min_size=1,
    max_size=6,
)


# From it columns learn the form of inputs.
FIRST = Batch(topics.QUERIES, 0, 0, 1, batch(0, [(None, CODEC.encode(usual("first", np.ones(4, np.float32))), [])]))


def both(refuses: frozenset[str] = frozenset(), remembered: int = 8) -> tuple[Twin, Twin]:
    """Return the kernel alone, and behind columns."""
    return tuple(
        Twin(is_columnar, refuses if is_columnar else frozenset(), remembered=remembered)
        for is_columnar in (False, True)
    )  # type: ignore[return-value]


def models_of(policy: str) -> tuple[str, ...]:
    """Return the models that a policy asks: one, those whose answers are labels, or all."""
    return MODELS[:1] if policy == "single" else ("one", "three", "four") if policy in TOGETHER else MODELS[:3]


def application(name: str, policy: str, **changes: object) -> Application:
    """Return one that asks all models."""
    return replace(Application(name, models_of(policy), policy, default_output=-1, slo_ms=100.0), **changes)


CHANGES: tuple[dict[str, object], ...] = (
    {},
    {"slo_ms": 40.0},
    {"confidence_floor": 0.5},
    {"coverage": 0.9},
    {"models": ("one",)},
    {"policy": "ucb1"},
)


FORMS: tuple[dict[str, object], ...] = ({}, {"per_context": True}, {"per_context": True, "spread": True})


def test_plain_applications_go_by_columns_whatever_their_policy_draws() -> None:
    """Each policy that asks one model, with contexts and without."""
    for policy in POLICIES:
        for form in FORMS:
            twin = Twin(is_columnar=True)
            for name in MODELS:
                twin.configure(topics.MODELS, name, model(name), NOW)
            twin.configure(topics.APPLICATIONS, "digits", application("digits", policy, **form), NOW)
            twin.poll([FIRST], NOW)
            for offset in (1, 2):
                value = CODEC.encode(usual(f"plain-{offset}", np.ones(4, np.float32), sent_us=NOW))
                twin.poll([Batch(topics.QUERIES, 0, offset, offset + 1, batch(offset, [(None, value, [])]))], NOW)
            assert twin.kernel.statistics()["answers_by_columns_total{application=digits}"] >= 1


@settings(max_examples=60, deadline=None, print_blob=True)
@given(
    st.sampled_from(POLICIES),
    st.sampled_from(FORMS),
    POLLS,
    st.sampled_from([frozenset[str](), frozenset({"two"})]),
    st.sampled_from([8, 1_000]),
    st.randoms(),
)
def test_columns_and_the_rest_do_what_the_kernel_does_alone(
    policy: str, form: dict[str, object], polls: list[Any], refuses: frozenset[str], remembered: int, random: Any
) -> None:
    """Records by key, completions, dead letters and statistics are the same, whatever comes; so is what follows."""
    twins = both(refuses, remembered)
    for twin in twins:
        for name in MODELS:
            twin.configure(topics.MODELS, name, model(name), NOW)
        twin.configure(topics.APPLICATIONS, "digits", application("digits", policy, **form), NOW)
        twin.configure(topics.APPLICATIONS, "others", application("others", "exp4"), NOW)
        twin.poll([FIRST], NOW)
    offsets = [1] * PARTITIONS
    now_us = NOW
    for step, (groups, change, wait_us) in enumerate(polls):
        batches = []
        for partition, said in groups:
            made = batch(offsets[partition], said, since_ms=NOW // 1_000 - 97)
            begin = offsets[partition] + (random.randrange(len(said)) if random.random() < 0.2 else 0)
            batches.append(Batch(topics.QUERIES, partition, begin, offsets[partition] + len(said), made))
            offsets[partition] += len(said)
        for twin in twins:
            twin.poll(batches, now_us)
        now_us += wait_us
        for twin in twins:
            if change:
                changed = application("digits", policy, **(form | CHANGES[change]))
                twin.configure(topics.APPLICATIONS, "digits", changed, now_us)
            if change == 3:
                # When a state is read again is not said: columns read it for a copy of a query, too.
                twin.states[StateKey(state_partition("digits", PARTITIONS), "digits")] = learnt(policy, step)
                known = sorted(twins[0].fetched | twins[1].fetched)
                twin.perform(twin.kernel.on_states({key: twin.states.get(key) for key in known}, now_us), now_us)
            twin.perform(twin.kernel.on_timer(now_us), now_us)
        alone, columns = (twin.seen() for twin in twins)
        assert columns == alone


def learnt(policy: str, version: int) -> PolicyState:
    """Return a state that differs from the first one."""
    made = registry.create(policy)
    names = models_of(policy)
    values = made.init(len(names))
    return PolicyState(registry.spec(made), names, version + 1, tuple(values))


def test_an_id_under_another_token_is_another_query_within_a_poll_too() -> None:
    """What was the last token of an id decides, as each query comes to its turn."""
    twins = both()
    row = np.ones(4, np.float32)
    said = [usual("q", row, sent_us=NOW, reply_token=token) for token in ("token-1", "", "", "token-1", "token-1")]
    for twin in twins:
        for name in MODELS:
            twin.configure(topics.MODELS, name, model(name), NOW)
        twin.configure(topics.APPLICATIONS, "digits", application("digits", "single"), NOW)
        twin.poll([FIRST], NOW)
        twin.poll([Batch(topics.QUERIES, 1, 0, 1, batch(0, [(None, CODEC.encode(said[0]), [])]))], NOW)
        rest: list[Any] = [(None, CODEC.encode(one), []) for one in said[1:]]
        twin.poll([Batch(topics.QUERIES, 1, 1, 5, batch(1, rest))], NOW)
    alone, columns = (twin.seen() for twin in twins)
    assert columns == alone
    assert len(twins[0].said[1]) == 3


def test_a_model_that_gives_scores_is_asked_once_too_often_and_no_more() -> None:
    """From then on the kernel alone asks it, and the figures say why."""
    twin = Twin(is_columnar=True, has_scores=True)
    for name in MODELS:
        twin.configure(topics.MODELS, name, model(name), NOW)
    twin.configure(topics.APPLICATIONS, "digits", application("digits", "single"), NOW)
    twin.poll([FIRST], NOW)
    for offset in (1, 2, 3):
        value = CODEC.encode(usual(f"scored-{offset}", np.ones(4, np.float32), sent_us=NOW))
        twin.poll([Batch(topics.QUERIES, 0, offset, offset + 1, batch(offset, [(None, value, [])]))], NOW)
    assert twin.calls == 1
    assert twin.kernel.statistics()["not_by_columns{application=digits,why=scores}"] == 1.0
    assert len(twin.said[0]) == 4


def test_a_model_that_answers_several_tensors_is_too() -> None:
    """Columns have no place for them; every query has the kernel's answer."""
    twin = served("single")
    tensors = np.zeros(1, [("left", "<f4", (2,)), ("right", "<i8")])

    def ask(name: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int]:
        twin.calls += 1
        return Predicted((Outcome.OK,) * rows.shape[0], np.repeat(tensors, rows.shape[0])), 0

    twin.ask_now = ask  # type: ignore[method-assign]
    for offset in (1, 2, 3):
        value = CODEC.encode(usual(f"several-{offset}", np.ones(4, np.float32), sent_us=NOW))
        twin.poll([Batch(topics.QUERIES, 0, offset, offset + 1, batch(offset, [(None, value, [])]))], NOW)
    assert twin.calls == 1
    assert twin.kernel.statistics()["not_by_columns{application=digits,why=answers}"] == 1.0
    assert len(twin.said[0]) == 4


def served(policy: str, *, has_scores: bool = False, refuses: frozenset[str] = frozenset()) -> Twin:
    """Return selection behind columns, with an application whose form it knows."""
    twin = Twin(is_columnar=True, has_scores=has_scores, refuses=refuses)
    for name in MODELS:
        twin.configure(topics.MODELS, name, model(name), NOW)
    twin.configure(topics.APPLICATIONS, "digits", application("digits", policy), NOW)
    twin.poll([FIRST], NOW)
    return twin


def in_turns(count: int) -> Batch:
    """Return plain queries, and between any two one that is urgent."""
    asked = [usual(f"turn-{n}", np.ones(4, np.float32), sent_us=NOW, priority=n % 2) for n in range(count)]
    said: list[Any] = [(None, CODEC.encode(query), []) for query in asked]
    return Batch(topics.QUERIES, 0, 1, 1 + count, batch(1, said))


def left_of(twin: Twin) -> dict[str, float]:
    """Return how many queries were left to Python, by why."""
    figures = twin.kernel.statistics().items()
    return {
        name[len("queries_left_total{why=") : -1]: value for name, value in figures if name.startswith("queries_left")
    }


def test_scores_in_a_poll_of_several_runs_are_asked_for_once_too() -> None:
    """The rows of the later runs are the kernel's, and all are answered."""
    twin = served("exp3", has_scores=True)
    twin.poll([in_turns(7)], NOW)
    assert twin.calls == 1
    assert len(twin.said[0]) == 8


def in_context(query_id: str, context: str) -> tuple[None, bytes, list[Any]]:
    """Return a plain query as it is written."""
    return None, CODEC.encode(usual(query_id, np.ones(4, np.float32), context=context, sent_us=NOW)), []


@pytest.mark.parametrize(("remembered", "by_columns"), [(1_000, 13), (20, 0)])
def test_new_contexts_between_others_make_no_turns(remembered: int, by_columns: int) -> None:
    """What waits for its state goes to the kernel behind all others, unless ids may be forgotten meanwhile."""
    twins = both(remembered=remembered)
    for twin in twins:
        twin.configure(topics.MODELS, "one", model("one"), NOW)
        twin.configure(topics.MODELS, "two", model("two"), NOW)
        given = application("digits", "exp3", per_context=True, models=("one", "two"))
        twin.configure(topics.APPLICATIONS, "digits", given, NOW)
        twin.poll([FIRST], NOW)
        twin.poll([Batch(topics.QUERIES, 0, 1, 2, batch(1, [in_context("known", "known")]))], NOW)
        said = [in_context(f"q{number}", "known" if number % 2 else f"new-{number}") for number in range(24)]
        said += [in_context("again", "known"), in_context("again", "new-24")]
        twin.poll([Batch(topics.QUERIES, 0, 2, 2 + len(said), batch(2, said))], NOW)
    alone, columns = (twin.seen() for twin in twins)
    assert columns == alone
    assert twins[1].kernel.statistics().get("answers_by_columns_total{application=digits}", 0.0) == by_columns


@pytest.mark.parametrize("contexts", [("known", "new"), ("new", "known")])
def test_of_two_copies_the_first_counts_though_its_state_is_to_be_read(contexts: tuple[str, str]) -> None:
    """A query that waits for its state keeps its place where another under its id does not wait."""
    twins = both(remembered=1_000)
    for twin in twins:
        twin.configure(topics.MODELS, "one", model("one"), NOW)
        given = application("digits", "single", per_context=True, models=("one",))
        twin.configure(topics.APPLICATIONS, "digits", given, NOW)
        twin.poll([FIRST], NOW)
        twin.poll([Batch(topics.QUERIES, 0, 1, 2, batch(1, [in_context("known", "known")]))], NOW)
        said = [in_context("twice", context) for context in contexts]
        twin.poll([Batch(topics.QUERIES, 0, 2, 4, batch(2, said))], NOW)
    alone, columns = (twin.seen() for twin in twins)
    assert columns == alone
    assert len(twins[1].said[0]) == 3


def late(query_id: str, ago_us: int) -> tuple[None, bytes, list[Any]]:
    """Return a plain query that was sent so long ago, as it is written."""
    return None, CODEC.encode(usual(query_id, np.ones(4, np.float32), sent_us=NOW - ago_us)), []


def test_queries_whose_time_was_over_are_answered_by_columns_too_and_make_no_turns() -> None:
    """By default, each with how long ago it was sent: else a role that is behind would fall back further."""
    twins = both(remembered=1_000)
    said = [late(f"q{number}", number % 2 * (100_000 + 7_000_000 * number)) for number in range(24)]
    said += [late("q1", 100_000), late("stamped", NOW)]
    sent_ms = (NOW - 200_000) // 1_000 - len(said)
    for twin in twins:
        twin.configure(topics.MODELS, "one", model("one"), NOW)
        twin.configure(topics.APPLICATIONS, "digits", application("digits", "single"), NOW)
        twin.poll([FIRST], NOW)
        twin.poll([Batch(topics.QUERIES, 0, 1, 1 + len(said), batch(1, said, since_ms=sent_ms))], NOW)
    alone, columns = (twin.seen() for twin in twins)
    assert columns == alone
    assert left_of(twins[1]) == {"application": 1.0}  # the first of all
    decoded = [CODEC.decode(Prediction, value) for _, value, _ in twins[1].said[0]]
    assert [each.reason for each in decoded].count("expired") == 14  # with the first of all, and one more by its record
    assert "sent 201 ms ago by its record's time" in {each.message for each in decoded}


@pytest.mark.parametrize("ages", [(0, 200_000), (200_000, 0), (200_000, 300_000)])
def test_of_two_copies_the_first_counts_though_one_came_too_late(ages: tuple[int, int]) -> None:
    """A late query keeps its place where another under its id is not late."""
    twins = both(remembered=1_000)
    for twin in twins:
        twin.configure(topics.MODELS, "one", model("one"), NOW)
        twin.configure(topics.APPLICATIONS, "digits", application("digits", "single"), NOW)
        twin.poll([FIRST], NOW)
        said = [late("twice", ago_us) for ago_us in ages]
        twin.poll([Batch(topics.QUERIES, 0, 1, 3, batch(1, said))], NOW)
    alone, columns = (twin.seen() for twin in twins)
    assert columns == alone
    assert len(twins[1].said[0]) == 2


def test_a_batch_that_a_model_was_to_have_is_not_lost_in_a_call_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model's kernel outlives what selection remembers, and waits for the batch."""
    twin, calls = served("single"), []
    answer = twin.ask_now

    def fails_again(name: str, copy: int, rows: Tensor, patience_us: int) -> tuple[Predicted, int] | None:
        calls.append(name)
        if len(calls) == 2:
            raise RuntimeError("not this time")
        return answer(name, copy, rows, patience_us)

    monkeypatch.setattr(twin, "ask_now", fails_again)
    with pytest.raises(RuntimeError, match="not this time"):
        twin.kernel.on_records([in_turns(3)], NOW)  # type: ignore[list-item]
    assert twin.kernel.needs().deadline_us == 0
    (batch_of,) = [effect for effect in twin.kernel.on_timer(NOW) if isinstance(effect, Predict)]
    assert len(batch_of.rows) == 1
    assert not [effect for effect in twin.kernel.on_timer(NOW) if isinstance(effect, Predict)]


def test_each_query_that_is_left_is_counted_once_by_why() -> None:
    """Be it for its bytes, a model that does not answer at once, or a poll with too many turns."""
    twin = served("single", refuses=frozenset({"one"}))
    before = left_of(twin)
    assert sum(before.values()) == 1  # from it columns learnt the form
    twin.poll([in_turns(5)], NOW)
    assert left_of(twin) == {**before, "fields": 2, "model": 3}
    other = served("single")
    other.poll([in_turns(20)], NOW)
    assert left_of(other) == {**before, "fields": 10, "turns": 10}


@pytest.mark.parametrize("odd", [np.uint64(2**63), np.float64("nan"), np.float32("-inf")])
def test_answers_that_no_record_holds_are_left_to_the_kernel(monkeypatch: pytest.MonkeyPatch, odd: np.generic) -> None:
    """Columns copy numbers as they lie, and would write others."""
    twin = served("single")
    before = left_of(twin)
    monkeypatch.setitem(
        globals(), "answers", lambda _, rows: Predicted((Outcome.OK,) * len(rows), np.full(len(rows), odd))
    )
    twin.poll([in_turns(5)], NOW)
    assert left_of(twin) == {**before, "fields": 2, "model": 3}


def test_figures_say_why_an_application_does_not_go_by_columns() -> None:
    """In a word."""
    twin = Twin(is_columnar=True)
    for name in MODELS:
        twin.configure(topics.MODELS, name, model(name), NOW)
    cases: dict[str, dict[str, object]] = {
        "coverage": {"coverage": 0.9},
        "versions": {"versions": {"one": "7"}},
        "workers": {"models": ("one", "elsewhere")},
    }
    for why, changes in cases.items():
        twin.configure(topics.APPLICATIONS, f"app-{why}", application(f"app-{why}", "exp3", **changes), NOW)
    twin.configure(topics.APPLICATIONS, "app-policy", application("app-policy", "linucb"), NOW)
    twin.poll([FIRST], NOW)
    said = {name for name in twin.kernel.statistics() if name.startswith("not_by_columns")}
    assert said == {
        "not_by_columns{application=app-policy,why=policy}",
        "not_by_columns{application=app-coverage,why=coverage}",
        "not_by_columns{application=app-versions,why=versions}",
        "not_by_columns{application=app-workers,why=workers}",
    }
