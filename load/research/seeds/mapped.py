"""Topics of others in a deployment: an application that maps them, and faults of its own.

orders ─▶ mapping ─▶ queries … predictions ─▶ mapping ─▶ scored       truths ─▶ mapping ─▶ feedback

Drawn by a generator of its own, so that other seeds stay as they were.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Any, Final

from load.research.seeds.faults import Fault
from schemas import topics
from schemas.records import Application

if TYPE_CHECKING:
    from collections.abc import Mapping

ORDERS, TRUTHS, SCORED = (topics.outside(name) for name in ("orders", "truths", "scored"))
ROLE: Final = "mapping"
NAME: Final = "mapped"
NEW: Final = "new"  # the state of an order that is meant
_SHARE = 0.25  # of the seeds
_POLICIES = ("exp3", "thompson", "epsilon_greedy", "exp4", "class_vote")
# What goes wrong with the role and its topics, and for how long (s).
_WRONG: Mapping[str, tuple[float, float]] = {
    "kill": (0.2, 30.0),
    "halt": (0.5, 45.0),
    "restart": (0.1, 5.0),
    "kill_at": (0.2, 10.0),
    "topic_missing": (1.0, 60.0),
    "unavailable": (1.0, 60.0),
    "commits_refused": (1.0, 60.0),
    "transaction": (0.0, 0.0),
}


@dataclass(frozen=True, slots=True)
class Mapped:
    """What a seed has of other topics.

    Attributes:
        application: that maps them.
        changed: the same with another objective, from a time on (s); None = it stays as it is.
        processes: of role mapping.
        partitions: by topic.
        rate: orders for each query that clients ask.
        faults: of the role and its topics.
    """

    application: Application
    changed: tuple[float, Application] | None
    processes: int
    partitions: Mapping[str, int]
    rate: float
    faults: tuple[Fault, ...]

    @property
    def spec(self) -> Mapping[str, Any]:
        """What is mapped."""
        spec: Mapping[str, Any] = json.loads(self.application.mapping)
        return spec

    @property
    def is_keyed(self) -> bool:
        """Whether an order's user is its context."""
        return "key" in self.spec["from"]


def drawn_mapping(seed: int, length_s: float, models: tuple[str, ...]) -> Mapped | None:
    """Draw what one seed in four has of other topics."""
    random = Random(f"mapping {seed}")  # noqa: S311
    if random.random() >= _SHARE:
        return None
    application = _application(random, models)
    changed = replace(application, slo_ms=random.choice((150.0, 500.0)))
    processes = random.choice((1, 2, 2))
    partitions = {ORDERS: random.randint(1, 3), TRUTHS: random.randint(1, 2), SCORED: random.randint(1, 3)}
    return Mapped(
        application=application,
        changed=(random.uniform(0.3, 0.7) * length_s, changed) if random.random() < 0.5 else None,
        processes=processes,
        partitions=partitions,
        rate=random.choice((0.1, 0.5, 1.0)),
        faults=_faults(random, length_s, processes, partitions),
    )


def mapping_of(random: Random) -> Mapping[str, Any]:
    """Draw which fields are what."""
    begin = random.choice(("earliest", "latest"))
    key, order_key = random.choice((({}, {}), ({"key": "user"}, {"key": "order.user"})))
    asks = {"topic": topics_name(ORDERS), "id": "id", "input": ["number"], "where": f"state = '{NEW}'", "begin": begin}
    shown = {"query": "id", "answer": "answer", "status": "status", "models": "models"}
    answers = {"topic": topics_name(SCORED), "fields": shown, "keep": random.choice((["id", "number"], "all"))}
    if random.random() < 0.25:
        answers["where"] = "status <> 'default'"
    told = {"topic": topics_name(TRUTHS), "id": "order.id", "label": "label", "begin": begin, **order_key}
    return {"from": asks | key, "to": answers, "feedback": [told]}


def topics_name(topic: str) -> str:
    """Return what others call a topic of theirs."""
    return topic.removeprefix(topics.OUTSIDE)


def _application(random: Random, models: tuple[str, ...]) -> Application:
    mapping = mapping_of(random)
    return Application(
        name=NAME,
        models=models,
        policy=random.choice(_POLICIES),
        per_context="key" in mapping["from"] and random.random() < 0.5,
        slo_ms=random.choice((300.0, 1_000.0)),
        default_output=-1,
        window_s=random.choice((5.0, 20.0, 60.0)),
        default_loss=random.choice((None, 1.0)),
        mapping=json.dumps(mapping),
    )


def _faults(random: Random, length_s: float, processes: int, partitions: Mapping[str, int]) -> tuple[Fault, ...]:
    """Draw what goes wrong here, in three of four seeds that map: it is beside all else."""
    is_drawn, every_s, found = random.random() < 0.75, random.uniform(60.0, 300.0), []
    at_s = random.uniform(3.0, every_s)
    while at_s < 0.9 * length_s:
        kind, topic = random.choice(sorted(_WRONG)), random.choice(sorted(partitions))
        target = {"topic_missing": topic, "commits_refused": ROLE}.get(kind, "")
        if kind in ("unavailable", "transaction"):
            target = f"{topic}-{random.randrange(partitions[topic])}"
        amount = random.randint(1, 12) if kind == "kill_at" else 0.0
        found.append(
            Fault(at_s, kind, random.uniform(*_WRONG[kind]), target or f"{ROLE}.{random.randrange(processes)}", amount)
        )
        at_s += random.expovariate(1 / every_s)
    return tuple(found) if is_drawn else ()
