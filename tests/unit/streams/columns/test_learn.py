"""Learning over columns is what the learner's kernel makes of the same observations, alone, to the last bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies import registry
from policies.class_counts import key_of
from schemas import topics
from schemas.records import (
    Decision,
    JoinStatus,
    LabelSet,
    Observation,
    Observations,
    PolicyState,
    Step,
    TeachingBound,
)
from schemas.wire import write_long
from streams.columns.join_forms import Example
from streams.operators.contract import Batch, DeadLetter, FetchStates, Position, Record, StateKey, WriteStates
from streams.operators.learn.kernel import Learner
from tests.loops import CODEC
from tests.unit.streams.columns.worlds import BEGIN_US, MODELS, batch_of, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.columns.learn import ColumnLearner
    from streams.operators.contract import Effects

learn = pytest.importorskip("streams.columns.learn", reason="Skysail has been installed without a compiler")

COMPILED = tuple(
    registry.spec(registry.parse(text))
    for text in (
        "exp3",
        "exp3(eta=0.3,share=0.01)",
        "epsilon_greedy",
        "ucb1",
        "discounted_ucb",
        "thompson",
        "single",
        "exp4",
        "exp4(eta=2.0,share=0.0)",
        "timely",
        "class_vote",
        "class_vote(classes=3,discount=1.0)",
    )
)
OTHERS = ("exp3(eta=0.05,gamma=0.05,share=0.0)", "linucb", "no policy", "exp3(")
APPLICATIONS = dict(
    zip(
        ("exp", "mix", "eps", "ucb", "dis", "tho", "sin", "votes", "moved", "late", "words", "few"),
        COMPILED,
        strict=True,
    )
) | {"users": COMPILED[0], "users-forgotten": COMPILED[5], "users-all": COMPILED[7], "users-words": COMPILED[11]}
APPLICATIONS |= {"bounded": COMPILED[5], "users-bounded": COMPILED[0], "users-voting": COMPILED[7]}
BOUNDED = {"bounded": (3, 0), "users-bounded": (4, 2), "users-voting": (0, 2)}  # lessons of a teacher, of a context
TOGETHER = ("exp4", "timely", "class_vote")  # their models are asked together
LABELS = (*range(9), -(2**63), 2**63 - 1, "7", "é", "", None)
WINDOW_US = 50_000_000


def pair(**bounds: int) -> tuple[Learner, ColumnLearner]:
    """Return a learner, and one over columns."""
    columns = learn.columns_for_learner(Learner(CODEC, WINDOW_US, **bounds), CODEC, unpacked)
    assert columns is not None
    return Learner(CODEC, WINDOW_US, **bounds), columns


@dataclass
class Log:
    """Makes observations; offsets go on.

    Attributes:
        random: what is drawn with.
        odd: share of what is not common.
    """

    random: Random
    odd: float
    now_us: int = BEGIN_US
    ids: int = 0
    offsets: list[int] = field(default_factory=lambda: [0, 0])

    def is_odd(self) -> bool:
        """Draw whether something is not common."""
        return self.random.random() < self.odd

    def observation(self, application: str) -> Observation:
        """Return an observation, mostly of a policy that is compiled, of one arm."""
        draw, odd = self.random, self.is_odd()
        self.ids += 1
        query_id = f"q{draw.randrange(self.ids)}" if odd and draw.random() < 0.3 else f"q{self.ids}é"
        policy = APPLICATIONS[application] if not odd else draw.choice(COMPILED + OTHERS)
        context = draw.choice(("ann", "bö", "c")) if application.startswith("users") else None
        shares = draw.choice(((0.25, 0.25, 0.5), (0.0, 1.0, 0.0), (0.1, 0.2, 0.7), (1e-12, 0.5, 0.5)))
        arm, loss = draw.randrange(3), draw.choice((0.0, 1.0, 0.5, 0.1, draw.random(), None if odd else 1.0))
        state = application if context is None else f"{application}/{context}"
        losses = tuple([loss if each == arm else None for each in range(3)])
        chosen: tuple[int, ...] = (arm,)
        if policy.startswith(TOGETHER) and draw.random() < 0.9:
            chosen, shares = (0, 1, 2), (1.0, 1.0, 1.0)
            losses = (draw.choice((loss, draw.random(), None)), loss, draw.choice((0.0, draw.random(), None)))
        decision = Decision(chosen, 7, state, policy, MODELS, shares)
        served = draw.choice((loss, None))
        status = draw.choice((JoinStatus.JOINED, JoinStatus.JOINED, JoinStatus.DEFAULT))
        label = draw.choice((None, 3, "three", 0.5))
        forget_us = 3_000_000 if application == "users-forgotten" else 0
        observed_us = self.now_us + draw.choice((0, -1_000_000, 500))
        made = Observation(
            query_id, application, context, decision, losses, served, label, status, self.now_us, observed_us
        )._replace(forget_us=forget_us, span=2.0 if application in {"sin", "votes"} else None)
        if policy.startswith("class_vote") and draw.random() < 0.9:
            made = made._replace(answers=tuple([draw.choice(LABELS) for _ in MODELS]))
        if application in BOUNDED:
            made = made._replace(bound=TeachingBound(draw.choice(("", "web", "é" * 90)), *BOUNDED[application]))
            if context is not None and draw.random() < 0.3:  # contexts that share a state
                made = made._replace(decision=made.decision._replace(state=application))
        return self.changed(made) if odd else made

    def changed(self, made: Observation) -> Observation:
        """Return an observation that is not of the common form, perhaps."""
        draw, decision = self.random, made.decision
        changes: list[dict[str, Any]] = [
            {},
            {"decision": decision._replace(apprentice="ucb1(exploration=2.0)")},
            {"decision": decision._replace(apprentice=decision.policy)},
            {"decision": decision._replace(features=(1.0,))},
            {"decision": decision._replace(stable=(1.0, 0.5, 0.0))},
            {"decision": decision._replace(chosen=(0, 2))},
            {"decision": decision._replace(chosen=(0, 1, 2))},
            {"decision": decision._replace(chosen=(1, 0, 2))},
            {"decision": decision._replace(chosen=())},
            {"decision": decision._replace(chosen=(3,))},
            {"decision": decision._replace(propensities=(0.5, 1.5, 0.1))},
            {"decision": decision._replace(propensities=(0.5, 0.5))},
            {"decision": decision._replace(arms=("c", "a", "bé"))},
            {
                "decision": decision._replace(arms=("a", "bé"), propensities=(0.5, 0.5), chosen=(1,)),
                "losses": (None, 1.0),
            },
            {"decision": decision._replace(arms=("a", "a", "c"))},
            {"losses": (1.0, 0.0, 0.5)},
            {"losses": (2.0, 2.0, 2.0)},
            {"losses": (1.0,)},
            {"answers": (1, None, "x")},
            {"span": 2.0},
            {"bound": TeachingBound("web", draw.choice((-1, 0, 1, 2**31 - 1)), draw.choice((0, 1)))},
            {"confidence": 0.75},
            {"confidence": 1.75},
            {"label_set": LabelSet((3,), False, 0.9, 0.1, 0.5, (1.0,)), "label": 3},  # its fields stand in its record
            {"steps": (Step("hedge", (1,), 5, 0.5, "asked"),)},
            {"first": (0.5, 0.5)},
            {"context": "else"},
            {"observed_us": draw.choice((-(2**63), 2**63 - 1))},
            {"forget_us": draw.choice((1, 2**62, -5))},
        ]
        return made._replace(**draw.choice(changes))

    def record(self, partition: int) -> Record:
        """Return a record of a few observations of one state."""
        draw = self.random
        application = draw.choice([*APPLICATIONS])
        items = [self.observation(application) for _ in range(draw.choice((1, 2, 5, 64)))]
        value: bytes | None = CODEC.encode(Observations(tuple(items)) if len(items) > 1 or self.is_odd() else items[0])
        if self.is_odd() and draw.random() < 0.1:
            assert value is not None
            at = draw.randrange(len(value))
            value = draw.choice(
                (None, value[:at], value[:at] + bytes([value[at] ^ 4]) + value[at + 1 :], value + b"\0")
            )
        headers = (("trace", b"x"),) if self.is_odd() and draw.random() < 0.2 else ()
        offset, self.offsets[partition] = self.offsets[partition], self.offsets[partition] + 1
        stamp_us = (self.now_us - draw.choice((0, 0, 20_000_000))) // 1000 * 1000
        return Record(topics.OBSERVATIONS, partition, offset, stamp_us, application.encode(), value, headers)

    def poll(self) -> list[list[Record]]:
        """Return some runs of records."""
        self.now_us += self.random.choice((0, 1_000_000, 5_000_000, 60_000_000))
        draw = self.random
        partitions = [draw.randrange(2) for _ in range(draw.choice((1, 2, 3)))]
        return [[self.record(partition) for _ in range(draw.randrange(1, 8))] for partition in partitions]

    def fetched(self, runs: list[list[Record]]) -> list[Record | Batch]:
        """Return the same as batches, and as records."""
        found: list[Record | Batch] = []
        for run in runs:
            if self.is_odd() and self.random.random() < 0.2:
                found += run
                continue
            data, first, end = batch_of(run), run[0].offset, run[-1].offset + 1
            cut = self.random.randrange(first, end + 1)
            found += [
                Batch(run[0].topic, run[0].partition, *piece, data)
                for piece in ((first, cut), (cut, end))
                if piece[0] < piece[1]
            ]
        return found


def outcome(effects: Effects) -> dict[str, list[Any]]:
    """Return effects by kind, in order; `repr` tells each bit of a number."""
    return {
        kind.__name__: [repr(_plain(each)) for each in sorted((e for e in effects if isinstance(e, kind)), key=_order)]
        for kind in (DeadLetter, FetchStates, WriteStates)
    }


def _plain(effect: DeadLetter | FetchStates | WriteStates) -> object:
    """Return the effect with all that it completes in one form."""
    if not isinstance(effect, WriteStates):
        return effect
    spanned = [Position(*span[:2], offset) for span in effect.spans for offset in range(span.begin, span.end)]
    return effect._replace(completes=tuple(sorted([*effect.completes, *spanned])), spans=())


def _order(effect: DeadLetter | FetchStates | WriteStates) -> tuple[int, int]:
    """Return what tells the order that counts: a partition's writes are in order, and each dead letter is by itself."""
    if isinstance(effect, DeadLetter):
        return effect.record.partition, effect.record.offset
    return (effect.keys[0] if isinstance(effect, FetchStates) else effect).partition, 0


