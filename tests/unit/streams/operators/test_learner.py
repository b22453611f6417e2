"""The learner: the stored states are the fold of the log, whatever happens on the way."""

from __future__ import annotations

import itertools

import pytest

from policies import registry
from policies.errors import PolicyError
from schemas import topics
from schemas.records import Decision, JoinStatus, Observation, Observations, PolicyState
from streams.operators.contract import DeadLetter, FetchStates, Record, StateKey, WriteStates
from streams.operators.ids import SeenIds
from streams.operators.learn.fold import fold
from streams.operators.learn.kernel import WRITE_NUMBERS, Learner
from streams.testing import Crash, Duplicate, Fault, Reorder, StoreDown, StoreLoss
from tests.lessons import apply
from tests.loops import CODEC, Loop, digits

WINDOW_US = 130_000_000


def observation(arms: tuple[str, ...] = ("a", "b"), policy: str = "exp3", query_id: str = "q") -> Observation:
    """Make an observation in which the first arm was wrong."""
    losses = (1.0, *(None for _ in arms[1:]))
    shares = tuple(1.0 / len(arms) for _ in arms)
    decision = Decision((0,), 0, "app", registry.spec(registry.create(policy)), arms, shares)
    return Observation(query_id, "app", None, decision, losses, 1.0, None, JoinStatus.JOINED, 0, 0)


