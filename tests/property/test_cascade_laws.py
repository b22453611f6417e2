"""Laws of queries that ask again, whatever their models do: answered in time, asked once each, folded and replayed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import ModelQueries, Outcome, Tensor
from streams.operators.contract import StateKey
from streams.operators.join.kernel import JoinerSettings
from streams.operators.learn.fold import fold
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from tests.loops import CODEC, Loop, Slow, Sure, digits, row
from tests.property.test_loop_laws import FAULTS
from tests.traces import trace_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.testing import Fault
    from tests.loops import Row

QUERIES = 40
# What a model answers to a row: how sure it is, or that it fails, or hangs.
ANSWERS = st.one_of(st.floats(0.0, 1.0), st.just(Outcome.FAILED), st.none())
SOME = st.lists(ANSWERS, min_size=1, max_size=6)
PARAMETERS = st.fixed_dictionaries(
    {},
    optional={
        "risk": st.sampled_from([0.0, 0.3, 0.9]),
        "budget": st.sampled_from([0.0, 0.3]),
        "explore": st.sampled_from([0.01, 0.5]),
        "first": st.just(2.0),
        "discount": st.just(0.99),
    },
)


class Script(NamedTuple):
    """What happens in a run: each model's answers, in turn; the policy; where a model is told apart by its place."""

    answers: dict[str, list[float | Outcome | None]]
    parameters: dict[str, float]
    cache_bytes: int
    admission: bool


SCRIPTS = st.builds(
    Script,
    st.fixed_dictionaries({"good": SOME}, optional={"second": SOME, "third": SOME}),
    PARAMETERS,
    st.sampled_from([0, 1 << 20]),
    st.booleans(),
)


def model(name: str, answers: list[float | Outcome | None]) -> Callable[[Row], Sure | Outcome | None]:
    """Answer rows by their number, in turn."""

    def answer(asked: Row) -> Sure | Outcome | None:
        assert isinstance(asked.input, Tensor)
        given = answers[int(asked.input.numpy()[0]) % len(answers)]
        return Sure(len(name), given) if isinstance(given, float) else given

    return answer


def run(script: Script, faults: list[Fault]) -> Loop:
    """Ask queries with feedback, until every window is over."""
    models = {name: model(name, answers) for name, answers in sorted(script.answers.items())}
    application = digits(
        policy="cascade", parameters=script.parameters, models=tuple(models), window_s=20.0, slo_ms=100.0
    )
    more = {"cache_bytes": script.cache_bytes, "admission": script.admission}
    loop = Loop(models, application, faults, has_workers=True, **more)  # type: ignore[arg-type]
    for number in range(QUERIES):
        query_id = loop.query(input=row(float(number % 12)))
        loop.driver.run(0.05)
        loop.feedback(query_id, label=3 if number % 3 else 5)
        loop.driver.run(0.05)
    loop.driver.run(60)
    return loop


@settings(max_examples=15, deadline=None)
@given(SCRIPTS)
def test_every_query_is_answered_in_time_by_at_most_all_its_models(script: Script) -> None:
    """No model is asked twice, none after the answer had to leave, and none that would be late."""
    loop = run(script, [])
    made = {prediction.query_id: prediction for prediction in loop.predictions()}
    assert len(made) == len(loop.predictions()) == QUERIES
    for prediction in made.values():
        assert prediction.answered_us <= prediction.deadline_us
        assert len(prediction.steps) <= len(script.answers) - 1 + ("first" in script.parameters)
        times = [prediction.received_us, *(step.at_us for step in prediction.steps), prediction.answered_us]
        assert times == sorted(times)
        assert all(step.at_us + step.needed_us <= prediction.deadline_us for step in prediction.steps[:-1])
        assert all(step.outcome == "asked" for step in prediction.steps[:-1])
        if prediction.decision is not None:
            chosen = prediction.decision.chosen
            assert chosen == tuple(sorted(set(chosen)))
            assert all(prediction.decision.propensities[arm] > 0.0 for arm in chosen)
    for name in script.answers:
        records = loop.driver.read(topics.model_queries(name))
        batches = [(record.timestamp_us, CODEC.decode(ModelQueries, record.value)) for record in records]
        asked = Counter(query_id for _, batch in batches for query_id in batch.query_ids)
        assert not asked or max(asked.values()) == 1
        for at_us, batch in batches:
            for query_id in batch.query_ids:
                assert at_us <= made[query_id].deadline_us


@settings(max_examples=15, deadline=None)
@given(SCRIPTS, st.lists(FAULTS, max_size=4))
def test_steps_are_folded_and_replayed_bit_for_bit(script: Script, faults: list[Fault]) -> None:
    """Under any faults every query is answered, states are the fold of the log, and the log replays as it was."""
    loop = run(script._replace(admission=False), faults)
    assert {prediction.query_id for prediction in loop.predictions()} == {f"q{n}" for n in range(1, QUERIES + 1)}
    expected = fold(loop.observations(), 130_000_000)
    assert loop.driver.store.states == {StateKey(0, name): state for name, state in expected.items()}
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(
        trace_of(loop.driver), RecordedDeployment(SelectionSettings(1, cache_bytes=script.cache_bytes), joiner), CODEC
    )
    assert not report.differences
    assert report.checked["predictions"] + report.unchecked["call_missing"] >= QUERIES


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.sampled_from([0, 0, 0, 5_000, 30_000, 70_000]), min_size=1, max_size=9), st.lists(FAULTS, max_size=3)
)
def test_hedged_queries_are_answered_and_replayed(took_us: list[int], faults: list[Fault]) -> None:
    """Outputs that take long are asked for again, and whichever comes first, the log replays as it was."""

    def good(asked: Row) -> Slow:
        assert isinstance(asked.input, Tensor)
        return Slow(7, took_us[int(asked.input.numpy()[0]) % len(took_us)])

    models = {"good": good, "bad": lambda _: 3}
    loop = Loop(models, digits(hedge=0.5), faults, has_workers=True, model_partitions=4)
    for number in range(QUERIES):
        query_id = loop.query(input=row(float(number)))
        loop.driver.run(0.1)
        loop.feedback(query_id, label=7)
    loop.driver.run(70)
    assert {prediction.query_id for prediction in loop.predictions()} == {f"q{n}" for n in range(1, QUERIES + 1)}
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(trace_of(loop.driver), RecordedDeployment(SelectionSettings(1), joiner), CODEC)
    assert not report.differences
    assert report.checked["predictions"] + report.unchecked["call_missing"] >= QUERIES
