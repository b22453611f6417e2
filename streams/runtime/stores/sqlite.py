"""Policy states in a file, for a deployment on one machine: no server, the same rules as on Redis.

    states    prefix, partition, name → when it was last taught, PolicyState (bytes)
    offsets   prefix, partition       → next offset of `observations`-<partition> to apply, the last write's token

What was ahead of its log is set aside under the prefix `<prefix>/aside`, and that of the times before it under
`<prefix>/aside:2` and `<prefix>/aside:3`.

States and offset of a write stand in one transaction, and a read sees both of one moment. The file is in SQLite's
write-ahead mode: who reads waits for nobody who writes. A crash of the machine may lose the last transactions, states
and offset alike; the learner then folds again from the log.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeVar

from schemas.errors import DecodeError
from schemas.records import PolicyState
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.stores.base import ASIDE, STAMP_BYTES, StatesRead, WriteResult, stamped, unstamped
from streams.runtime.stores.pruning import Pruned
from streams.topology import SPREAD, TOGETHER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from streams.operators.contract import StateKey, WriteStates
    from streams.runtime.stores.base import StateCodec

T = TypeVar("T")
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS states(
  prefix TEXT, partition INTEGER, name TEXT, value BLOB NOT NULL, PRIMARY KEY(prefix, partition, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS offsets(
  prefix TEXT, partition INTEGER, next INTEGER NOT NULL, token TEXT NOT NULL, PRIMARY KEY(prefix, partition))
  WITHOUT ROWID;
"""
_READ: Final = "SELECT value FROM states WHERE prefix = ? AND partition = ? AND name = ?"
_OFFSET: Final = "SELECT next, token FROM offsets WHERE prefix = ? AND partition = ?"
_ALL: Final = "SELECT name, substr(value, 1, ?), length(value) FROM states WHERE prefix = ? AND partition = ?"
_FORGET: Final = "DELETE FROM states WHERE prefix = ? AND partition = ? AND name = ?"
_EMPTY: Final = "DELETE FROM {} WHERE prefix = ? AND partition = ?"
_MOVE: Final = "UPDATE {} SET prefix = ? WHERE prefix = ? AND partition = ?"
_PRUNE_S: Final = 10.0  # for which it waits for a learner that writes
_PRIVATE: Final = 0o600  # contexts are people, sometimes