def run(faults: list[Fault]) -> Loop:
    """Send a hundred queries with feedback over twenty virtual seconds, under faults."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(), faults)
    for _ in range(100):
        query_id = loop.query()
        loop.driver.run(0.1)
        loop.feedback(query_id, label=7)
        loop.driver.run(0.1)
    loop.driver.run(5)
    return loop


@pytest.mark.parametrize(
    "faults",
    [
        [],
        [Crash(4_000_000, "learner"), Crash(9_100_000, "learner")],
        [Crash(4_000_000, "joiner"), Crash(12_300_000, "joiner")],
        [Crash(7_770_000, "selection")],
        [Duplicate(topics.OBSERVATIONS)],
        [Duplicate(topics.PREDICTIONS), Duplicate(topics.FEEDBACK)],
        [Reorder(topics.OBSERVATIONS)],
        [StoreDown(3_000_000, 8_000_000)],
        [StoreLoss(10_000_000, 1_000_000)],
        [StoreLoss(10_000_000, 1_000_000), Crash(10_500_000, "learner"), Duplicate(topics.OBSERVATIONS)],
    ],
    ids=lambda faults: "+".join(type(fault).__name__ for fault in faults) or "none",
)
def test_the_stored_states_equal_an_offline_fold_of_the_log(faults: list[Fault]) -> None:
    """Bit for bit, and every feedback is applied exactly once."""
    loop = run(faults)
    expected = fold(loop.observations(), WINDOW_US)

    assert loop.driver.store.states == {StateKey(0, name): state for name, state in expected.items()}
    assert expected["digits"].version == 100


def test_the_policy_walks_away_from_the_model_that_is_wrong() -> None:
    """Feedback is what moves the traffic."""
    loop = run([])
    loop.driver.run(1)
    last = [loop.query() for _ in range(50)]
    loop.driver.run(1)
    answers = [loop.answer(query_id).answer for query_id in last]

    assert answers.count(7) > 40


def test_a_state_of_another_policy_starts_anew() -> None:
    """Numbers of one policy mean nothing to another."""
    before = apply(None, observation(policy="exp3"))
    after = apply(before, observation(policy="thompson"))

    assert (after.policy.split("(")[0], after.version) == ("thompson", 1)


def test_a_new_arm_joins_the_state_by_name() -> None:
    """What is known about the others stays."""
    before = apply(None, observation(("a", "b")))
    after = apply(before, observation(("b", "c", "a")))

    assert (after.arms, after.version) == (("b", "c", "a"), 2)


def test_an_observation_whose_parts_do_not_fit_is_a_dead_letter() -> None:
    """The log moves on."""
    loop = run([])
    good = observation()
    broken = good._replace(losses=(1.0,))
    loop.driver.produce(topics.OBSERVATIONS, 0, CODEC.encode(broken))
    loop.driver.run(1)

    assert [cause for cause, _ in loop.dead(topics.OBSERVATIONS)] == ["impossible_decision"]


def test_of_observations_in_one_record_the_good_ones_are_folded_and_the_record_is_a_dead_letter() -> None:
    """Given again within the window of ids it teaches nothing twice."""
    learner = Learner(CODEC)
    learner.on_partitions({0: 0})
    good = [observation(query_id=name) for name in "abc"]
    broken = good[1]._replace(losses=(1.0,))
    record = Record(topics.OBSERVATIONS, 0, 0, 1_000_000, None, CODEC.encode(Observations((good[0], broken, good[2]))))
    learner.on_records([record], 0)
    letter, write = learner.on_states({StateKey(0, "app"): None}, 0)

    assert isinstance(letter, DeadLetter)
    assert letter.record == record
    assert letter.message.startswith("b: ")
    assert isinstance(write, WriteStates)
    assert (write.offset, write.completes) == (1, ())
    assert write.states == {"app": apply(apply(None, good[0]), good[2])}

    (again,) = learner.on_records([record._replace(offset=1)], 0)
    assert isinstance(again, WriteStates)
    assert (again.offset, again.states) == (2, {})


def test_observations_that_wait_for_a_state_count_one_by_one() -> None:
    """So that the role stops reading in time: a record may hold many."""
    learner = Learner(CODEC)
    learner.on_partitions({0: 0})
    several = Observations(tuple(observation(query_id=name) for name in "abc"))
    learner.on_records([Record(topics.OBSERVATIONS, 0, 0, 1_000_000, None, CODEC.encode(several))], 0)
    assert (learner.held, learner.statistics()["observations_waiting"]) == (3, 3.0)
    learner.on_states({StateKey(0, "app"): None}, 0)
    assert learner.held == 0


def test_observations_in_one_record_are_folded_as_those_in_many() -> None:
    """Before the start they are remembered all the same."""
    many, one = Learner(CODEC), Learner(CODEC)
    log = [observation(query_id=f"q{number}") for number in range(6)]
    several = [CODEC.encode(Observations(tuple(part))) for part in (log[:2], log[1:4], log[3:])]
    for learner, values, start in ((many, map(CODEC.encode, log), 2), (one, several, 1)):
        learner.on_partitions({0: start})
        records = [Record(topics.OBSERVATIONS, 0, at, 1_000_000, None, value) for at, value in enumerate(values)]
        learner.on_records(records, 0)
    (expected,) = many.on_states({StateKey(0, "app"): None}, 0)
    (found,) = one.on_states({StateKey(0, "app"): None}, 0)

    assert isinstance(expected, WriteStates)
    assert isinstance(found, WriteStates)
    assert found.states == expected.states
    assert one.statistics()["duplicate_observations_total{application=app}"] == 2


def test_an_id_is_forgotten_after_the_window() -> None:
    """Memory is bounded by time, not by hope."""
    seen = SeenIds(100_000_000)

    assert [seen.add("a", 0), seen.add("b", 102_000_000), seen.add("a", 102_000_000)] == [True, True, True]


def test_an_id_is_known_for_a_window_after_its_last_copy_wherever_reading_began() -> None:
    """A learner that starts between the copies must decide like one that has read all of them."""
    whole, later = SeenIds(100_000_000), SeenIds(100_000_000)
    whole.add("a", 0)
    whole.add("a", 80_000_000)
    later.add("a", 80_000_000)

    assert [seen.add("a", 150_000_000) for seen in (whole, later)] == [False, False]


@pytest.mark.parametrize("time_us", [-1_000, 10**18], ids=("none", "far-ahead"))
def test_a_wrong_clock_forgets_no_id(time_us: int) -> None:
    """A record without a time, or with one beyond all times, is remembered like any other."""
    seen = SeenIds(100_000_000)

    assert [seen.add("a", time_us), seen.add("a", time_us), seen.add("a", 1_000_000)] == [True, False, False]


def test_cached_states_are_bounded_whichever_partition_needs_them() -> None:
    """One may have all the room that the others leave; beyond it, who has most forgets those used longest ago."""
    learner, ids = Learner(CODEC, capacity=8), itertools.count()
    learner.on_partitions({0: 0, 1: 0})

    def fetched(partition: int, number: int) -> bool:
        """Teach a state; tell whether it had to be read."""
        name = f"app/{number}"
        seen = observation(query_id=f"q{next(ids)}")
        seen = seen._replace(decision=seen.decision._replace(state=name))
        record = Record(topics.OBSERVATIONS, partition, number, 1_000_000, None, CODEC.encode(seen))
        (effect,) = learner.on_records([record], 0)
        if isinstance(effect, WriteStates):
            return False
        learner.on_states({StateKey(partition, name): None}, 0)
        return True

    assert all(fetched(0, number) for number in range(20))
    assert learner.statistics()["states_cached"] == 8
    assert [fetched(0, number) for number in (12, 19, 11)] == [False, False, True]

    assert all(fetched(1, number) for number in range(20))
    assert learner.statistics()["states_cached"] == 8
    assert [fetched(0, number) for number in (12, 19)] == [False, False]
    assert [fetched(1, number) for number in (16, 19, 15)] == [False, False, True]


def test_states_are_values() -> None:
    """Folding leaves the state it started from unchanged."""
    before = apply(None, observation())
    copy = PolicyState(before.policy, before.arms, before.version, before.values)
    apply(before, observation(query_id="r"))

    assert before == copy


@pytest.mark.parametrize(
    "changes",
    [{"losses": (1e308, None)}, {"losses": (-0.1, None)}, {"losses": (1.0,)}],
    ids=["vast", "negative", "too-few"],
)
def test_losses_that_cannot_be_teach_nothing(changes: dict[str, object]) -> None:
    """A state holds what was learnt from it for good, so it is refused, not clipped."""
    with pytest.raises(PolicyError):
        apply(None, observation()._replace(**changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("shares", [(-1.0, 1.0), (0.5, 1.5), (1.0,)])
def test_propensities_that_cannot_be_teach_nothing(shares: tuple[float, ...]) -> None:
    """They are what losses are divided by."""
    seen = observation()
    with pytest.raises(PolicyError):
        apply(None, seen._replace(decision=seen.decision._replace(propensities=shares)))


def test_a_state_that_would_leave_the_numbers_is_refused() -> None:
    """Parameters of any size are legal text; a state that cannot be stored is not."""
    seen = observation()
    wild = seen._replace(decision=seen.decision._replace(policy="exp3(eta=1e+308,gamma=0.05,share=0.0)"))

    with pytest.raises(PolicyError):
        apply(apply(None, wild), wild)


def test_the_report_says_what_answers_and_models_cost() -> None:
    """Sums and counts, so that a mean over any window can be taken; by application, and by model of it."""
    loop = Loop({"good": lambda _: 7, "bad": lambda _: 3}, digits(policy="exp4"))
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.feedback(query_id, label=7)
    loop.driver.run(5)
    figures = loop.driver.operator("learner").statistics()

    assert figures["losses_total{application=digits}"] == 1
    assert figures["model_loss_total{application=digits,model=bad}"] == 1
    assert figures["model_loss_total{application=digits,model=good}"] == 0
    assert figures["model_losses_total{application=digits,model=good}"] == 1


def test_a_partition_of_nothing_but_broken_records_moves_on() -> None:
    """Otherwise each start would read them again and write their dead letters once more."""
    learner = Learner(CODEC)
    learner.on_partitions({0: 0})
    letter, write = learner.on_records([Record(topics.OBSERVATIONS, 0, 0, 1_000_000, None, b"broken")], 0)

    assert isinstance(letter, DeadLetter)
    assert isinstance(write, WriteStates)
    assert (write.expected, write.offset, write.states, write.completes) == (None, 1, {}, ())


def test_broken_records_are_given_up_once_though_the_learner_dies() -> None:
    """The stored offset is behind them."""
    loop = Loop({"good": lambda _: 7}, digits(models=("good",)), [Crash(5_000_000, "learner")])
    for _ in range(3):
        loop.driver.produce(topics.OBSERVATIONS, 0, b"broken")
    loop.driver.run(10)

    assert len(loop.dead(topics.OBSERVATIONS)) == 3
    assert loop.driver.store.offsets[0] == 3


@pytest.mark.parametrize("fault", [ZeroDivisionError("division by zero"), ValueError("math domain error")])
def test_an_observation_that_a_policy_cannot_compute_is_a_dead_letter_which_names_it(
    fault: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading it again would not mend it: the role would start over for ever."""

    def fail(*_: object) -> tuple[float, ...]:
        raise fault

    learner = Learner(CODEC)
    learner.on_partitions({0: 0})
    monkeypatch.setattr(type(registry.create("exp3")), "observe", fail)
    record = Record(topics.OBSERVATIONS, 0, 0, 1_000_000, None, CODEC.encode(observation(query_id="worst")))
    learner.on_records([record], 0)
    letter, write = learner.on_states({StateKey(0, "app"): None}, 0)

    assert isinstance(letter, DeadLetter)
    assert letter.cause == "impossible_decision"
    assert letter.message.startswith("worst: exp3")
    assert isinstance(write, WriteStates)
    assert (write.offset, write.states, write.completes) == (1, {}, ())


