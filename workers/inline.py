"""Runs a role's loop with models inside it: those are loaded first, and each has a task that predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import topics
from workers.loopback import Loopback
from workers.predict_loop import Predicting

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from schemas.codec import Codec
    from schemas.records import Model
    from streams.operators.contract import Effects, Operator
    from streams.runtime.role.loop import RoleLoop
    from workers.settings import WorkerSettings


class Inline:
    """Inline models of one role.

    Attributes:
        kernel: the role's kernel with the models behind it.
        companions: tasks for the role's loop, one a model.
    """

    def __init__(
        self,
        asker: Operator,
        models: Sequence[Model],
        instance: str,
        settings: WorkerSettings,
        codec: Codec,
        now_us: Callable[[], int],
    ) -> None:
        """Nothing runs yet; `asker` asks `models`, which are run as `settings` say."""
        self._now_us = now_us
        self._models = [Predicting(model, instance, settings, codec, now_us) for model in models]
        names = [topics.model_queries(model.name) for model in models]
        self.kernel = Loopback(asker, {n: p.kernel for n, p in zip(names, self._models, strict=True)})
        self.companions = tuple(map(self._companion, self._models))

    def within(self, loop: RoleLoop) -> InlineLoop:
        """Return the role's loop, run with these models."""
        return InlineLoop(loop, self._models)

    def _companion(self, model: Predicting) -> Callable[[RoleLoop], Coroutine[Any, Any, None]]:
        def predict(loop: RoleLoop) -> Coroutine[Any, Any, None]:
            def answered(effects: Effects) -> None:
                fault = loop.call("answers of an inline model", lambda: self.kernel.on_answers(effects, self._now_us()))
                if fault is not None:
                    self.kernel.distrust(effects)

            return model.run(answered)

        return predict


class InlineLoop:
    """A role's loop that loads its models first; one object, one run."""

    def __init__(self, loop: RoleLoop, models: Sequence[Predicting]) -> None:
        self._loop = loop
        self._models = models

    async def run(self, stop: asyncio.Event) -> None:
        """Load the models, then run the loop until `stop` is set.

        Raises:
            HungError: loading a model does not end.
            ExceptionGroup: of the one cause that ended the role.
        """
        try:
            for model in self._models:
                await model.start()
            await self._loop.run(stop)
        finally:
            for model in self._models:
                await model.stop()
