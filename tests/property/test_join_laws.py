"""Laws of joining and learning: whatever the order, the copies and the crashes, each query is learnt once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import Application, Decision, Feedback, ModelOutput, Observations, Outcome, Prediction, Status
from streams.operators.contract import Emit, Record, Skip
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.testing import Crash, Delay, Duplicate, Fault, Reorder
from tests.loops import CODEC, Loop, digits

if TYPE_CHECKING:
    from streams.operators.contract import Effects

SECOND_US = 1_000_000
QUERIES = 8
FAULTS = st.one_of(
    st.builds(Crash, st.integers(0, 40 * SECOND_US), st.sampled_from(["joiner", "learner"])),
    st.builds(Duplicate, st.sampled_from([topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS])),
    st.builds(Delay, st.just(topics.PREDICTIONS), st.integers(1_000, 4 * SECOND_US)),
    st.builds(Reorder, st.sampled_from([topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS])),
)
# For each query: a wrong label first? how many right ones? when (s)?
TOLD = st.lists(
    st.tuples(st.booleans(), st.integers(0, 3), st.sampled_from([0.0, 0.3, 2.0])), min_size=QUERIES, max_size=QUERIES
)


@settings(max_examples=30, deadline=None)
@given(st.lists(FAULTS, max_size=5), TOLD)
def test_each_query_is_learnt_exactly_once(faults: list[Fault], told: list[tuple[bool, int, float]]) -> None:
    """By its feedback, or by the default loss at its window's end."""
    given_digits = digits(policy="exp3", window_s=20.0, default_loss=0.5)
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, given_digits, faults)
    for is_wrong_first, copies, after_s in told:
        query_id = loop.query()
        loop.driver.run(after_s)
        if is_wrong_first:
            loop.feedback(query_id, label="seven")
        for _ in range(copies):
            loop.feedback(query_id, label=7)
    loop.driver.run(90)

    assert {seen.query_id for _, seen in loop.observations()} == {f"q{number}" for number in range(1, QUERIES + 1)}
    assert sum(state.version for state in loop.driver.store.states.values()) == QUERIES
    for topic in (topics.PREDICTIONS, topics.FEEDBACK):
        assert loop.driver.committed("joiner", topic, 0) == len(loop.driver.read(topic))


DECISION = Decision((0,), 0, "app", "exp3", ("good", "bad"), (0.5, 0.5))
# Predictions, with a decision or without; feedback that is right, wrong, of no use, or no record; copies of all of it.
SENT = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from([DECISION, None, 7, 3, "seven", b"broken"])), max_size=40
)


def sent(query_id: str, what: object, offset: int) -> Record:
    """Make the record of a prediction (of a decision, or None) or of feedback (of a label, or bytes that are none)."""
    if what is None or isinstance(what, Decision):
        outputs = (ModelOutput("good", "1", Outcome.OK, 7, None),)
        value: object = Prediction(query_id, "app", None, what, Status.COMPLETE, None, 7, 1.0, outputs, 0, 0, 0, 0)
        return Record(topics.PREDICTIONS, 0, offset, 0, None, CODEC.encode(value))
    told = CODEC.encode(Feedback(query_id, 7 if isinstance(what, bytes) else what))  # type: ignore[arg-type]
    return Record(topics.FEEDBACK, 0, offset, 0, None, told[:-2] if isinstance(what, bytes) else told)


def told_apart(effects: Effects) -> list[str]:
    """Return each observation, what it completes, and every other effect: observations made at once share a record."""
    apart: list[object] = []
    for effect in effects:
        if isinstance(effect, Emit) and effect.topic == topics.OBSERVATIONS:
            seen = CODEC.decode(Observations, effect.value).items
            assert len(effect.completes) == 2 * len(seen) or len(seen) == 1
            apart += [(effect.partition, effect.key, each) for each in seen] + [*effect.completes]
        else:
            apart.append(effect)
    return [repr(each) for each in apart]


@settings(max_examples=100, deadline=None)
@given(SENT, st.sampled_from(["zero_one", "absolute"]), st.sampled_from([4, 1_000]))
def test_what_becomes_of_a_record_does_not_depend_on_what_was_polled_with_it(
    given_all: list[tuple[str, object]], loss: str, room: int
) -> None:
    """A poll is worked through together, with the outcome of one record after the other; spans are learnt likewise."""
    settings = JoinerSettings(1, 60_000_000, 5_000_000, predictions=1_000, feedback=room)
    together, alone = (Joiner(CODEC, settings) for _ in range(2))
    application = CODEC.encode(Application("app", ("good", "bad"), loss=loss))
    for joiner in (together, alone):
        joiner.on_records([Record(topics.APPLICATIONS, 0, 0, 0, b"app", application)], 0)
    records = [sent(query_id, what, offset) for offset, (query_id, what) in enumerate(given_all)]
    ends = range(0, 200_000_000, 5_000_000)
    found = together.on_records(records, 0) + [effect for end in ends for effect in together.on_timer(end)]
    expected = [effect for record in records for effect in alone.on_records([record], 0)]
    expected += [effect for end in ends for effect in alone.on_timer(end)]

    assert sorted(told_apart(found)) == sorted(told_apart(expected))
    assert together.statistics() == alone.statistics()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([200, 3_000])), max_size=60), st.integers(2, 40))
def test_each_record_is_kept_joined_or_told_of_whatever_the_room(given_all: list[tuple[str, int]], room: int) -> None:
    """Nothing is lost in silence: in the end every position is complete, and no room is taken."""
    joiner = Joiner(CODEC, JoinerSettings(1, 60_000_000, 5_000_000, room, room, large_bytes=40_000))
    done: list[object] = []
    records = []
    for offset, (query_id, size) in enumerate(given_all):
        told = CODEC.encode(Feedback(query_id + "x" * 100, "x" * size))
        records.append(Record(topics.FEEDBACK, 0, offset, 0, None, told))
        asked = sent(query_id + "x" * 100 if size == 200 else f"{query_id}{offset}", DECISION, offset)
        records.append(asked)
    for effect in [*joiner.on_records(records, 0), *joiner.on_timer(6_000_000), *joiner.on_timer(60_000_000)]:
        done += effect.completes if isinstance(effect, Emit | Skip) else [effect.record.position]  # type: ignore[union-attr]

    assert sorted(done) == sorted(record.position for record in records)  # type: ignore[type-var]
    found = joiner.statistics()
    assert [found[f"{what}_waiting"] for what in ("predictions", "feedback", "shadows")] == [0, 0, 0]
    assert [found[f"large_bytes{{of={what}}}"] for what in ("predictions", "feedback", "shadows")] == [0, 0, 0]