def test_large_states_are_written_in_several_steps() -> None:
    """Each step names the offset that its states stand for, so that each is exact; small ones go in one."""

    def writes_of(policy: str, features: int) -> list[WriteStates]:
        learner = Learner(CODEC, WINDOW_US)
        learner.on_partitions({0: 0})
        records = []
        for n in range(60):
            spec = registry.spec(registry.create(policy, {"features": features} if features else {}))
            decision = Decision((0,), 0, f"app/{n}", spec, ("a", "b"), (1.0, 0.0), (0.5,) * features)
            seen = Observation(f"q{n}", "app", None, decision, (1.0, None), 1.0, None, JoinStatus.JOINED, 0, 0)
            records.append(Record(topics.OBSERVATIONS, 0, n, 0, None, CODEC.encode(Observations((seen,)))))
        (fetch,) = learner.on_records(records, 0)
        assert isinstance(fetch, FetchStates)
        return [w for w in learner.on_states(dict.fromkeys(fetch.keys), 0) if isinstance(w, WriteStates)]

    large, small = writes_of("linucb", 64), writes_of("exp3", 0)
    assert [w.expected for w in large] == [None, *(w.offset for w in large[:-1])]
    assert large[-1].offset == 60
    assert sum(len(w.states) for w in large) == sum(len(w.completes) for w in large) == 60
    assert all(sum(len(state.values) for state in w.states.values()) < 2 * WRITE_NUMBERS for w in large)
    assert len(large) >= 2
    assert len(small) == 1
