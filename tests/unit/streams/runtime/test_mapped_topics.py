"""What role `mapping` looks up before its kernel is told of an application."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application
from streams.operators.contract import Record
from streams.runtime.mapped_topics import counting

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

CODEC = Codec()


def told(name: str, **mapping: object) -> Record:
    """Return the record of an application."""
    application = Application(name, ("one",), mapping=json.dumps(mapping) if mapping else "")
    return Record(topics.APPLICATIONS, 0, 0, 0, name.encode(), CODEC.encode(application))


async def test_partitions_of_written_topics_are_known_before_the_kernel_needs_them(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One that is not there is told of; what cannot be read is the kernel's to tell."""
    asked: list[str] = []

    async def partitions(names: Iterable[str]) -> dict[str, int]:
        asked.extend(names)
        return {"/scored": 3}

    counts: dict[str, int] = {}
    prepare = counting(CODEC, partitions, counts)
    to = {"topic": "scored", "fields": {"answer": "answer"}}
    gone, spoilt = told("gone")._replace(value=None), told("spoilt")._replace(value=b"\0")
    with caplog.at_level(logging.ERROR):
        await prepare([told("plain"), told("a", to=to), told("b", to={**to, "topic": "missing"}), gone, spoilt])
    assert sorted(asked) == ["/missing", "/scored"]
    assert counts == {"scored": 3}
    assert "topic missing, to which predictions are to go, is not there" in caplog.text
    asked.clear()
    await prepare([told("plain")])
    assert not asked


async def test_nothing_is_mapped_before_queries_are_taken() -> None:
    """Else their time would run out while models are loaded."""
    ready = asyncio.Event()

    async def partitions(names: Iterable[str]) -> dict[str, int]:
        return dict.fromkeys(names, 1)

    waiting = asyncio.create_task(counting(CODEC, partitions, {}, ready)([told("plain")]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    ready.set()
    await waiting