class SqliteStore:
    """A store in a file; implements `stores.base.StateStore`. One thread of its own does all that waits for the disk.

    Args:
        file: made if it is not there, for its owner alone.
        prefix: the deployment's; several may share a file.
        codec: of policy states.
        now_s: the time, in seconds.
        timeout_s: how long a call may wait for another process that writes.
    """

    def __init__(
        self,
        file: Path,
        prefix: str,
        codec: StateCodec,
        now_s: Callable[[], float] = time.time,
        timeout_s: float = 0.5,
    ) -> None:
        self._file, self._prefix, self._codec, self._now_s = file, prefix, codec, now_s
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, "states")
        self._connection: sqlite3.Connection | None = None

    async def read(self, keys: Iterable[StateKey]) -> StatesRead:
        """Read states and their offsets in one moment; see `stores.base.StateStore`."""
        wanted = tuple(keys)
        return await self._call(lambda database: self._read(database, wanted))

    async def offset(self, partition: int) -> int | None:
        """Return the next offset to apply; see `stores.base.StateStore`."""
        return await self._call(lambda database: self._stored(database, partition)[0])

    async def write(self, write: WriteStates, token: str) -> WriteResult:
        """Compare and set in one transaction; see `stores.base.StateStore`."""
        return await self._call(lambda database: self._compare_and_set(database, write, token))

    async def set_aside(self, partition: int, offset: int) -> bool:
        """Give states and offset another prefix in one transaction; see `stores.base.StateStore`."""
        return await self._call(lambda database: self._put_aside(database, partition, offset))

    async def close(self) -> None:
        """Close the file; what was asked for before is done first."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    async def _call(self, do: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, lambda: do(self._opened()))
        except (sqlite3.Error, OSError) as fault:
            raise StoreUnavailableError(f"policy states in {self._file}: {fault}") from fault

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = opened(self._file, self._timeout_s)
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _read(self, database: sqlite3.Connection, keys: tuple[StateKey, ...]) -> StatesRead:
        states: dict[StateKey, PolicyState | None] = {}
        unreadable: dict[StateKey, str] = {}
        size = 0
        with _transaction(database, "BEGIN"):
            offsets = {number: self._stored(database, number)[0] for number in {key.partition for key in keys}}
            found = {key: database.execute(_READ, (self._prefix, *key)).fetchone() for key in keys}
        for key, row in found.items():
            size += 0 if row is None else len(row[0])
            try:
                states[key] = None if row is None else self._codec.decode(PolicyState, unstamped(row[0]))
            except DecodeError as fault:
                unreadable[key] = (
                    f"cannot be read ({fault}): another version wrote it, or it is damaged. Run that version; or stop "
                    f"the deployment and remove {self._file}, and all is folded again from the observations"
                )
        return StatesRead(states, offsets, unreadable, size)

    def _stored(self, database: sqlite3.Connection, partition: int) -> tuple[int | None, str]:
        row = database.execute(_OFFSET, (self._prefix, partition)).fetchone()
        return (None, "") if row is None else (int(row[0]), str(row[1]))

    def _compare_and_set(self, database: sqlite3.Connection, write: WriteStates, token: str) -> WriteResult:
        rows = [
            (self._prefix, write.partition, name, stamped(self._codec.encode(state), self._now_s()))
            for name, state in write.states.items()
        ]
        with _transaction(database, "BEGIN IMMEDIATE"):
            current, stored = self._stored(database, write.partition)
            if current == write.offset and stored == token:
                return WriteResult(True, current, token)
            if current != write.expected:
                return WriteResult(False, current, stored)
            database.executemany("INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?)", rows)
            place = self._prefix, write.partition, write.offset, token
            database.execute("INSERT OR REPLACE INTO offsets VALUES (?, ?, ?, ?)", place)
        return WriteResult(True, write.offset, token)

    def _put_aside(self, database: sqlite3.Connection, partition: int, offset: int) -> bool:
        places = [self._prefix, *(f"{self._prefix}/{name}" for name in ASIDE)]
        with _transaction(database, "BEGIN IMMEDIATE"):
            if self._stored(database, partition)[0] != offset:
                return False
            for later, earlier in pairwise(reversed(places)):
                for table in ("states", "offsets"):
                    database.execute(_EMPTY.format(table), (later, partition))
                    database.execute(_MOVE.format(table), (later, earlier, partition))
        return True


def opened(file: Path, timeout_s: float) -> sqlite3.Connection:
    """Open a file of states, which is made if it is not there.

    Raises:
        sqlite3.Error: it is no such file.
        OSError: it cannot be made.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(_PRIVATE)
    database = sqlite3.connect(file, timeout_s, isolation_level=None, check_same_thread=False)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        database.executescript(_SCHEMA)
    except sqlite3.Error:
        database.close()
        raise
    return database


@contextmanager
def _transaction(database: sqlite3.Connection, begin: str) -> Iterator[None]:
    database.execute(begin)
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def prune_file(file: Path, prefix: str, partitions: Iterable[int], older_than_s: float, *, dry_run: bool) -> Pruned:
    """Delete the states of contexts that were taught last before so many seconds; arguments as of `pruning.prune`.

    Raises:
        StoreUnavailableError: the file cannot be read or written.
    """
    limit, total = int((time.time() - older_than_s) // 3600), Pruned()
    try:
        with closing(opened(file, _PRUNE_S)) as database, _transaction(database, "BEGIN IMMEDIATE"):
            for number in partitions:
                named = database.execute(_ALL, (STAMP_BYTES, prefix, number)).fetchall()
                of_contexts = [row for row in named if any(sign in row[0][1:] for sign in (TOGETHER, SPREAD))]
                old = [row for row in of_contexts if int.from_bytes(row[1][1:], "big") < limit]
                if not dry_run:
                    database.executemany(_FORGET, [(prefix, number, name) for name, *_ in old])
                size = sum(len(name.encode()) + length for name, _, length in old)
                total = Pruned(total.contexts + len(of_contexts), total.old + len(old), total.size_bytes + size)
    except (sqlite3.Error, OSError) as fault:
        raise StoreUnavailableError(f"policy states in {file}: {fault}") from fault
    return total
