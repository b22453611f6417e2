"""A worker's kernel with a bell for the task that predicts: rung by rows, by versions, and by time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from workers.kernel.worker import ModelWorker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record
    from workers.kernel.batcher import Batcher
    from workers.kernel.results import Asked, Identity
    from workers.rollout.candidates import Beside
    from workers.rollout.switch import Versions


class Waking(ModelWorker):
    """The kernel of one version of a model.

    Attributes:
        versions: follows what is wanted; None beside the version that serves.
        beside: what runs beside it; None as well.
    """

    def __init__(
        self,
        codec: Codec,
        identity: Identity,
        batcher: Batcher[Asked],
        partitions: int,
        beside: str,
        row_bytes: int = 1 << 40,
    ) -> None:
        super().__init__(codec, identity, batcher, partitions, beside, row_bytes)
        self._is_rung = False
        self._bell: asyncio.Future[None] | None = None
        self.versions: Versions | None = None
        self.beside: Beside | None = None

    def offer(self, items: Sequence[tuple[int, Asked]], now_us: int, ranks: Mapping[int, int]) -> Effects:
        """Queue rows, and wake the task."""
        effects = super().offer(items, now_us, ranks)
        self.ring()
        return effects

    def on_model(self, record: Record) -> None:
        """Follow which versions are wanted."""
        if self.versions is not None:
            self.versions.on_record(record, self._codec)
        if self.beside is not None:
            self.beside.route()

    def ring(self) -> None:
        """Wake the task that predicts."""
        self._is_rung = True
        if self._bell is not None and not self._bell.done():
            self._bell.set_result(None)

    def statistics(self) -> Mapping[str, float]:
        """Return the kernel's figures, and of the version that serves how versions changed."""
        if self.versions is None or self.beside is None:
            return super().statistics()
        model = self.identity.model
        label = f"{{model={model}}}"
        failing = self.versions.failing
        return {
            **super().statistics(),
            **({f"version_failing{{model={model},version={failing}}}": 1.0} if failing else {}),
            **({f"model_not_loaded{label}": 1.0} if self.versions.is_lost else {}),
            **{f"ready_s{{model={model},version={version}}}": took for version, took in self.versions.ready_s.items()},
            f"version_switches_total{label}": float(self.versions.switches),
            f"version_failures_total{label}": float(self.versions.failures + self.beside.failures),
        }

    def forget_ring(self) -> None:
        """Wait for the next ring, whatever there has been."""
        self._is_rung = False

    async def wait_records(self, timeout_s: float | None = None) -> None:
        """Return when there have been records since the last time, or after so long."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._bell = loop.create_future()
            timer = None if timeout_s is None else loop.call_later(timeout_s, self.ring)
            try:
                await self._bell
            finally:
                self._bell = None
                if timer is not None:
                    timer.cancel()
        self._is_rung = False
