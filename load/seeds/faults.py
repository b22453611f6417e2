"""What goes wrong: kinds of faults, and how they are drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from random import Random


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that goes wrong for a while.

    Attributes:
        at_s: when it begins.
        kind: see `world.Nemesis`.
        for_s: how long it lasts.
        target: a process, topic, partition or group, where the kind has one.
        amount: how bad it is, where that can be said.
    """

    at_s: float
    kind: str
    for_s: float = 0.0
    target: str = ""
    amount: float = 0.0


def drawn(random: Random, length_s: float, replicas: Mapping[str, int], *, is_long: bool) -> tuple[Fault, ...]:
    """Draw faults for a stretch of time."""
    return ()
