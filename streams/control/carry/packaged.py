"""Follows the models for what the rows of their packages are like, with which the watch over drift begins."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Model
from streams.control.carry.fairly import fairly
from streams.runtime.corrupt import readable
from streams.runtime.errors import StreamError
from streams.usual import rows

if TYPE_CHECKING:
    from schemas.codec import Codec
    from streams.control.carry.promoting import Follow
    from streams.operators.contract import Record
    from streams.runtime.ports import Broadcast
    from streams.usual.rows import UsualRows

_log = logging.getLogger(__name__)
_STOP_S: Final = 2.0
_WAIT_MS: Final = 200


class PackagedRows:
    """What the rows of the packages are like.

    Args:
        follow: follows topics.
        codec: of the records.

    Attributes:
        rows: by model, those of the version that serves.
    """

    def __init__(self, follow: Follow, codec: Codec) -> None:
        self._follow = follow
        self._codec = codec
        self._models: Broadcast | None = None
        self.rows: dict[str, UsualRows] = {}

    async def read(self) -> None:
        """Read what has come, at first all.

        Raises:
            StreamError: Kafka is away; read it again later.
        """
        try:
            if self._models is None:
                self._models = self._follow((topics.MODELS,), None)
                await self._models.start()
            while (found := await self._models.poll(0 if self._models.caught_up else _WAIT_MS)) or (
                not self._models.caught_up
            ):
                async for record in fairly(readable(found)):
                    self._take(record)
        except StreamError:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Disconnect."""
        models, self._models = self._models, None
        if models is not None:
            await models.stop(_STOP_S)

    def _take(self, record: Record) -> None:
        name = (record.key or b"").decode("utf-8", "replace")
        if topics.MODEL_VERSION in name:  # it is known, and need not serve
            return
        self.rows.pop(name, None)
        try:
            usual = self._codec.decode(Model, record.value).usual if record.value else ""
            if usual:
                self.rows[name] = rows.read(usual)
        except (DecodeError, ValueError) as error:
            _log.warning("what the rows of %s are like is not known: %s", name, error)
