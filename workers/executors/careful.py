"""Loads packages with care: first in a process beside, where one that never was loaded here may crash or hang.

    start ─▶ ended two processes? ─▶ loaded here before? ─ no ─▶ a child loads it, and ends ─▶ the executor loads it
                  └─▶ refused                   └─────────────── yes ─────────────────────────▶

So a damaged package is refused by its signal as by an exception, and whatever runs beside it goes on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from workers.errors import DeadlyError, HungError, PackageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Model
    from workers.executors.thread import Executor
    from workers.packages.load_notes import LoadNotes

_log = logging.getLogger(__name__)


class Careful:
    """Starts executors.

    Args:
        notes: of what became of packages here.
        beside: returns a child process that loads a version as its worker would; None = its executor is one.
    """

    def __init__(self, notes: LoadNotes, beside: Callable[[Model], Executor | None]) -> None:
        self._notes = notes
        self._beside = beside

    async def start(self, model: Model, executor: Executor, *, is_first: bool = False) -> None:
        """Have an executor load a version.

        Args:
            model: the version.
            executor: loads it.
            is_first: whether the worker starts with it. Then one that ended a process is left for later.

        Raises:
            PackageError: it is refused.
            DeadlyError: it ended a process, or hung there.
            HungError: it hangs in a thread, which ends this process.
        """
        if executor.ready or not model.digest:
            return await executor.start()
        notes, digest = self._notes, model.digest
        note = notes.require(digest, f"{model.name} {model.version}")
        if is_first and note.deaths:
            raise PackageError(f"it ended the process that loaded it last ({note.why}): others are loaded before it")
        if (not note.is_good or note.deaths) and (child := self._beside(model)) is not None:
            await self._try_beside(model, child)
        with notes.loading(digest):
            try:
                await executor.start()
            except HungError as error:
                notes.died(digest, str(error))
                raise
        return None

    async def _try_beside(self, model: Model, child: Executor) -> None:
        try:
            await child.start()
        except DeadlyError as error:
            self._notes.died(model.digest, str(error))
            raise
        finally:
            await child.stop()
