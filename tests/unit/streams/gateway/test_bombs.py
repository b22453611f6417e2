"""Small requests that would become large: refused before they do. The oracle is the memory that Python counts."""

from __future__ import annotations

import asyncio
import csv
import io
import tracemalloc
from typing import TYPE_CHECKING

import orjson
import pytest

from schemas.records import Application
from tests.unit.streams.gateway.requests import IRIS, TEXTS, Served

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INFER, PREDICT, INVOKE = "/v2/models/iris/infer", "/v1/models/iris:predict", "/serving-endpoints/words/invocations"
RANK, TELL = "/personalizer/v1.0/rank", "/v2/models/iris/feedback"
APPLICATIONS = (
    Application("iris", ("forest",)),
    Application("words", ("words",)),
    Application("shop", ("forest",), "ridge", {"features": 256}),
)
EACH = 1 << 20
MOST = 24 << 20  # bytes that a request of one MiB takes at most; each bomb below would take a hundred MiB or more
LONG = "x" * 40_000
MATRIX = [[LONG], *[[""]] * 4_000]  # 640 MB as an array of texts
DEEP = "deep"  # stands for a list in a thousand others


def tensor(data: object, datatype: str = "FP32", **more: object) -> dict[str, object]:
    """Return a request with one input."""
    return {"inputs": [{"name": "input", "datatype": datatype, "shape": [4_001, 1], "data": data, **more}]}


def named(rows: int) -> str:
    """Return CSV whose columns have a long name, which each row repeats."""
    into = io.StringIO()
    csv.writer(into).writerows([[LONG], *[["1"]] * rows])
    return into.getvalue()


BOMBS: Mapping[str, tuple[str, object]] = {
    "texts among numbers": (INFER, tensor([LONG, *[""] * 4_000])),
    "texts among numbers, nested": (INFER, tensor(MATRIX)),
    "texts as rows": (PREDICT, {"instances": MATRIX}),
    "texts in a row": (PREDICT, {"instances": [[[1], [LONG, *[""] * 4_000]]]}),
    "texts in columns": (PREDICT, {"inputs": {"a": [1, 1], "b": [[LONG, *[""] * 4_000], 1]}}),
    "texts as a label": (TELL, {"id": "one", "label": [LONG, *[""] * 4_000]}),
    "names of columns": (INVOKE, {"dataframe_split": {"columns": [LONG], "data": [[1]] * 4_000}}),
    "names of inputs": (INVOKE, {"inputs": {LONG: [1] * 4_000, "b": [1] * 4_000}}),
    "names of tensors": (
        "/v2/models/words/infer",
        {"inputs": [{"name": n, "datatype": "INT8", "shape": [4_000], "data": [1] * 4_000} for n in (LONG, "b")]},
    ),
    "names in CSV": (INVOKE, named(4_000).encode()),
    "lines of CSV": (INVOKE, b"\n" * (EACH - 10)),
    "many actions": (RANK, {"actions": [{"id": str(number)} for number in range(40_000)]}),
    "deep ids of actions": (RANK, {"actions": [{"id": "a"}], "excludedActions": [DEEP]}),
    "a deep id": (INFER, {"id": DEEP, **tensor([1])}),
    "a deep number": (INFER, {"parameters": {"slo_ms": DEEP}, **tensor([1] * 4_001)}),
    "deep data": (INFER, tensor(DEEP)),
    "deep rows": (PREDICT, {"instances": [DEEP]}),
    "deep features": (RANK, {"actions": [{"id": "a", "features": DEEP}], "contextFeatures": DEEP}),
    "a deep label": (TELL, {"id": "one", "label": DEEP}),
    "huge numbers": (INFER, b'{"instances": [[%s]]}' % (b"9" * 1_000_000)),
    "a huge shape": (INFER, tensor([], shape=[2**31 - 1] * 16)),
    "rows of nothing": (INFER, tensor([], shape=[2**31 - 1, 0])),
}


@pytest.fixture
def counted() -> Iterator[None]:
    """Count memory."""
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("name", BOMBS)
async def test_a_bomb_is_refused_before_it_grows(name: str) -> None:
    """With what is wrong about it, and it is no error of the gateway."""
    path, given = BOMBS[name]
    sent = given if isinstance(given, bytes) else orjson.dumps(given)
    sent = sent.replace(b'"deep"', b"[" * 1_000 + b"1" + b"]" * 1_000)
    kind = {"Content-Type": "text/csv" if "CSV" in name else "application/json"}
    more = {"rows": 5_000, "each": EACH, "together": 8 * EACH, "name": "shop"}
    async with Served(applications=APPLICATIONS, models=(IRIS, TEXTS), **more) as there:
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        reply = await there.request("POST", path, sent, kind)
        peak = tracemalloc.get_traced_memory()[1] - before
        assert reply.status in {400, 413}, (reply.status, reply.body)
        assert peak < MOST
        assert not there.asker.batches
        assert len(reply.body) < 1_000
        assert there.parts.bodies.free == 8 * EACH


@pytest.mark.parametrize("piece", [b"[],", b'{"a":0},', b"[[]],", b"{},"])
async def test_a_body_of_brackets_is_refused_unread(piece: bytes) -> None:
    """Four MiB of them would be a hundred and more as lists and objects."""
    body = b'{"instances": [' + piece * ((4 << 20) // len(piece)) + b"0]}"
    async with Served(each=8 << 20, together=8 << 20) as there:
        reply = await there.request("POST", PREDICT, body)
        assert (reply.status, b"too many values" in reply.body) == (413, True)


async def test_what_waits_holds_the_room_of_what_it_has_become() -> None:
    """A row of one number is a thousand times its bytes as a query with an answer; so are ids that all rows repeat."""
    rows = {"name": "input", "datatype": "FP32", "shape": [100, 4], "data": [1] * 400}
    async with Served(each=64 << 10, together=280 << 10) as there:
        there.asker.gate.clear()
        first = asyncio.create_task(there.post(INFER, {"inputs": [rows]}))
        await asyncio.sleep(0.01)
        assert (await there.post(INFER, {"inputs": [rows]})).status == 503
        refused = await there.post(INFER, {"inputs": [rows], "id": "i" * 4_000})
        assert (refused.status, b"bodies_mib" in refused.body) == (413, True)
        there.asker.gate.set()
        assert (await first).status == 200
        assert (await there.post(INFER, {"inputs": [rows]})).status == 200
        assert there.parts.bodies.free == 280 << 10
