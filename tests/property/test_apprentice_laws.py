"""Laws of apprentices: what takes over serves with what it learnt along, under any faults, and a replay agrees."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deploy.state.candidates import with_policy
from policies import registry
from schemas.records import Observation, PolicyState
from streams.operators.cold_start import lesson
from streams.operators.contract import StateKey
from streams.operators.ids import SeenIds
from streams.operators.learn.fold import fold, taught
from streams.operators.policy_state import state_of
from streams.promotion.apprentice import ApprenticeEvidence
from streams.promotion.copies import Copies
from streams.testing import Crash, Fault
from tests.loops import CODEC, Loop, digits, row
from tests.property.test_loop_laws import FAULTS, SECOND_US
from tests.property.test_replay_laws import replayed
from tests.traces import trace_of

WINDOW_US = 130 * SECOND_US
INCUMBENTS = ("exp3", "epsilon_greedy", "exp4", "single", "thompson")
APPRENTICES = ("thompson(gamma=0.02)", "exp3(eta=0.1)", "ucb1", "linucb(features=1)")
# A tenth of a second a query: an apprentice begins, then it takes over, then the last ones come.
BEGINS, TAKES_OVER, END = 15, 40, 60
LOG = list[tuple[int, Observation]]


def spec(apprentice: str) -> str:
    """Write a policy as decisions name it."""
    return registry.spec(registry.parse(apprentice))


def played(faults: list[Fault], incumbent: str, apprentice: str, *, per_context: bool = False) -> Loop:
    """Ask sixty queries; a third of the feedback comes after the takeover, that of the first decisions too."""
    common: dict[str, object] = {"window_s": 20.0, "per_context": per_context}
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy=incumbent, **common), faults, has_workers=True)
    late = []
    for number in range(END):
        if number == BEGINS:
            loop.configure(digits(policy=incumbent, apprentice=apprentice, **common))
        if number == TAKES_OVER:
            loop.configure(with_policy(digits(**common), apprentice))
        query_id = loop.query(input=row(float(number)), context=f"user-{number % 4}", features=(float(number % 2),))
        loop.driver.run(0.05)
        if number % 3:
            loop.feedback(query_id, label=7)
        else:
            late.append(query_id)
        loop.driver.run(0.05)
    for query_id in late:
        loop.feedback(query_id, label=7)
        loop.driver.run(0.05)
    loop.driver.run(60)
    return loop


def alone(log: LOG, apprentice: str, *, decided: bool = True) -> dict[str, PolicyState]:
    """Fold what an apprentice learnt from, as if there were no other policy."""
    seen_ids, states = SeenIds(WINDOW_US), dict[str, PolicyState]()
    for timestamp_us, seen in log:
        is_its = seen.decision.apprentice == apprentice or (decided and seen.decision.policy == apprentice)
        if seen_ids.add(seen.query_id, timestamp_us) and is_its:
            states |= taught(states, lesson(seen, apprentice), timestamp_us, WINDOW_US)
    return states


CRASHES = st.builds(lambda at: [Crash(at, "learner")], st.integers(SECOND_US, 7 * SECOND_US))


@settings(max_examples=25, deadline=None)
@given(
    st.one_of(CRASHES, st.lists(FAULTS, max_size=5)),
    st.sampled_from(INCUMBENTS),
    st.sampled_from(APPRENTICES),
    st.booleans(),
)
def test_a_policy_that_takes_over_has_all_that_it_learnt_along(
    faults: list[Fault], incumbent: str, apprentice: str, per_context: bool
) -> None:
    """States are the fold of the log, the apprentice's those of a fold without the others; a replay is bit-equal."""
    loop = played(faults, incumbent, apprentice, per_context=per_context)
    log, stored = loop.observations(), loop.driver.store.states
    assert stored == {StateKey(0, name): state for name, state in fold(log, WINDOW_US).items()}

    its = spec(apprentice)
    learnt = {key.name: state_of(state, its) for key, state in stored.items()}
    assert {name: state for name, state in learnt.items() if state is not None} == alone(log, its)
    assert {seen.decision.policy for _, seen in log} == {spec(incumbent), its}

    report = replayed(trace_of(loop.driver))
    report.compare_states(stored, CODEC)
    assert report.differences == []
    assert report.checked["states"] >= len(stored)
    assert report.checked["predictions"] > TAKES_OVER


@settings(max_examples=15, deadline=None)
@given(st.lists(FAULTS, max_size=3), st.sampled_from(APPRENTICES), st.booleans())
def test_an_apprentice_is_judged_in_the_states_that_the_learner_has(
    faults: list[Fault], apprentice: str, per_context: bool
) -> None:
    """What is shown to be as good is what then serves, bit for bit."""
    log = played(faults, "exp3", apprentice, per_context=per_context).observations()
    judged = ApprenticeEvidence("digits", spec(apprentice), spec("exp3"), WINDOW_US, learns_along=True)
    copies = Copies(WINDOW_US, 1 << 20)
    for timestamp_us, seen in log:
        if not copies.has(seen.query_id, timestamp_us, 0):
            judged.take(seen, timestamp_us)

    assert judged.states == alone(log, spec(apprentice), decided=False)
    assert judged.evidence(0.05).pairs == len({seen.query_id for _, seen in log if seen.decision.apprentice})


@pytest.mark.parametrize("apprentice", APPRENTICES)
@pytest.mark.parametrize("per_context", [False, True])
def test_the_first_decision_after_the_takeover_is_made_in_the_state_of_the_apprentice(
    apprentice: str, per_context: bool
) -> None:
    """It names the lessons that the apprentice had; nobody starts anew."""
    loop = played([], "exp3", apprentice, per_context=per_context)
    its = spec(apprentice)
    decided = [p.decision for p in loop.predictions() if p.decision is not None and p.decision.policy == its]
    lessons = (TAKES_OVER - BEGINS) * 2 // 3 // (4 if per_context else 1)

    assert len(decided) == END - TAKES_OVER
    assert all(decision.state_version >= lessons - 2 for decision in decided)


def test_a_crash_of_the_learner_changes_nothing() -> None:
    """Neither before nor in nor after the takeover."""
    crashes: list[Fault] = [Crash(at_us=at * SECOND_US, role="learner") for at in (2, 4, 5)]
    whole, broken = (played(faults, "exp3", APPRENTICES[0]).driver.store.states for faults in ([], crashes))

    assert [state.version for state in whole.values()] == [state.version for state in broken.values()]
    assert all(len(state.others) == 1 for state in broken.values())
