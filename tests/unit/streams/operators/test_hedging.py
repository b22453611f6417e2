"""A model that takes longer than usual is asked again in another partition: the first answer counts, tokens pay."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.tokens import MOST, Tokens
from schemas import topics
from schemas.records import ModelQueries, Outcome, Prediction, Query, Status
from streams.operators.contract import Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from tests.loops import CODEC, digits, model_predictions, row, version

if TYPE_CHECKING:
    from streams.operators.contract import Effects

NOW = 1_700_000_000_000_000
MS = 1_000
USUAL_MS = 10


class Hedged:
    """A selection kernel in front of a model with four partitions, a twentieth of whose questions may be put twice."""

    def __init__(
        self, hedge: float = 0.05, policy: str = "single", models: tuple[str, ...] = ("m",), cache_bytes: int = 0
    ) -> None:
        self.now_us, self._sent = NOW, 0
        self.kernel = Selection(CODEC, SelectionSettings(1, cache_bytes=cache_bytes))
        self.kernel.on_partitions({0: 0})
        application = digits(models=models, policy=policy, hedge=hedge)
        records = [(topics.APPLICATIONS, b"digits", CODEC.encode(application))]
        records += [(topics.MODELS, m.encode(), CODEC.encode(replace(version(m), partitions=4))) for m in models]
        for topic, key, value in records:
            self._fetched(self.kernel.on_records([Record(topic, 0, 0, NOW, key, value)], NOW))
        self.predictions: list[Prediction] = []

    def _fetched(self, effects: Effects) -> Effects:
        wanted = [key for effect in effects if isinstance(effect, FetchStates) for key in effect.keys]
        return effects + self.kernel.on_states(dict.fromkeys(wanted), self.now_us) if wanted else effects

    def ask(self, query_id: str, given: float = 0.0) -> list[tuple[str, int, int]]:
        """Ask now; returns where models are asked: topic, partition, step."""
        value = CODEC.encode(Query(query_id, "digits", row(given), None, self.now_us))
        self._sent += 1
        record = Record(topics.QUERIES, 0, self._sent, self.now_us, None, value)
        return self._said(self._fetched(self.kernel.on_records([record], self.now_us)))

    def land(
        self, query_id: str, answer: int = 7, step: int = 0, model: str = "m", outcome: Outcome = Outcome.OK
    ) -> list[tuple[str, int, int]]:
        """Let a model answer a question."""
        batch = model_predictions(model, {query_id: answer}, outcome)._replace(steps=(step,))
        record = Record(topics.MODEL_PREDICTIONS, 0, 0, self.now_us, None, CODEC.encode(batch))
        return self._said(self.kernel.on_records([record], self.now_us))

    def wait(self, ms: float) -> list[tuple[str, int, int]]:
        """Let time pass."""
        self.now_us += int(ms * MS)
        return self._said(self.kernel.on_timer(self.now_us))

    def warm(self, queries: int) -> None:
        """Answer queries, each after the usual time."""
        for number in range(queries):
            self.ask(f"warm-{number}", number + 1.0)
            self.wait(USUAL_MS)
            self.land(f"warm-{number}")

    def counted(self, outcome: str) -> float:
        """Return how many questions that took long came out so."""
        return self.kernel.statistics().get(f"hedges_total{{application=digits,model=m,outcome={outcome}}}", 0.0)

    def _said(self, effects: Effects) -> list[tuple[str, int, int]]:
        made = [effect for effect in effects if isinstance(effect, Emit)]
        answers = [effect for effect in made if effect.topic == topics.PREDICTIONS]
        self.predictions += [CODEC.decode(Prediction, effect.value) for effect in answers]
        asked = [effect for effect in made if effect.topic.startswith("models.")]
        return [(each.topic, each.partition, CODEC.decode(ModelQueries, each.value).step) for each in asked]


def test_what_takes_longer_than_usual_is_asked_again_half_the_partitions_further_on() -> None:
    """By the same id; the answer that comes first is given, and the other one changes nothing."""
    hedged = Hedged()
    hedged.warm(240)
    ((_, first, step),) = hedged.ask("slow")
    assert step == 0
    assert hedged.wait(USUAL_MS - 2) == []
    assert hedged.wait(3) == [(topics.model_queries("m"), (first + 2) % 4, 1)]
    hedged.land("slow", answer=7, step=1)
    hedged.land("slow", answer=3, step=0)
    made = hedged.predictions[-1]
    assert (made.query_id, made.answer, made.status, made.confidence) == ("slow", 7, Status.COMPLETE, 1.0)
    assert [(taken.kind, taken.arms, taken.outcome) for taken in made.steps] == [("hedge", (0,), "asked")]
    assert len([one for one in hedged.predictions if one.query_id == "slow"]) == 1
    assert (hedged.counted("asked"), hedged.counted("won")) == (1.0, 1.0)


def test_what_is_answered_in_the_usual_time_is_not_asked_again() -> None:
    """Nor is it written down that it might have been."""
    hedged = Hedged()
    hedged.warm(40)
    assert hedged.predictions[-1].steps == ()
    assert hedged.counted("asked") == 0.0


def test_half_of_the_tokens_is_kept_for_what_takes_twice_as_long() -> None:
    """After few answers a question waits twice the usual time before it is put again."""
    hedged = Hedged()
    hedged.warm(40)
    hedged.ask("slow")
    assert hedged.wait(USUAL_MS + 1) == []
    assert [step for _, _, step in hedged.wait(USUAL_MS + 2)] == [1]


def test_a_full_outage_costs_no_more_than_the_tokens_held() -> None:
    """500 answers have earned twenty tokens at most; of 100 questions without any answer no more are put twice."""
    hedged = Hedged()
    hedged.warm(500)
    again = 0
    for number in range(240):
        hedged.ask(f"lost-{number}")
        again += sum(step for _, _, step in hedged.wait(1))
    assert 0 < again == hedged.counted("asked") <= MOST


def test_there_is_no_second_question_without_time_for_an_answer() -> None:
    """Models that take the whole deadline are not asked again just before it."""
    hedged = Hedged()
    for number in range(40):
        hedged.ask(f"long-{number}")
        hedged.wait(90)
        hedged.land(f"long-{number}")
    hedged.ask("slow")
    assert hedged.wait(91) == []
    assert hedged.counted("late") == 1.0


def test_of_several_models_only_those_that_are_missing_are_asked_again() -> None:
    """Each for a token of its own; the vote is the same as without."""
    hedged = Hedged(policy="exp4", models=("m", "n"))
    for number in range(240):
        hedged.ask(f"warm-{number}")
        hedged.wait(USUAL_MS)
        hedged.land(f"warm-{number}")
        hedged.land(f"warm-{number}", model="n")
    hedged.ask("slow")
    hedged.land("slow", model="n")
    assert [topic for topic, _, _ in hedged.wait(USUAL_MS + 1)] == [topics.model_queries("m")]
    hedged.land("slow", step=1)
    assert hedged.predictions[-1].status is Status.COMPLETE


def test_nothing_is_asked_again_where_the_application_does_not_say_so() -> None:
    """It costs work, so it is off by default."""
    hedged = Hedged(hedge=0.0)
    hedged.warm(40)
    hedged.ask("slow")
    assert hedged.wait(USUAL_MS + 5) == []


@given(st.lists(st.integers(0, 3)), st.floats(0.0, 1.0))
def test_no_more_is_spent_than_a_share_of_the_answers(turns: list[int], share: float) -> None:
    """Whatever the order of answers and questions; never more than `MOST` at once without an answer."""
    tokens, answers, spent, at_once = Tokens(), 0, 0, 0
    for turn in turns:
        if turn:
            tokens, answers, at_once = tokens.earn(share, turn), answers + turn, 0
        elif (left := tokens.spend()) is not None:
            tokens, spent, at_once = left, spent + 1, at_once + 1
        assert at_once <= MOST
        assert spent <= share * answers + 1e-9


WITHOUT = (Outcome.FAILED, Outcome.EXPIRED, Outcome.INVALID)


def asked_twice(**how: object) -> Hedged:
    """Return a loop in which `q` has been asked twice and not answered."""
    loop = Hedged(**how)  # type: ignore[arg-type]
    loop.warm(240)
    loop.ask("q")
    assert loop.wait(USUAL_MS + 1)
    loop.predictions.clear()
    return loop


@pytest.mark.parametrize("outcome", WITHOUT)
@pytest.mark.parametrize("first", [0, 1])
def test_a_copy_that_fails_leaves_the_answer_to_the_other(outcome: Outcome, first: int) -> None:
    """Whichever comes first, and whatever it says instead of an answer."""
    loop = asked_twice()
    loop.land("q", step=first, outcome=outcome)
    assert loop.predictions == []
    loop.land("q", step=1 - first)
    (made,) = loop.predictions
    assert (made.status, made.answer) == (Status.COMPLETE, 7)


@pytest.mark.parametrize("outcome", WITHOUT)
def test_the_default_comes_when_both_copies_are_through(outcome: Outcome) -> None:
    """At once then: nothing more can come. The same failure told twice is one copy."""
    loop = asked_twice()
    loop.land("q", outcome=outcome)
    loop.land("q", outcome=outcome)
    assert loop.predictions == []
    loop.land("q", step=1, outcome=outcome)
    (made,) = loop.predictions
    assert (made.status, made.outputs[0].outcome) == (Status.DEFAULT, outcome)


@pytest.mark.parametrize("outcome", WITHOUT)
def test_a_copy_that_fails_never_takes_the_place_of_an_answer(outcome: Outcome) -> None:
    """Of an ensemble, which still waits for another model when the worse copy comes."""
    loop = Hedged(policy="exp4", models=("m", "n"))
    for number in range(240):
        loop.ask(f"warm-{number}", number + 1.0)
        loop.wait(USUAL_MS)
        loop.land(f"warm-{number}")
        loop.land(f"warm-{number}", model="n")
    loop.ask("q")
    assert loop.wait(USUAL_MS + 1)
    loop.predictions.clear()
    loop.land("q", 7, step=1)
    loop.land("q", outcome=outcome)
    loop.land("q", 3, model="n")
    (made,) = loop.predictions
    assert [(output.outcome, output.answer) for output in made.outputs] == [(Outcome.OK, 7), (Outcome.OK, 3)]


def test_a_failed_copy_and_a_silent_one_are_the_default_at_the_deadline() -> None:
    """Nobody waits any longer than for an answer that was asked for once."""
    loop = asked_twice()
    loop.land("q", outcome=Outcome.FAILED)
    loop.wait(100)
    (made,) = loop.predictions
    assert made.status is Status.DEFAULT


@pytest.mark.parametrize("outcome", WITHOUT)
def test_who_waits_for_the_same_output_waits_for_both_copies(outcome: Outcome) -> None:
    """With a cache the second query with an input is not asked itself: a failed copy fails neither of the two."""
    loop = asked_twice(cache_bytes=1 << 20)
    assert loop.ask("follower") == []
    loop.land("q", outcome=outcome)
    assert loop.predictions == []
    loop.land("q", step=1)
    assert {made.query_id: made.answer for made in loop.predictions} == {"q": 7, "follower": 7}


@pytest.mark.parametrize("outcome", WITHOUT)
def test_a_row_that_is_answered_again_and_fails_keeps_its_answer(outcome: Outcome) -> None:
    """A worker that was killed before it committed reads the row again: the ensemble still waits, and has an answer."""
    loop = Hedged(hedge=0.0, policy="exp4", models=("m", "n"))
    loop.ask("q")
    loop.land("q", 7)
    loop.land("q", outcome=outcome)
    loop.land("q", 3, model="n")
    (made,) = loop.predictions
    assert [(output.outcome, output.answer) for output in made.outputs] == [(Outcome.OK, 7), (Outcome.OK, 3)]
