"""What one teacher can move: at most its lessons of a minute, whatever it sends; and who stays below is learnt as ever.

The oracle knows no kernel: it picks the lessons that may teach from the whole log by a rule of its own, and says by
arithmetic how far apart weights can be.
"""

from __future__ import annotations

from math import exp, log
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from policies import registry
from policies.exp3 import Exp3
from policies.thompson import Thompson
from schemas.codec import Codec
from schemas.records import Decision, JoinStatus, Observation, Observations, PolicyState, TeachingBound
from schemas.topics import OBSERVATIONS
from streams.operators.contract import FetchStates, Record, WriteStates
from streams.operators.learn.fold import fold
from streams.operators.learn.kernel import Learner

CODEC = Codec()
MINUTE_US = 60_000_000
BEGIN_US = 28_333_333 * MINUTE_US
WINDOW_US = 130_000_000
MOST, MOST_CONTEXT = 3, 2
LEAST = 0.125  # of a propensity that is logged
SPECS = (registry.spec(Exp3()), registry.spec(Exp3(share=0.0)), registry.spec(Thompson()))
Log = list[tuple[int, Observation]]


class Told(NamedTuple):
    """A lesson of a log: who gave it, when, about which context, and what it says."""

    teacher: str
    after_us: int  # the one before
    context: str | None
    arm: int
    share: float
    loss: float


def told(*teachers: str, contexts: tuple[str | None, ...] = (None, "ann", "bob")) -> st.SearchStrategy[Told]:
    """Draw a lesson."""
    return st.builds(
        Told,
        st.sampled_from(teachers),
        st.sampled_from([0, 1_000, 7_000_000, 61_000_000]),
        st.sampled_from(contexts),
        st.integers(0, 1),
        st.sampled_from([LEAST, 0.5, 1.0 - LEAST]),
        st.sampled_from([0.0, 0.5, 1.0]),
    )


def logged(lessons: list[Told], spec: str, bound: tuple[int, int] | None, *, each_has_one: bool = False) -> Log:
    """Return lessons as a partition of the log has them."""
    at_us, found = BEGIN_US, Log()
    for number, one in enumerate(lessons):
        at_us += one.after_us
        shares = (one.share, 1.0 - one.share) if one.arm == 0 else (1.0 - one.share, one.share)
        state = f"app/{one.context}" if each_has_one and one.context else "app"
        decision = Decision((one.arm,), 0, state, spec, ("a", "b"), shares)
        losses = (one.loss, None) if one.arm == 0 else (None, one.loss)
        seen = Observation(
            f"q{number}", "app", one.context, decision, losses, one.loss, None, JoinStatus.JOINED, at_us, at_us
        )
        found.append((at_us, seen._replace(bound=bound and TeachingBound(one.teacher, *bound))))
    return found


def picked(log_: Log) -> Log:
    """Return the lessons that may teach the state of all, by the rule as the page has it; the bound is taken off."""
    found = Log()
    for place, (at_us, seen) in enumerate(log_):
        assert seen.bound is not None
        before = [
            earlier
            for earlier_us, earlier in log_[:place]
            if earlier_us // MINUTE_US == at_us // MINUTE_US and earlier.bound == seen.bound
        ]
        of_context = [
            earlier
            for at, earlier in enumerate(before)
            if earlier.context == seen.context and (not seen.bound.most or at < seen.bound.most)
        ]
        if seen.bound.most and len(before) >= seen.bound.most:
            continue
        if seen.bound.most_context and seen.context is not None and len(of_context) >= seen.bound.most_context:
            continue
        found.append((at_us, seen._replace(bound=None)))
    return found


@given(
    st.lists(told("honest", "other", "adversary"), max_size=30),
    st.sampled_from(SPECS),
    st.sampled_from([(MOST, 0), (0, MOST_CONTEXT), (MOST, MOST_CONTEXT)]),
)
def test_the_state_of_all_is_the_fold_of_the_lessons_that_may_teach_it(
    lessons: list[Told], spec: str, bound: tuple[int, int]
) -> None:
    """Bit for bit, of any teachers and contexts."""
    whole = logged(lessons, spec, bound)
    assert fold(whole, WINDOW_US) == fold(picked(whole), WINDOW_US)


