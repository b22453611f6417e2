"""Each law of the simulator can fail: a fault is put into the product, and a known seed finds it by that law.

Rules that were really wrong once are in `test_seeds_find.py`. Here are the laws that none of those breaks, each with a
fault that it is for; `FOUND` says where each law is seen failing, and a law that is not there fails a test.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from load.research.operation import seeds
from load.research.seeds.askers import AskerPlan
from load.research.seeds.laws import LAWS
from load.research.seeds.mapped import SCORED
from load.research.seeds.plan import with_askers
from schemas import topics
from streams.client import Client
from streams.gateway.asking import Asking
from streams.mapping.incoming import query_of
from streams.mapping.outgoing import outgoing_row
from streams.operators.contract import DeadLetter, Emit, Skip
from streams.operators.join.observation import observation
from streams.runtime.offsets import OffsetTracker
from streams.runtime.role.effects import Performer
from streams.runtime.role.rebalance import RebalanceHandler
from tests.unit.load import test_seeds_find as find
from tests.unit.load import test_seeds_hosts as hosts
from tests.unit.load.test_seeds_find import broken, mapped, small

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from load.research.seeds.plan import Plan
    from schemas.records import Feedback, Observation, Prediction
    from streams.operators.contract import Effects, Position

pytestmark = pytest.mark.timeout(120)
_ONE_IN = 10


def unwritten(topic: str) -> Callable[[pytest.MonkeyPatch], None]:
    """Return a fault: one in ten records of a topic counts as written, and is not."""

    def put(monkeypatch: pytest.MonkeyPatch) -> None:
        perform, numbers = Performer.perform, count(1)

        def forgetful(self: Performer, effects: Effects) -> None:
            perform(self, [_forgotten(one) for one in effects])

        def _forgotten(one: Any) -> Any:
            is_meant = isinstance(one, Emit) and one.topic == topic and one.completes
            return Skip(one.completes, "forgotten") if is_meant and next(numbers) % _ONE_IN == 0 else one

        monkeypatch.setattr(Performer, "perform", forgetful)

    return put


def mistaught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A joiner that teaches a label which nobody has told."""

    def mistaken(answered: Prediction, told: Feedback, *its: Any) -> Observation | None:
        return observation(answered, told._replace(label=7), *its)

    monkeypatch.setattr("streams.operators.join.outcomes.observation", mistaken)


def uncommitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that commits nothing."""

    async def nothing(_: RebalanceHandler) -> None:
        """Commit nothing."""

    monkeypatch.setattr(RebalanceHandler, "commit", nothing)


def left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker that overhears one completion in ten, and holds what it was of for ever."""
    complete, numbers = OffsetTracker.complete, count(1)

    def deaf(self: OffsetTracker, positions: Iterable[Position]) -> None:
        complete(self, [one for one in positions if next(numbers) % _ONE_IN])

    monkeypatch.setattr(OffsetTracker, "complete", deaf)


def unrefused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A role that passes what it refuses, without a dead letter."""
    perform = Performer.perform

    def lenient(self: Performer, effects: Effects) -> None:
        perform(
            self, [Skip((one.record.position,), "let go") if isinstance(one, DeadLetter) else one for one in effects]
        )

    monkeypatch.setattr(Performer, "perform", lenient)


def crossed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping that puts every answer beside the order of the one before."""
    asked: list[Mapping[str, Any]] = [{}]

    def of_another(prediction: Prediction, row: Mapping[str, Any], *its: Any) -> dict[str, Any] | None:
        asked.append(row)
        return outgoing_row(prediction, asked[-2], *its)

    monkeypatch.setattr("streams.mapping.kernel.outgoing_row", of_another)


def misplaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping that does not know how many partitions there are for its answers."""

    async def none(*_: object) -> dict[str, int]:
        return {}

    monkeypatch.setattr("streams.testing.connections.SimulatedTransport.partitions", none)


def misread(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mapping that asks about another number than the order's."""

    def other(row: Mapping[str, Any], *its: Any, **more: Any) -> Any:
        return query_of({**row, "number": 5}, *its, **more)

    monkeypatch.setattr("streams.mapping.kernel.query_of", other)


def mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that takes whatever answer has the query's id, also one to somebody else."""
    monkeypatch.setattr("streams.client._Awaited.takes", lambda *_: True)


