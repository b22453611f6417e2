"""Where tapes end, and so what may have been written that none of them tells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# Of a process that was killed this much of its tape is lost, and so long after its last call it may have written.
LOST_US: Final = 2_000_000
WRITING_US: Final = 30_000_000
# One that stood still, or had nothing to do, went on and was killed had no time for a call: it wrote so long before
# another one began in its place. That is not the next one of its role where the role has several processes.
RESTART_US: Final = 60_000_000


class TapeEnd(NamedTuple):
    """How a tape ends.

    Attributes:
        role: whose it is; empty = not known, as it begins before the trace.
        last_us: when its last call was.
        torn_us: since when it is not played; None = it is, to its end.
        is_stopped: whether its process has stopped, so that nothing is lost.
        begun_us: when its first call was.
        nexts_us: when other processes of its role have begun since: it may have gone on just before any of them.
    """

    role: str
    last_us: int
    torn_us: int | None
    is_stopped: bool
    begun_us: int = 0
    nexts_us: tuple[int, ...] = ()

    def may_have_written(self, role: str, from_us: int, until_us: int) -> bool:
        """Tell whether its process may have written, as this role, what the tape does not tell."""
        if self.role not in ("", role):
            return False
        if self.torn_us is None and self.is_stopped:
            return False
        end_us = self.last_us if self.torn_us is None else self.torn_us
        spans = [(end_us - LOST_US, self.last_us + WRITING_US)]
        spans += [(next_us - RESTART_US, next_us) for next_us in self.nexts_us]
        return any(until_us >= begin and from_us <= end for begin, end in spans)


class TapeEnds(NamedTuple):
    """How all tapes end.

    Attributes:
        tapes: by name.
        clocks_us: how far the clocks of those who wrote may have been apart.
    """

    tapes: Mapping[str, TapeEnd]
    clocks_us: int

    def may_have_written(self, role: str, time_us: int) -> bool:
        """Tell whether a role may have written something at a time that no tape tells."""
        if all(tape.role != role for tape in self.tapes.values()):
            return True
        span = time_us - self.clocks_us, time_us + self.clocks_us
        return any(tape.may_have_written(role, *span) for tape in self.tapes.values())

    def are_several(self, role: str) -> bool:
        """Tell whether several processes have had a role, one after the other or at a time."""
        return sum(tape.role in ("", role) for tape in self.tapes.values()) > 1

    def may_be_unwritten(self, tape: str, now_us: int, is_silent: Callable[[int, int], bool]) -> bool:
        """Tell whether what came of a call may not have been written any more.

        It was one of the last of its tape; or its process did not stop by itself, and until then nobody wrote to that
        partition.

        Args:
            tape: whose call it was.
            now_us: when.
            is_silent: tells whether nothing was written to the partition in a time.
        """
        its = self.tapes[tape]
        if its.last_us - now_us <= WRITING_US:
            return True
        return not its.is_stopped and is_silent(now_us + self.clocks_us, its.last_us - self.clocks_us)


def ends_of(tapes: Mapping[str, TapeEnd], clocks_us: int) -> TapeEnds:
    """Return how tapes end, each with when others of its role begin behind it."""
    found: dict[str, TapeEnd] = {}
    for name, tape in tapes.items():
        later = [one.begun_us for one in tapes.values() if one.role == tape.role and one.begun_us > tape.last_us]
        found[name] = tape._replace(nexts_us=tuple(later))
    return TapeEnds(found, clocks_us)