@given(st.data(), st.sampled_from(SPECS))
def test_who_stays_below_the_bound_teaches_as_if_there_were_none(data: st.DataObject, spec: str) -> None:
    """Also beside a teacher that floods: honest lessons stay, and the other's are at most three a minute."""
    honest = data.draw(st.lists(told("one", "two"), max_size=12))
    minutes: dict[tuple[str, int], int] = {}
    at_us, kept = BEGIN_US, []
    for one in honest:
        at_us += one.after_us
        minutes[key] = minutes.get(key := (one.teacher, at_us // MINUTE_US), 0) + 1
        kept.append(one if minutes[key] <= MOST else one._replace(teacher=f"{one.teacher} {minutes[key]}"))
    assert fold(logged(kept, spec, (MOST, 0)), WINDOW_US) == fold(logged(kept, spec, None), WINDOW_US)

    flood = data.draw(st.lists(told("adversary"), max_size=40))
    mixed = merged(data, kept, [one._replace(after_us=0) for one in flood])
    whole = logged(mixed, spec, (MOST, 0))
    teaching = [(time_us, seen) for time_us, seen in picked(whole)]
    ids = {seen.query_id for _, seen in teaching}
    by_teacher = {seen.query_id: seen.bound.teacher for _, seen in whole if seen.bound is not None}
    assert {name for name, who in by_teacher.items() if who != "adversary"} <= ids
    states = fold(whole, WINDOW_US)
    assert states == fold(teaching, WINDOW_US)


def merged(data: st.DataObject, honest: list[Told], flood: list[Told]) -> list[Told]:
    """Put a flood among honest lessons, whose times stay as they are."""
    found, rest = list[Told](), [*flood]
    for one in honest:
        count = data.draw(st.integers(0, len(rest)))
        found, rest = [*found, *rest[:count], one], rest[count:]
    return found + rest


@given(st.data(), st.sampled_from([0.0, 1e-4]), st.sampled_from([0.05, 0.5]))
def test_a_flood_of_one_teacher_moves_the_weights_by_no_more_than_its_lessons_can(
    data: st.DataObject, share: float, eta: float
) -> None:
    """However many it sends, and whatever they say: the ratio of any two weights is within a factor that is known.

    A lesson divides one weight by at most exp(eta / propensity). Sharing gives each weight the same little: at most as
    much again as the smallest one has, and a bit. What honest lessons do to both states brings these no further apart.
    """
    policy = Exp3(eta=eta, share=share)
    spec = registry.spec(policy)
    honest = data.draw(st.lists(told("one", "two", contexts=(None,)), min_size=1, max_size=6))
    worst = st.integers(0, 200).map(lambda count: [Told("adversary", 0, None, 0, LEAST, 1.0)] * count)
    flood = data.draw(st.one_of(worst, st.lists(told("adversary", contexts=(None,)), max_size=60)))
    mixed = merged(data, honest, [one._replace(after_us=0) for one in flood])
    bound = (1_000, 0)
    without = fold(logged(honest, spec, None), WINDOW_US)["app"].values
    capped = [
        (at_us, seen._replace(bound=TeachingBound("adversary", MOST, 0)) if one.teacher == "adversary" else seen)
        for one, (at_us, seen) in zip(mixed, logged(mixed, spec, bound), strict=True)
    ]
    beside = fold(capped, WINDOW_US)["app"].values
    minutes = {at_us // MINUTE_US for one, (at_us, _) in zip(mixed, capped, strict=True) if one.teacher == "adversary"}
    sent = [at_us for one, (at_us, _) in zip(mixed, capped, strict=True) if one.teacher == "adversary"]
    most = sum(min(MOST, sum(at_us // MINUTE_US == minute for at_us in sent)) for minute in minutes)
    each = eta / LEAST + (log(2.0 + 2.0 * exp(1.0) * share) if share else 0.0)
    apart = max(abs((beside[i] - beside[j]) - (without[i] - without[j])) for i in range(2) for j in range(2))
    assert apart <= most * each + 1e-9


@given(st.lists(told("one", "two"), min_size=1, max_size=30), st.data())
def test_a_learner_that_starts_anew_bounds_as_if_it_had_gone_on(lessons: list[Told], data: st.DataObject) -> None:
    """It reads back more than a minute, and counts what is there."""
    log_ = logged(lessons, SPECS[0], (MOST, MOST_CONTEXT))
    records = [
        Record(
            OBSERVATIONS,
            0,
            offset,
            at_us,
            b"app",
            CODEC.encode(Observations((seen,))) if offset % 2 else CODEC.encode(seen),
        )
        for offset, (at_us, seen) in enumerate(log_)
    ]
    expected = fold(log_, WINDOW_US)
    stop = data.draw(st.integers(0, len(records)))
    states = learnt(records[:stop], 0, {})
    back_us = records[stop].timestamp_us - WINDOW_US - MINUTE_US if stop < len(records) else 0
    states = learnt([one for one in records if one.timestamp_us >= back_us or one.offset >= stop], stop, states)
    assert states == expected


def learnt(records: list[Record], start: int, stored: dict[str, PolicyState]) -> dict[str, PolicyState]:
    """Return the states after a learner has read records, of which those before `start` are in the store."""
    learner, states = Learner(CODEC, WINDOW_US), dict(stored)
    learner.on_partitions({0: start})
    effects = list(learner.on_records(records, 1))
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, FetchStates):
            effects += learner.on_states({key: states.get(key.name) for key in effect.keys}, 1)
        elif isinstance(effect, WriteStates):
            states |= effect.states
    return states


def test_what_is_cut_off_is_counted_by_cause() -> None:
    """By teacher or context, and by application; a context with a state of its own still teaches that."""
    one = Told("flood", 0, "ann", 0, 0.5, 1.0)
    log_ = logged([one] * 9, SPECS[0], (5, 2), each_has_one=True)
    learner, states = Learner(CODEC, WINDOW_US), dict[str, PolicyState]()
    learner.on_partitions({0: 0})
    records = [Record(OBSERVATIONS, 0, at, us, b"app", CODEC.encode(seen)) for at, (us, seen) in enumerate(log_)]
    effects = list(learner.on_records(records, 1))
    while effects:
        effect = effects.pop(0)
        if isinstance(effect, FetchStates):
            effects += learner.on_states(dict.fromkeys(effect.keys), 1)
        elif isinstance(effect, WriteStates):
            states |= effect.states
    counted = learner.statistics()
    assert counted["bounded_lessons_total{application=app,by=teacher}"] == 4
    assert counted["bounded_lessons_total{application=app,by=context}"] == 3
    assert counted["applied_total{application=app}"] == 5
    assert (states["app/ann"].version, states["app"].version) == (5, 2)
