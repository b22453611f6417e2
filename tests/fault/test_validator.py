"""The validator itself: it accepts a clean run, and sees every single thing that can be wrong."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas.codec import Codec
from schemas.records import Decision, JoinStatus, ModelOutput, Observation, Outcome, PolicyState, Prediction, Status
from streams.operators.learn.fold import fold
from streams.testing.validator import ObservationLog, RunEvidence, Stored, doubled, faults

if TYPE_CHECKING:
    from collections.abc import Callable

CODEC = Codec()
WINDOW_US = 60_000_000
SPEC = "exp3(eta=0.05,gamma=0.05,share=0.0001)"
DECISION = Decision((0,), 0, "sums", SPEC, ("right", "wrong"), (0.5, 0.5))
IDS = [f"q{number}" for number in range(6)]


def prediction(query_id: str, decision: Decision | None = DECISION) -> Prediction:
    """Return an answer of 1."""
    output = ModelOutput("right", "1", Outcome.OK, 1)
    return Prediction(query_id, "sums", None, decision, Status.COMPLETE, None, 1, 1.0, (output,), 0, 0, 0, 0)


def observation(query_id: str, label: int = 0) -> Observation:
    """Return what is learnt from the answer 1 and a label."""
    losses = (float(label != 1), None)
    return Observation(query_id, "sums", None, DECISION, losses, losses[0], label, JoinStatus.JOINED, 0, 0)


def logged(ids: list[str]) -> ObservationLog:
    """Return a log of these ids, one a second."""
    return ObservationLog(
        [(number * 1_000_000, observation(query_id)) for number, query_id in enumerate(ids)], len(ids)
    )


def stored(log: ObservationLog) -> Stored:
    """Return what a learner leaves behind."""
    states = fold(log.observations, WINDOW_US)
    return Stored(log.end, {name: CODEC.encode(state) for name, state in states.items()})


# Six queries; the last one was answered without a decision, so that nothing can be learnt from it.
LOG = logged(IDS[:5])
CLEAN = RunEvidence(
    asked=frozenset(IDS),
    garbage=frozenset({b"garbage"}),
    told=dict.fromkeys(IDS, 0),
    predictions=[*map(prediction, IDS[:5]), prediction(IDS[5], None)],
    log={0: LOG},
    stored={0: stored(LOG), 1: Stored(None, {})},
    dead=[b"garbage"],
    window_us=WINDOW_US,
)


def test_a_clean_run_has_no_faults() -> None:
    """Partitions without lessons store nothing; a query without a decision teaches nothing."""
    assert faults(CLEAN) == []


def test_what_is_there_twice_is_no_fault_as_long_as_it_counts_once() -> None:
    """Delivery is at least once: predictions, dead letters and observations may come again."""
    again = logged([*IDS[:5], IDS[2], IDS[2]])
    twice = replace(CLEAN, predictions=[*CLEAN.predictions] * 2, dead=[b"garbage"] * 3, log={0: again})
    assert faults(replace(twice, stored={0: stored(again)})) == []


def test_feedback_belongs_to_the_first_answer() -> None:
    """A query that was read again may be answered with a decision; the joiner has closed it by then."""
    assert faults(replace(CLEAN, predictions=[*CLEAN.predictions, prediction(IDS[5])])) == []


def _nudged(state: bytes) -> bytes:
    """Return a state whose first number is the next one that a float can be."""
    read = CODEC.decode(PolicyState, state)
    return CODEC.encode(read._replace(values=(math.nextafter(read.values[0], 0.0), *read.values[1:])))


def _recounted(state: bytes) -> bytes:
    read = CODEC.decode(PolicyState, state)
    return CODEC.encode(read._replace(version=read.version + 1))


def _with_state(change: Callable[[bytes], bytes]) -> RunEvidence:
    clean = CLEAN.stored[0]
    return replace(CLEAN, stored={0: Stored(clean.offset, {"sums": change(clean.states["sums"])})})


TWICE = logged([*IDS[:5], IDS[0]])
OTHER_LABEL = ObservationLog([*LOG.observations[:4], (4, observation(IDS[4], 1))], 5)


@pytest.mark.parametrize(
    ("evidence", "sentence"),
    [
        (replace(CLEAN, predictions=CLEAN.predictions[:5]), "1 queries have no answer, e.g. 'q5'"),
        (replace(CLEAN, predictions=[*CLEAN.predictions, prediction("x")]), "1 answers to nobody's query, e.g. 'x'"),
        (replace(CLEAN, dead=[]), "1 pieces of garbage are no dead letters, e.g. b'garbage'"),
        (replace(CLEAN, dead=[b"garbage", b"good"]), "1 good records are dead letters, e.g. b'good'"),
        (
            replace(CLEAN, log={0: logged(IDS[:4])}, stored={0: stored(logged(IDS[:4]))}),
            "1 feedbacks were not learnt, e.g. 'q4'",
        ),
        (replace(CLEAN, told=dict.fromkeys(IDS[1:], 0)), "1 lessons without feedback, e.g. 'q0'"),
        (
            replace(CLEAN, log={0: OTHER_LABEL}, stored={0: stored(OTHER_LABEL)}),
            "1 lessons have another label than their feedback, e.g. 'q4'",
        ),
        (_with_state(_recounted), "6 lessons stored for 'sums' from 5 observed queries"),
        (_with_state(_nudged), "1 states of partition 0 are not the fold of the log, e.g. 'sums'"),
        (replace(CLEAN, stored={0: Stored(5, {})}), "1 states of partition 0 are not the fold of the log, e.g. 'sums'"),
        (
            replace(CLEAN, stored={**CLEAN.stored, 1: CLEAN.stored[0]}),
            "1 states of partition 1 are not the fold of the log, e.g. 'sums'",
        ),
        (
            replace(CLEAN, stored={0: replace(CLEAN.stored[0], offset=4)}),
            "partition 0 is stored up to offset 4, its log ends at 5",
        ),
        # One id applied twice: a learner that forgot what it had seen (a window of nothing).
        (
            replace(
                CLEAN,
                log={0: TWICE},
                stored={0: Stored(6, {n: CODEC.encode(s) for n, s in fold(TWICE.observations, 0).items()})},
            ),
            "6 lessons stored for 'sums' from 5 observed queries",
        ),
    ],
)
def test_every_fault_is_seen(evidence: RunEvidence, sentence: str) -> None:
    """Each is planted alone; the bits of one float count, too."""
    assert sentence in faults(evidence)


def default(query_id: str) -> Observation:
    """Return what is learnt where a window ends without feedback."""
    losses = (1.0, None)
    return Observation(query_id, "sums", None, DECISION, losses, 1.0, None, JoinStatus.DEFAULT, 0, 0)


# Of six queries one was told too late and is a dead letter, one was told nothing; one more was never acknowledged.
RICH_LOG = ObservationLog([*LOG.observations[:3], (3_000_000, default(IDS[3])), (4_000_000, default(IDS[4]))], 5)
RICH = replace(
    CLEAN,
    told=dict.fromkeys((*IDS[:4], IDS[5]), 0),
    predictions=[*CLEAN.predictions, prediction("lost-ack")],
    log={0: RICH_LOG},
    stored={0: stored(RICH_LOG), 1: Stored(None, {})},
    perhaps=frozenset({"lost-ack", "never-came"}),
    late=frozenset({IDS[3]}),
    stray=frozenset({"stray"}),
    expired=frozenset({IDS[4], IDS[5]}),
    refused=frozenset({IDS[3], "stray"}),
    replied=frozenset({IDS[0]}),
    behind={"joiner at feedback-0": 0},
    unrecorded={"queries": 0},
)


def relogged(*observations: tuple[int, Observation]) -> RunEvidence:
    """Return the evidence with another log, whose fold is stored."""
    log = ObservationLog(observations, len(observations))
    return replace(RICH, log={0: log}, stored={0: stored(log), 1: Stored(None, {})})


def test_feedback_has_one_of_four_ends() -> None:
    """Joined; a dead letter after its window, or of nobody's query; and a window that nobody told anything."""
    assert faults(RICH) == []
    assert doubled(RICH) == {"predictions": 0, "observations": 0}


