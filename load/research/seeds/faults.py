"""Kinds of faults, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas import topics
from streams.topology import worker_role

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random


_TOPICS = (
    topics.QUERIES,
    topics.model_queries("good"),
    topics.model_queries("bad"),
    topics.MODEL_PREDICTIONS,
    topics.PREDICTIONS,
    topics.FEEDBACK,
    topics.OBSERVATIONS,
    topics.dead_letters(topics.QUERIES),
    topics.dead_letters(topics.FEEDBACK),
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong for a while.

    Attributes:
        at_s: when it begins.
        kind: see `nemesis`.
        for_s: how long it lasts.
        target: a process, topic, partition or group, where the kind has one.
        amount: how bad it is, where that can be said.
    """

    at_s: float
    kind: str
    for_s: float = 0.0
    target: str = ""
    amount: float = 0.0


# How long each kind lasts (s), and how bad it is, at least and at most; see `nemesis` for what they do.
_BRIEF, _LASTING = (0.05, 5.0), (1.0, 60.0)
_KINDS: Mapping[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "kill": ((0.2, 30.0), (0, 0)),
    "halt": ((0.5, 45.0), (0, 0)),
    "restart": ((0.1, 5.0), (0, 0)),
    "broker_away": (_LASTING, (0, 0)),
    "broker_blinks": (_BRIEF, (0, 0)),
    "topic_missing": (_LASTING, (0, 0)),
    "unavailable": (_LASTING, (0, 0)),
    "commits_refused": (_LASTING, (0, 0)),
    "unsure": (_LASTING, (0.05, 0.7)),
    "slow": (_LASTING, (0.02, 0.5)),
    "store_away": (_LASTING, (0, 0)),
    "store_lossy": (_LASTING, (0.1, 0.7)),
    "store_slow": (_LASTING, (0.05, 0.5)),
    "store_forgets": ((0.01, 1.0), (0, 0)),
    "clock_steps": ((0, 0), (-10.0, 10.0)),
    "transaction": ((0, 0), (0, 0)),
    "overtaken": (_LASTING, (0, 0)),
}
# Those that last for longer than anybody waits, in seeds of an hour.
_LONG_KINDS = ("broker_away", "unavailable", "topic_missing", "store_away", "commits_refused")
_LONG_S = (2_200.0, 2_500.0)


def drawn(random: Random, length_s: float, replicas: Mapping[str, int], *, is_long: bool) -> tuple[Fault, ...]:
    """Draw faults for a stretch of time: of a few kinds, so that each kind has seeds to itself."""
    kinds = random.sample(sorted(_KINDS), random.randint(1, 6))
    every_s = random.uniform(20.0, 240.0)
    found = []
    at_s = random.uniform(3.0, every_s)
    while at_s < length_s * 0.9:
        kind = random.choice(kinds)
        for_s, amount = _KINDS[kind]
        target = _target(random, kind, replicas)
        found.append(Fault(at_s, kind, random.uniform(*for_s), target, random.uniform(*amount)))
        at_s += random.expovariate(1 / every_s)
    if is_long:
        kind = random.choice(_LONG_KINDS)
        found.append(
            Fault(random.uniform(60.0, 600.0), kind, random.uniform(*_LONG_S), _target(random, kind, replicas))
        )
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def struck_down(random: Random, length_s: float, replicas: Mapping[str, int]) -> tuple[Fault, ...]:
    """Draw processes that are killed when so many of their messages have arrived: none to some ten, in half of all."""
    roles = ("selection", "selection", "joiner", "learner")
    found, is_drawn, every_s = [], random.random() < 0.5, random.uniform(30.0, 240.0)
    at_s = random.uniform(3.0, every_s)
    while at_s < length_s * 0.9:
        role = random.choice(roles)
        name = f"{role}.{random.randrange(replicas[role])}"
        found.append(Fault(at_s, "kill_at", random.uniform(0.2, 10.0), name, random.randint(1, 12)))
        at_s += random.expovariate(1 / every_s)
    return tuple(found) if is_drawn else ()


def _target(random: Random, kind: str, replicas: Mapping[str, int]) -> str:  # noqa: PLR0911 - one line a kind
    role = random.choice(sorted(replicas))
    match kind:
        case "kill" | "halt" | "restart":
            return f"{role}.{random.randrange(replicas[role])}"
        case "commits_refused":
            return role
        case "topic_missing":
            return random.choice(_TOPICS)
        case "transaction":  # of who asks or tells
            return f"{random.choice((topics.QUERIES, topics.FEEDBACK))}-{random.randrange(2)}"
        case "overtaken":  # what is asked of models is kept for the shortest time
            workers = [role for role in replicas if role.startswith("worker.")]
            return random.choice(sorted(workers or map(worker_role, ("good", "bad"))))
        case "unavailable":
            return f"{random.choice(_TOPICS)}-{random.randrange(2)}"
    return ""