def counted(statistics: Mapping[str, float]) -> dict[str, str]:
    """Return statistics without those about columns."""
    return {name: repr(value) for name, value in statistics.items() if "columns_total" not in name}


def lived(log: Log, alone: Learner, columns: ColumnLearner, polls: int) -> None:
    """Let both take the same polls, and compare them after each."""
    stored: dict[StateKey, PolicyState] = {}
    for kernel in (alone, columns):
        kernel.on_partitions({0: 0, 1: 3})
    for _ in range(polls):
        runs = log.poll()
        fetched = log.fetched(runs)
        expected = alone.on_records([record for run in runs for record in run], log.now_us)
        found = columns.on_records(fetched, log.now_us)
        assert outcome(found) == outcome(expected)
        while expected:
            answers: dict[StateKey, PolicyState | None] = {}
            for effect in expected:
                if isinstance(effect, WriteStates):
                    stored |= {StateKey(effect.partition, name): state for name, state in effect.states.items()}
                elif isinstance(effect, FetchStates):
                    answers |= {key: stored.get(key) for key in effect.keys}
            if not answers or (log.is_odd() and log.random.random() < 0.5):
                break  # the store takes longer
            expected = alone.on_states(answers, log.now_us)
            assert outcome(columns.on_states(answers, log.now_us)) == outcome(expected)
        assert counted(columns.statistics()) == counted(alone.statistics())
        assert columns.needs() == alone.needs()
        if log.is_odd() and log.random.random() < 0.2:
            start = max(0, log.offsets[0] + log.random.choice((-3, 0, 3)))
            for kernel in (alone, columns):
                kernel.on_partitions({0: None})
                kernel.on_partitions({0: start})
    assert outcome(columns.on_timer(log.now_us + 10**7)) == outcome(alone.on_timer(log.now_us + 10**7))


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.02, 0.3, 0.9]))
def test_columns_and_what_they_leave_are_what_the_kernel_makes_alone(seed: int, odd: float) -> None:
    """The same writes, to the last bit; the same dead letters and counts; the same memory afterwards."""
    lived(Log(Random(seed), odd), *pair(), polls=8)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.3]))