def test_late_feedback_may_be_joined_where_its_window_was_held_open() -> None:
    """After an outage the joiner reads feedback before it ends windows; then it is no dead letter."""
    joined = relogged(*RICH_LOG.observations[:3], (3, observation(IDS[3])), (4, default(IDS[4])))
    assert faults(replace(joined, refused=frozenset({"stray"}))) == []


def test_what_is_doubled_is_counted() -> None:
    """The crash matrix shows how often a crash made something again."""
    again = relogged(*RICH_LOG.observations, RICH_LOG.observations[0], RICH_LOG.observations[0])
    twice = replace(again, predictions=[*RICH.predictions, RICH.predictions[0]])
    assert faults(twice) == []
    assert doubled(twice) == {"predictions": 1, "observations": 2}


@pytest.mark.parametrize(
    ("evidence", "sentence"),
    [
        (replace(RICH, perhaps=frozenset()), "1 answers to nobody's query, e.g. 'lost-ack'"),
        (replace(RICH, replied=frozenset({"r"})), "1 replies over HTTP without an answer, e.g. 'r'"),
        (replace(RICH, refused=frozenset({"stray"})), "1 feedbacks were not learnt, e.g. 'q3'"),
        (replace(RICH, refused=frozenset({IDS[3]})), "1 feedbacks on nobody's query are no dead letters, e.g. 'stray'"),
        (replace(RICH, late=frozenset()), "1 feedbacks came in time, and a default loss was learnt, e.g. 'q3'"),
        (replace(RICH, late=frozenset()), "1 feedbacks that came in time are dead letters, e.g. 'q3'"),
        (
            replace(RICH, refused=RICH.refused | {IDS[0]}),
            "1 feedbacks were learnt and are dead letters, too, e.g. 'q0'",
        ),
        (relogged(*RICH_LOG.observations[:4]), "1 windows without feedback taught no default loss, e.g. 'q4'"),
        (replace(RICH, behind={"joiner at feedback-0": 3}), "joiner at feedback-0 is 3 records behind"),
        (replace(RICH, unrecorded={"queries": 2}), "the trace lacks 2 records of queries"),
    ],
)
def test_every_fault_of_harsher_runs_is_seen(evidence: RunEvidence, sentence: str) -> None:
    """Each is planted alone."""
    assert sentence in faults(evidence)


