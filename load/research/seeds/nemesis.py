"""Causes the faults of a plan."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from load.research.seeds.members import RESTART_S
from load.research.seeds.plan import HOST
from schemas import topics
from streams.testing.virtual import later

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

    from load.research.seeds.faults import Fault
    from load.research.seeds.members import Member, Wall
    from streams.testing.broker import FakeBroker
    from streams.testing.stores import SharedStore

_FASTEST_S = 0.001
_Mark = TypeVar("_Mark")


class Nemesis:
    """Strikes; what it does to broker and store ends by itself."""

    def __init__(
        self,
        broker: FakeBroker,
        store: SharedStore,
        members: Mapping[str, Member],
        wall: Wall,
        note: Callable[[str], None],
    ) -> None:
        self._broker = broker
        self._weather = broker.weather
        self._store = store
        self._members = members
        self._wall = wall
        self._note = note
        self._usual = (self._weather.leg_s, store.weather.leg_s)

    def strike(self, fault: Fault) -> None:
        """Begin a fault."""
        self._note(f"{fault.kind} {fault.target} {fault.amount:.3f} for {fault.for_s:.3f} s")
        if fault.kind in {"kill", "halt", "restart"}:
            member = self._members[fault.target]
            {"kill": member.kill, "halt": member.halt, "restart": member.restart}[fault.kind](fault.for_s)
            return
        if fault.kind == "kill_at":
            self._members[fault.target].kill_at(round(fault.amount), fault.for_s)
            return
        end = self._begin(fault)
        if end is not None:
            later(fault.for_s, partial(self._end, fault, end))

    def _end(self, fault: Fault, end: Callable[[], object]) -> None:
        """End a fault; who waits for records finds those that came meanwhile."""
        end()
        self._note(f"{fault.kind} {fault.target} is over")
        self._broker.clear_up()

    def _begin(self, fault: Fault) -> Callable[[], object] | None:  # noqa: C901, PLR0911, PLR0912 - one line a kind
        weather, store = self._weather, self._store.weather
        match fault.kind:
            case "broker_away" | "broker_blinks":
                return _counted(weather, "away")
            case "store_away":
                return _counted(store, "away")
            case "topic_missing":
                return _marked(weather.missing, fault.target)
            case "unavailable":
                topic, _, number = fault.target.rpartition("-")
                return _marked(weather.unavailable, (topic, int(number)))
            case "commits_refused":
                return _marked(weather.deaf, fault.target)
            case "unsure":
                return _set(weather, "unsure", fault.amount, 0.0)
            case "slow":
                return _set(weather, "leg_s", (_FASTEST_S, fault.amount), self._usual[0])
            case "store_lossy":
                return _set(store, "lossy", fault.amount, 0.0)
            case "store_slow":
                return _set(store, "leg_s", (_FASTEST_S, fault.amount), self._usual[1])
            case "store_forgets":
                return self._forgetting()
            case "clock_steps":
                self._wall.ahead_us += int(fault.amount * 1e6)
                return None
            case "transaction":
                topic, _, number = fault.target.rpartition("-")
                self._broker.mark(topic, int(number))
                return None
            case "overtaken":
                return self._overtaking(fault)
        raise ValueError(f"there is no fault {fault.kind!r}")

    def _overtaking(self, fault: Fault) -> Callable[[], object]:
        """Keep a model's workers down until Kafka has deleted the queries asked of it meanwhile."""
        for member in self._members.values():
            if member.role in (fault.target, HOST):
                member.kill(fault.for_s + RESTART_S)
        topic = topics.model_queries(fault.target.removeprefix("worker."))
        return lambda: self._broker.retain_nothing(topic)

    def _forgetting(self) -> Callable[[], object]:
        """Return what puts the store back to what it is now."""
        inner = self._store.inner
        before = {name: copy(value) for name, value in vars(inner).items()}
        return lambda: vars(inner).update(before)


def _counted(weather: object, name: str) -> Callable[[], object]:
    setattr(weather, name, getattr(weather, name) + 1)
    return lambda: setattr(weather, name, getattr(weather, name) - 1)


def _marked(marks: Counter[_Mark], mark: _Mark) -> Callable[[], object]:
    marks[mark] += 1
    return lambda: marks.subtract([mark])


def _set(weather: object, name: str, value: object, usual: object) -> Callable[[], object]:
    setattr(weather, name, value)
    return lambda: setattr(weather, name, usual)