def test_with_little_memory_for_states_the_same_are_asked_for(seed: int, odd: float) -> None:
    """What is used last stays."""
    lived(Log(Random(seed), odd), *pair(capacity=4), polls=8)


def test_common_observations_go_by_columns() -> None:
    """Nearly all of them; else the other laws would hold of nothing."""
    log, (alone, columns) = Log(Random(1), 0.0), pair()
    lived(log, alone, columns, polls=150)
    assert columns.taken > 0.8 * log.ids, columns.statistics()


def test_a_bound_that_is_no_number_of_its_schema_makes_a_dead_letter() -> None:
    """It has 32 bits."""
    seen, most = Log(Random(1), 0.0).observation("sin"), 2**31 - 1
    good = CODEC.encode(seen._replace(bound=TeachingBound("web", most, 0)))
    found = []
    for kernel in (alone := Learner(CODEC), learn.columns_for_learner(Learner(CODEC), CODEC, unpacked)):
        assert kernel is not None
        kernel.on_partitions({0: 0})
        value = good.replace(write_long(most), write_long(most + 1))
        row = Record(topics.OBSERVATIONS, 0, 0, BEGIN_US, None, value)
        found.append(
            outcome(kernel.on_records([row] if kernel is alone else [Batch(*row[:2], 0, 1, batch_of([row]))], 1))
        )
    assert found[0]["DeadLetter"]
    assert found[0] == found[1]


