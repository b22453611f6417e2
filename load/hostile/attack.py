"""What an attack is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from load.hostile.arena import Arena

# Does it; returns what is wrong in a sentence, where it can tell itself.
Strike: TypeAlias = "Callable[[Arena], Coroutine[None, None, str | None]]"


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack or accident.

    Attributes:
        name: as it is asked for by `--only`.
        by: who causes it: client, teacher, broker, store, model or operator.
        what: it does, in one line.
        strike: does it.
        blow_s: what of the beginning does not count for answers in time: the second of the blow, or, where a process is
            killed, its start.
        watch_s: how long its effects are watched after it was struck.
        ends: roles that it ends itself, by instance.
    """

    name: str
    by: str
    what: str
    strike: Strike
    blow_s: float = 1.0
    watch_s: float = 5.0
    ends: tuple[str, ...] = ()