def deaf(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that overhears one poll's answers in three."""
    hear, numbers = Client._answer, count(1)

    def seldom(self: Client, records: Any) -> None:
        if next(numbers) % 3:
            hear(self, records)

    monkeypatch.setattr(Client, "_answer", seldom)


def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that has the answer, and keeps it for 20 s."""
    ask = Asking.ask

    async def late(self: Asking, *question: Any) -> list[Prediction]:
        found = await ask(self, *question)
        await asyncio.sleep(20.0)
        return found

    monkeypatch.setattr(Asking, "ask", late)


def remembering(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that counts its rows, and not that they were answered."""
    ask = Asking.ask

    async def counted(self: Asking, *question: Any) -> list[Prediction]:
        found = await ask(self, *question)
        self.rows += 1
        return found

    monkeypatch.setattr(Asking, "ask", counted)


# By law: the fault that breaks it.
FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "answered": unwritten(topics.PREDICTIONS),
    "feedback": unwritten(topics.OBSERVATIONS),
    "taught": mistaught,
    "committed": uncommitted,
    "memory": left_over,
}
# What a mapping does wrong, and the law that finds it.
MAPPED: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("mapped", unwritten(topics.QUERIES)),
    ("mapped", unwritten(topics.FEEDBACK)),
    ("mapped", misread),
    ("mapped", unrefused),
    ("scored", unwritten(SCORED)),
    ("scored", crossed),
    ("scored", misplaced),
    ("commits", unwritten(SCORED)),
    ("commits", unrefused),
]
# By law: where else it is seen failing.
FOUND: dict[str, Callable[..., None]] = {
    "answered_once": find.test_a_copy_that_is_not_recognised_is_found,
    "deadlines": hosts.test_answers_that_wait_for_a_model_longer_than_they_may_are_found,
    "hosts": hosts.test_one_more_model_than_has_room_is_found,
    "in_time": find.test_windows_that_end_before_their_feedback_was_read_are_found,
    "states": find.test_a_store_that_takes_an_equal_offset_for_its_own_is_found,
    "once": find.test_a_joiner_that_does_not_look_at_what_it_has_written_is_found,
    "evidence": find.test_a_silent_model_that_costs_the_default_loss_is_found,
    "features": find.test_features_that_stand_in_for_others_and_are_not_named_are_found,
    "replayed": find.test_a_replay_without_what_stores_have_answered_is_found,
    "ended": find.test_an_exponent_without_a_bound_is_found,
    "commits": find.test_a_worker_batch_that_completes_one_too_many_is_found,
}


# What the gateway or its client does wrong, and the law that finds it.
GATEWAYS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("heard", mistaken),
    ("heard", deaf),
    ("heard", patient),
    ("memory", remembering),
]


def asked_over_the_gateway() -> Plan:
    """Return a deployment of which two processes of the gateway are asked besides."""
    return with_askers(small(1, 25.0, 4.0), AskerPlan(processes=2, rate=1.0))


@pytest.fixture(autouse=True)
def by_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every role go by its kernel in Python, which the faults are put into."""
    monkeypatch.setattr("load.research.seeds.roles._COLUMNAR", 0.0)


@pytest.mark.parametrize("law", FAULTS)
def test_a_fault_breaks_the_law_that_is_for_it(law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed keeps all laws without it, as the next test says."""
    FAULTS[law](monkeypatch)
    assert law in broken(small(1, 25.0, 4.0))


def test_the_seed_keeps_all_laws_without_a_fault() -> None:
    """The same, as it should be."""
    assert broken(small(1, 25.0, 4.0)) == set()


@pytest.mark.parametrize(("law", "fault"), MAPPED)
def test_what_a_mapping_does_wrong_is_found(
    law: str, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets, crosses, misplaces or misreads what it maps; the next test says that nothing else is wrong."""
    fault(monkeypatch)
    assert law in broken(mapped())


def test_a_mapping_keeps_all_laws_without_a_fault() -> None:
    """The same, as it should be."""
    assert broken(mapped()) == set()


@pytest.mark.parametrize(("law", "fault"), GATEWAYS)
def test_what_a_gateway_does_wrong_is_found(
    law: str, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hands out answers to others, loses them, keeps them, or never forgets them; the next test is without."""
    fault(monkeypatch)
    assert law in broken(asked_over_the_gateway())


def test_a_gateway_keeps_all_laws_without_a_fault() -> None:
    """The same, as it should be."""
    assert broken(asked_over_the_gateway()) == set()


def test_a_simulation_that_breaks_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seeds behind it are run all the same."""

    def breaks(_: object) -> None:
        raise ValueError("as the test says")

    monkeypatch.setattr(seeds, "simulate", breaks)
    assert [law for law, _ in seeds.judged(1).violations] == ["ran"]


def test_every_law_is_seen_failing() -> None:
    """A law that cannot fail says nothing."""
    assert {*FAULTS, *FOUND, *(law for law, _ in MAPPED + GATEWAYS), "ran"} == {*LAWS}
