"""The inputs that a model was asked in a recorded trace."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from policies.graph import QUERY
from schemas import topics
from schemas.codec import Codec
from schemas.errors import DecodeError
from schemas.records import Application, Query
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from schemas.records import Input

# The last ones: ten times what a package keeps, as some may not fit the model.
_MOST_ROWS: Final = 10_000


def asked_rows(folder: Path, model: str) -> list[Input]:
    """Return the inputs of the last queries to applications that ask a model, in order of time.

    If the trace knows no such application, those of all queries.

    Raises:
        TraceError: there is no trace, or it is damaged.
    """
    trace, codec = Trace.open(folder), Codec(max_bytes=1 << 24)
    asking = _asking(trace, codec, model)
    found: deque[Input] = deque(maxlen=_MOST_ROWS)
    for record in trace.records(topics.QUERIES) if topics.QUERIES in trace.topics() else ():
        with suppress(DecodeError):
            query = codec.decode(Query, record.value)
            if not asking or query.application in asking:
                found.append(query.input)
    return list(found)


def _asking(trace: Trace, codec: Codec, model: str) -> set[str]:
    """Return the applications that ask a model."""
    found = set()
    for record in trace.records(topics.APPLICATIONS) if topics.APPLICATIONS in trace.topics() else ():
        with suppress(DecodeError):
            if record.value is not None and model in _asked_as_they_are(codec.decode(Application, record.value)):
                found.add((record.key or b"").decode(errors="replace"))
    return found


def _asked_as_they_are(application: Application) -> set[str]:
    """Return the models that are given the queries' inputs, and no parts or answers."""
    if not application.stages:
        return {*application.models}
    given = [stage for stage in application.stages if stage.input == QUERY and not stage.crop]
    return {name for stage in given for name in ((stage.model,) if stage.model else application.models)}
