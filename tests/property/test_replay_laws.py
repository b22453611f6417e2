"""Laws of the offline replay: what the kernels have done once, under any faults, they do again, bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import Outcome, Tensor, Value
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from tests.loops import CODEC, Loop, Row, digits, row, version
from tests.property.test_loop_laws import FAULTS
from tests.traces import trace_of

if TYPE_CHECKING:
    from streams.replay.recording import MemoryTrace
    from streams.replay.report import ReplayReport
    from streams.testing import Fault

POLICIES = ("exp3", "exp4", "thompson", "epsilon_greedy", "ucb1", "class_vote", "single", "cascade")
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "per_context": st.booleans(),
        "spread": st.booleans(),
        "forget_s": st.sampled_from([0.4, 30.0]),
        "default_loss": st.sampled_from([0.0, 1.0]),
        "missing": st.sampled_from(["leave_out", "running_mean"]),
        "loss": st.sampled_from(["zero_one", "absolute"]),
        "confidence_floor": st.sampled_from([0.0, 0.6]),
        "coverage": st.sampled_from([0.5, 0.8]),
    },
)


def bad(asked: Row) -> Value | Outcome | None:
    """Answer wrong; on some rows fail or hang."""
    assert isinstance(asked.input, Tensor)
    place = int(asked.input.numpy()[0])
    return Outcome.FAILED if place % 11 == 3 else None if place % 29 == 17 else 3


# Versions beside the one that serves: a shadow alone, then with a canary, then none; or the like.
BESIDE: tuple[dict[int, dict[str, float]], ...] = (
    {},
    {10: {"2": 0.0}, 40: {}},
    {5: {"2": 0.3}, 20: {"2": 0.3, "3": 0.0}, 35: {"3": 0.0, "4": 0.0}, 50: {"3": 0.5}},
)


def recorded(
    faults: list[Fault], policy: str, changes: dict[str, object], beside: dict[int, dict[str, float]] = BESIDE[0]
) -> Loop:
    """Ask sixty queries, some twice; feedback may be late, wrong or missing; versions and the application change."""
    loop = Loop(
        {"good": lambda _: 7, "bad": bad}, digits(policy=policy, window_s=20.0, **changes), faults, has_workers=True
    )
    for name in ("2", "3", "4"):
        loop.driver.produce(topics.MODELS, 0, CODEC.encode(version("good", name)), f"good@{name}".encode())
    for number in range(60):
        query_id = loop.query(input=row(float(number)), context=f"user-{number % 3}")
        if number % 7 == 0:
            loop.query(query_id, context=f"user-{number % 3}")
        loop.driver.run(0.05)
        if number % 5:
            loop.feedback(query_id, label=7 if number % 9 else "seven")
        if number == 30:
            loop.driver.produce(topics.MODELS, 0, CODEC.encode(version("bad", "2")), b"bad")
        if number in beside:
            loop.driver.produce(topics.MODELS, 0, CODEC.encode(version("good", "1", beside[number])), b"good")
        if number == 45:
            loop.configure(digits(policy=policy, window_s=20.0, **(changes | {"slo_ms": 80.0, "default_output": 5})))
        loop.driver.run(0.05)
    loop.driver.run(60)
    loop.feedback("q5", label=7)
    loop.driver.run(1)
    return loop


def replayed(trace: MemoryTrace, **options: Any) -> ReplayReport:
    """Replay what a loop has logged; options are of the `RecordedDeployment`."""
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    return replay(trace, RecordedDeployment(SelectionSettings(1), joiner, **options), CODEC)


@settings(max_examples=25, deadline=None)
@given(st.lists(FAULTS, max_size=5), st.sampled_from(POLICIES), CHANGES, st.sampled_from(BESIDE))
# A context begins from one of several common states, just when a model changes.
@example([], "exp4", {"per_context": True, "forget_s": 0.4}, BESIDE[0])
def test_a_loop_replays_bit_equal_whatever_goes_wrong(
    faults: list[Fault], policy: str, changes: dict[str, object], beside: dict[int, dict[str, float]]
) -> None:
    """Nothing differs; every record is checked, but for those whose calls a crash has taken."""
    loop = recorded(faults, policy, changes, beside)
    report = replayed(trace_of(loop.driver))
    report.compare_states(loop.driver.store.states, CODEC)

    assert report.differences == []
    written = [*loop.driver.read(topics.PREDICTIONS), *loop.driver.read(topics.OBSERVATIONS)]
    checked = report.checked["predictions"] + report.checked["observations"]
    assert checked + report.unchecked["call_missing"] + report.inferred["copies"] >= len(written)
    assert faults or checked == len(written)
    assert {*report.unchecked} <= {"call_missing"}
    assert report.checked["states"] >= len(loop.driver.store.states)
