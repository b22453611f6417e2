"""Incremental fetches (KIP-227): a broker remembers what it was asked for, so that only what changed is said again.

    everything, epoch 0 ──▶ session ──▶ changed offsets, epoch 1 ──▶ what has news ──▶ changed offsets, epoch 2 ...

A role follows a dozen partitions and news come on one of them: without sessions each fetch names them all, twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.runtime.kafka.fast.protocol import Place

_BEGIN: Final = 0  # epoch of a fetch of everything, which begins a session and ends the one that it names
_LAST: Final = 2**31 - 1
# A broker forgets sessions when others need the room, or when it is started again.
FORGOTTEN: Final = frozenset({70, 71})  # FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH


class FetchAsk(NamedTuple):
    """What to say in a fetch.

    Attributes:
        session: number of the session, 0 = none yet.
        epoch: of the fetch in it.
        offsets: all partitions, or those whose offset the broker does not know.
    """

    session: int
    epoch: int
    offsets: Mapping[Place, int]

    @property
    def is_whole(self) -> bool:
        """Whether all partitions are named."""
        return self.epoch == _BEGIN


@dataclass(slots=True)
class _Session:
    number: int
    epoch: int
    offsets: Mapping[Place, int]


class FetchSessions:
    """One session for each broker; at most one fetch of a broker is under way."""

    def __init__(self) -> None:
        self._sessions: dict[int, _Session] = {}

    def ask(self, node: int, offsets: Mapping[Place, int]) -> FetchAsk:
        """Return how to fetch from these offsets; with other partitions than before a new session begins."""
        session = self._sessions.get(node)
        if session is None:
            return FetchAsk(0, _BEGIN, offsets)
        known = session.offsets
        if known.keys() != offsets.keys():
            return FetchAsk(session.number, _BEGIN, offsets)
        changed = {place: offset for place, offset in offsets.items() if known[place] != offset}
        return FetchAsk(session.number, session.epoch, changed)

    def answered(self, node: int, number: int, offsets: Mapping[Place, int]) -> None:
        """Note that a fetch from these offsets was answered, in which session; 0 = the broker keeps none."""
        session = self._sessions.get(node)
        if not number:
            self._sessions.pop(node, None)
        elif session is None or session.number != number or session.offsets.keys() != offsets.keys():
            self._sessions[node] = _Session(number, 1, offsets)
        else:
            session.epoch = session.epoch % _LAST + 1
            session.offsets = offsets

    def end(self, node: int) -> None:
        """Begin anew with the next fetch, which names the old session: else the broker would keep it for minutes."""
        session = self._sessions.get(node)
        if session is not None:
            session.offsets = {}

    def clear(self) -> None:
        """Begin anew with every broker."""
        for node in self._sessions:
            self.end(node)