def test_where_records_went_away_nothing_that_is_missing_is_a_fault_and_nothing_counts_twice_all_the_same() -> None:
    """A topic was deleted: what is not there cannot be blamed on anybody, a lesson that was applied twice can."""
    log = logged(IDS[:2])
    gone = replace(RICH, predictions=RICH.predictions[:1], log={0: log}, stored={0: stored(log)}, is_lossy=True)
    assert faults(gone) == []
    again = logged([*IDS[:2], IDS[0]])
    twice = Stored(3, {name: CODEC.encode(state) for name, state in fold(again.observations, 0).items()})
    assert "3 lessons stored for 'sums' from 2 observed queries" in faults(
        replace(gone, log={0: again}, stored={0: twice})
    )
    assert "1 answers to nobody's query, e.g. 'x'" in faults(replace(gone, predictions=[prediction("x")]))


def test_lessons_are_counted_without_the_fold() -> None:
    """A learner and a fold that forget in the same way agree with each other; the count does not."""
    forgotten = Stored(6, {n: CODEC.encode(s) for n, s in fold(TWICE.observations, 0).items()})
    agreed = replace(CLEAN, log={0: TWICE}, stored={0: forgotten}, window_us=0)
    assert faults(agreed) == ["6 lessons stored for 'sums' from 5 observed queries"]


MAPPED = replace(CLEAN, mapped=frozenset({"sums"}), written=[(query_id, 1) for query_id in (*IDS, IDS[0])])


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        (MAPPED.written[1:-1], "1 answers are not in their topic, e.g. 'q0'"),
        ([*MAPPED.written, ("q1", 7)], "1 records of answers say what no prediction says, e.g. 'q1'"),
        ([*MAPPED.written, ("x", 1)], "1 records of answers say what no prediction says, e.g. 'x'"),
    ],
)
def test_an_answer_that_goes_to_others_is_there_as_it_was_given(
    written: list[tuple[str, object]], sentence: str
) -> None:
    """It may be there twice, and an application without such a topic has none."""
    assert faults(MAPPED) == []
    assert faults(replace(CLEAN, mapped=frozenset({"other"}))) == []
    assert faults(replace(MAPPED, written=written)) == [sentence]