def test_where_records_are_written_otherwise_there_are_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a change of a schema that columns do not know of."""
    observed = learn.example(1, None).observation._replace(label=None)
    monkeypatch.setattr(learn, "example", lambda *_: Example(None, None, observed._replace(first=(0.5,))))  # type: ignore[arg-type]
    assert learn.columns_for_learner(Learner(CODEC), CODEC, unpacked) is None


@pytest.mark.parametrize("policy", COMPILED)
@pytest.mark.parametrize("arms", [1, 2, 5])
def test_a_state_is_the_same_to_the_last_bit(policy: str, arms: int) -> None:
    """After twenty thousand lessons of every size."""
    draw, names = Random(arms), tuple(f"model-{arm}" for arm in range(arms))
    (alone, columns), at = pair(), 0
    for kernel in (alone, columns):
        kernel.on_partitions({0: 0})
    for poll in range(41):
        rows = []
        for _ in range(1 if not poll else 8):
            seen = []
            for _ in range(64):
                at += 1
                arm, parts = draw.randrange(arms), [draw.random() for _ in names]
                shares = tuple([part / sum(parts) for part in parts])
                loss = draw.choice((0.0, 1.0, draw.random(), draw.random() ** 9, None))
                losses = tuple([loss if each == arm else None for each in range(arms)])
                chosen: tuple[int, ...] = (arm,)
                if policy.startswith(TOGETHER):
                    chosen = tuple(range(arms))
                    losses = tuple([draw.choice((loss, draw.random(), None)) for _ in range(arms)])
                decision = Decision(chosen, at, "app", policy, names, shares)
                one = Observation(f"{at}", "app", None, decision, losses, loss, None, JoinStatus.JOINED, at, BEGIN_US)
                if policy.startswith("class_vote"):
                    one = one._replace(answers=tuple([draw.choice(LABELS) for _ in names]))
                seen.append(one)
            rows.append(
                Record(
                    topics.OBSERVATIONS,
                    0,
                    8 * poll + len(rows),
                    BEGIN_US,
                    None,
                    CODEC.encode(Observations(tuple(seen))),
                )
            )
        rows = [row._replace(offset=at) for at, row in enumerate(rows, 1 + 8 * (poll - 1) if poll else 0)]
        expected = alone.on_records(rows, 1)
        found = columns.on_records(
            [Batch(topics.OBSERVATIONS, 0, rows[0].offset, rows[-1].offset + 1, batch_of(rows))], 1
        )
        if not poll:
            key = StateKey(0, "app")
            expected, found = alone.on_states({key: None}, 1), columns.on_states({key: None}, 1)
        assert outcome(found) == outcome(expected)
    assert columns.taken == 40 * 8 * 64
    assert counted(columns.statistics()) == counted(alone.statistics())


@pytest.mark.parametrize("keys", [(0.0, key_of(9), 7.0), (key_of(9), key_of(9), 0.0), (key_of(9), 0.0, key_of(9))])
def test_classes_that_nobody_has_counted_so_are_the_kernels(keys: tuple[float, ...]) -> None:
    """With a gap, or twice: a state in a store may hold anything."""
    policy, (alone, columns) = registry.spec(registry.parse("class_vote(classes=3)")), pair()
    given = PolicyState(policy, MODELS, 3, (*keys, *(1.5,) * 30))
    for offset in range(3):
        decision = Decision((0, 1, 2), 1, "app", policy, MODELS, (1.0,) * 3)
        seen = Observation(
            f"{offset}",
            "app",
            None,
            decision,
            (0.0, 1.0, 0.5),
            0.5,
            None,
            JoinStatus.JOINED,
            1,
            BEGIN_US,
            (9, None, 9),
        )
        record = Record(topics.OBSERVATIONS, 0, offset, BEGIN_US, None, CODEC.encode(seen))
        for kernel in (alone, columns) if not offset else ():
            kernel.on_partitions({0: 0})
        expected = alone.on_records([record], 1)
        found = columns.on_records([Batch(topics.OBSERVATIONS, 0, offset, offset + 1, batch_of([record]))], 1)
        if not offset:
            expected, found = (kernel.on_states({StateKey(0, "app"): given}, 1) for kernel in (alone, columns))
        assert outcome(found) == outcome(expected)
    assert counted(columns.statistics()) == counted(alone.statistics())
    assert any("why=state" in name for name in columns.statistics())
