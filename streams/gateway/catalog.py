"""Which applications and models there are, as their topics say: followed from the beginning."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from policies import registry
from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Model
from streams.gateway.protocol import described
from streams.gateway.protocol.personalizer import RankingLoop
from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.codec import Codec
    from streams.gateway.protocol.values import InputForm
    from streams.operators.contract import Record

_log = logging.getLogger(__name__)

_RANKING: Final = ("ridge", "two_speed")


class Catalog:
    """Applications and the versions of models that serve, by name."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.applications: dict[str, Application] = {}
        self.is_read = False  # whether all that was there at the start has been taken
        self._models: dict[str, Model] = {}
        self._takes: dict[str, InputForm | None] = {}  # as far as asked for; empty after each change

    def take(self, records: Iterable[Record]) -> None:
        """Take what has changed."""
        for record in records:
            name = (record.key or b"").decode(errors="replace")
            if topics.MODEL_VERSION not in name:
                self._put(record, name)
        self._takes.clear()

    def application(self, name: str) -> Application:
        """Return an application.

        Raises:
            RequestRefusedError: there is none of that name.
        """
        found = self.applications.get(name)
        if found is None:
            there = ", ".join(sorted(self.applications)[:8]) or "none yet"
            raise RequestRefusedError(  # Triton's clients look for the first four words
                404,
                f"Request for unknown model: there is no application {name!r:.80}; there are: {there}"
                " (`skysail app list`)",
            )
        return found

    def models(self, application: Application) -> list[Model]:
        """Return the models that an application may choose, as far as they are known."""
        return [self._models[name] for name in application.models if name in self._models]

    def takes(self, name: str) -> InputForm | None:
        """Return what an application takes; None = that is not known.

        Raises:
            RequestRefusedError: there is no such application.
        """
        if name not in self._takes:
            application = self.application(name)
            self._takes[name] = described.takes(application, self.models(application))
        return self._takes[name]

    def loop(self, name: str) -> RankingLoop:
        """Return what is known of an application that ranks actions.

        Raises:
            RequestRefusedError: there is no such application.
        """
        application = self.application(name)
        width = _width(application)
        if application.policy not in _RANKING:
            return RankingLoop(application.models, width)
        by_id = application.policy == "two_speed" or any(source.key == "candidate" for source in application.sources)
        is_regression = application.policy == "ridge"
        return RankingLoop(application.models, width, "ids" if by_id else "rows", is_regression)

    def _put(self, record: Record, name: str) -> None:
        kind, into = (Application, self.applications) if record.topic == topics.APPLICATIONS else (Model, self._models)
        try:
            if record.value is None:
                into.pop(name, None)
            else:
                into[name] = self._codec.decode(kind, record.value)  # type: ignore[assignment]
        except DecodeError as error:
            _log.warning("passed over what is no %s, at %s: %s", kind.__name__, record.position, error)


def _width(application: Application) -> int:
    """Return how many features of its own a query may have; 0 = the policy looks at none, or is from outside."""
    if application.policy not in registry.POLICIES:
        return 0
    try:
        wanted: int = getattr(registry.policy_of(application), "features", 0)
    except PolicyError:
        return 0
    return max(0, wanted - sum(source.width for source in application.sources if source.key != "candidate"))
