"""Laws of corrected feedback: each query is learnt about once, by the last record in its window; replay does the same.

The oracle is the script alone: who told what about which query, and when.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas import topics
from schemas.records import KeyedFeedback
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.testing import Crash, Duplicate
from tests.loops import CODEC, Loop, digits
from tests.traces import trace_of

WINDOW_S = 20.0
QUERIES = 3
# Told later than this after its answer, it may come too late for what is learnt; later than `_LATE_S` it does.
_IN_TIME_S, _LATE_S = 17.0, 23.0
S = 1_000_000

TOLD = st.tuples(st.floats(0.05, 5.0), st.integers(0, QUERIES - 1), st.one_of(st.none(), st.sampled_from([3, 7, 7, 3])))
FAULTS = st.one_of(
    st.builds(Crash, at_us=st.integers(0, 45 * S), role=st.sampled_from(["joiner", "learner"])),
    st.just(Duplicate(topics.FEEDBACK)),
)


class Script(NamedTuple):
    """What was told about each query in time, in order."""

    loop: Loop
    told: dict[str, list[int | None]]


def played(
    faults: list[object], told: list[tuple[float, int, int | None]], packed: int | None, **changes: object
) -> Script:
    """Ask, and tell: in a window or long after it, never where its end could go either way."""
    drawn = None if packed is None else Random(packed)
    application = digits(policy="exp3", window_s=WINDOW_S, **changes)
    models = {"good": lambda _: 7, "bad": lambda _: 3}
    loop = Loop(models, application, faults, has_workers=True, packed=drawn, columns=packed is not None)  # type: ignore[arg-type]
    begun_us, said = {}, {}
    for _ in range(QUERIES):
        query_id = loop.query()
        loop.driver.run(1)
        begun_us[query_id], said[query_id] = loop.driver.now_us, []
    for gap_s, number, label in told:
        loop.driver.run(gap_s)
        query_id = [*begun_us][number]
        age_s = (loop.driver.now_us - begun_us[query_id]) / S
        if _IN_TIME_S - 1 < age_s < _LATE_S:
            continue
        if age_s < _IN_TIME_S:
            said[query_id].append(label)
        feedback = KeyedFeedback("", "digits", query_id, 0, label, None, loop.driver.now_us, revises=True)
        loop.driver.produce(topics.FEEDBACK, 0, CODEC.encode(feedback), query_id.encode())
    loop.driver.run(90)
    return Script(loop, said)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(FAULTS, max_size=4),
    st.lists(TOLD, max_size=14),
    st.one_of(st.none(), st.integers(0, 9)),
    st.sampled_from([None, 0.25]),
)
def test_each_query_is_learnt_about_once_by_the_last_record_in_its_window(
    faults: list[object], told: list[tuple[float, int, int | None]], packed: int | None, default_loss: float | None
) -> None:
    """Whatever crashes or is doubled; and the trace replays bit for bit, states too."""
    loop, said = played(faults, told, packed, default_loss=default_loss)
    expected: dict[str, float] = {}
    for query_id, labels in said.items():
        last = labels[-1] if labels else None
        loss = default_loss if last is None else float(last != loop.answer(query_id).answer)
        if loss is not None:
            expected[query_id] = loss
    seen = [(each.query_id, each.loss) for _, each in loop.observations()]

    assert dict(seen) == expected
    assert {*seen} == {*expected.items()}
    states = loop.driver.store.states
    assert sum(state.version for state in states.values()) == len(expected)
    if packed is None:  # whole batches date their records by the millisecond, the driver's log does not
        _replays_bit_equal(loop, len(seen))


def _replays_bit_equal(loop: Loop, observed: int) -> None:
    """Give the trace to the kernels again: every observation and state is made anew, and none differs."""
    joiner = JoinerSettings(partitions=1, window_us=60_000_000, early_us=5_000_000)
    report = replay(trace_of(loop.driver), RecordedDeployment(SelectionSettings(1), joiner), CODEC)
    report.compare_states(loop.driver.store.states, CODEC)

    assert report.differences == []
    assert report.checked["observations"] == observed
    assert report.checked["states"] >= len(loop.driver.store.states)  # each write, too, that a call has wanted
