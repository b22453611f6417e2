"""The ASGI application: paths, tokens, bounds, repeated requests; asked as a server asks it."""

from __future__ import annotations

import asyncio
import gc
import gzip
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from schemas.records import Application, Status
from streams.gateway.tokens import BearerTokens
from tests.unit.streams.gateway.requests import IRIS, Served, predicted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Prediction, Query

INFER = "/v2/models/iris/infer"


def body(count: int = 1, **more: object) -> dict[str, Any]:
    """Return a request of Open Inference v2."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [count, 4], "data": [1.0] * 4 * count}], **more}


async def test_rows_of_a_request_are_one_batch() -> None:
    """Each row a query, with an id of its own that follows the request's."""
    async with Served() as there:
        reply = await there.post(INFER, body(3, id="a"))
        assert reply.status == 200
        (batch,) = there.asker.batches
        assert [query.query_id for query in batch] == ["a/0", "a/1", "a/2"]
        assert len({query.reply_token for query in batch}) == 3


async def test_who_asks_again_gets_the_reply_although_the_first_asker_has_left() -> None:
    """As clients of gRPC do whose time is over: their call is cancelled, and they try again with the same id."""
    async with Served() as there:
        there.asker.gate.clear()
        first = asyncio.create_task(there.post(INFER, body(id="a")))
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(there.post(INFER, body(id="a")))
        await asyncio.sleep(0.01)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        later = asyncio.create_task(there.post(INFER, body(id="a")))
        await asyncio.sleep(0.01)
        there.asker.gate.set()
        assert [(await one).status for one in (waiting, later)] == [200, 200]
        assert len(there.asker.batches) == 1


async def test_a_repeated_request_gets_the_same_reply_and_asks_nothing() -> None:
    """Also while the first one is under way; another body under the same id is refused."""
    async with Served() as there:
        there.asker.gate.clear()
        first, second = (asyncio.create_task(there.post(INFER, body(id="a"))) for _ in range(2))
        await asyncio.sleep(0.01)
        there.asker.gate.set()
        third = await there.post(INFER, body(id="a"))
        assert {(await first).body, (await second).body, third.body} == {third.body}
        assert len(there.asker.batches) == 1
        assert (await there.post(INFER, body(2, id="a"))).status == 409
        await there.post("/v1/models/iris:predict", {"instances": [[1, 2, 3, 4]]}, **{"Idempotency-Key": "b"})
        await there.post("/v1/models/iris:predict", {"instances": [[1, 2, 3, 4]]}, **{"Idempotency-Key": "b"})
        assert len(there.asker.batches) == 2


async def test_replies_take_no_more_memory_than_is_counted() -> None:
    """JSON is left in a buffer of 4 KiB by orjson: each body. A task keeps what it was made in, too."""
    async with Served(memory=1 << 30) as there:

        async def asked(names: Iterable[str]) -> None:
            for name in names:
                await there.post(INFER, body(id=name))
            there.asker.batches.clear()

        await asked(f"before-{number}" for number in range(100))
        gc.collect()
        tracemalloc.start()
        try:
            counted, held = there.parts.memory.bytes, tracemalloc.get_traced_memory()[0]
            await asked(f"then-{number}" for number in range(500))
            gc.collect()
            taken = tracemalloc.get_traced_memory()[0] - held
        finally:
            tracemalloc.stop()
    assert 0.5 * (there.parts.memory.bytes - counted) < taken < there.parts.memory.bytes - counted


async def test_a_request_that_was_refused_may_be_tried_again() -> None:
    """Nothing is remembered of it, and its rows are given back."""

    def overloaded(query: Query) -> Prediction:
        return predicted(query, None, status=Status.DEFAULT, reason="overloaded")

    async with Served(overloaded) as there:
        refused = await there.post(INFER, body(id="a"))
        assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
        there.asker.answer = predicted
        assert (await there.post(INFER, body(id="a"))).status == 200
        assert there.asking.rows == 0


async def test_memory_for_replies_is_bounded() -> None:
    """The oldest go; what is under way stays."""
    async with Served(memory=3_000) as there:
        for number in range(20):
            await there.post(INFER, body(id=f"r{number}"))
            assert there.parts.memory.bytes <= 3_000
        await there.post(INFER, body(id="r19"))
        assert len(there.asker.batches) == 20
        await there.post(INFER, body(id="r0"))
        assert len(there.asker.batches) == 21


async def test_more_rows_than_may_wait_are_turned_away() -> None:
    """With 503 and when to come again; the connection stays, as the body was read."""
    async with Served(rows=4) as there:
        there.asker.gate.clear()
        first = asyncio.create_task(there.post(INFER, body(3)))
        await asyncio.sleep(0.01)
        refused = await there.post(INFER, body(2))
        assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
        assert b"connection" not in refused.headers
        there.asker.gate.set()
        assert (await first).status == 200
        assert (await there.post(INFER, body(4))).status == 200


async def test_without_kafka_it_is_not_ready_and_says_so() -> None:
    """Live, but not ready; requests are told to come again."""
    there = Served()
    assert (await there.request("GET", "/v2/health/live")).status == 200
    assert (await there.request("GET", "/health")).json == {"live": True}
    assert (await there.request("GET", "/v2/health/ready")).status == 503
    waits = await there.request("GET", "/ready")
    assert (waits.status, waits.json["ready"]) == (503, False)
    assert "no broker answers" in waits.json["reason"]
    refused = await there.post(INFER, body())
    assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
    async with there:
        assert (await there.request("GET", "/v2/health/ready")).status == 200
        assert (await there.request("GET", "/ready")).json == {"ready": True}


async def test_a_request_s_trace_goes_on_with_its_queries() -> None:
    """One that is no trace does not; nor does what else the request has for headers."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with Served() as there:
        await there.request("POST", INFER, orjson.dumps(body()), {"traceparent": trace, "x-own": "1"})
        assert there.asker.headers == (("traceparent", trace.encode()),)
        for headers in ({}, {"traceparent": "0" * 257}):
            assert (await there.request("POST", INFER, orjson.dumps(body()), headers)).status == 200
            assert there.asker.headers == ()


async def test_bodies_are_bounded() -> None:
    """By what is said, by what comes, unpacked, and all together; their room is given back."""
    async with Served(each=3_000, together=4_000) as there:
        large = b" " * 3_001
        assert (await there.request("POST", INFER, large)).status == 413
        assert (await there.request("POST", INFER, parts=[b" " * 1_600] * 2)).status == 413
        packed = gzip.compress(b" " * 100_000)
        assert len(packed) < 1_000
        assert (await there.request("POST", INFER, packed, {"Content-Encoding": "gzip"})).status == 413
        there.asker.gate.clear()
        first = asyncio.create_task(there.request("POST", INFER, parts=[orjson.dumps(body())]))
        await asyncio.sleep(0.01)
        refused = await there.request("POST", INFER, parts=[orjson.dumps(body())])
        assert refused.status == 503
        there.asker.gate.set()
        assert (await first).status == 200
        assert (await there.request("POST", INFER, parts=[orjson.dumps(body())])).status == 200


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "gzip"), (zlib.compress, "deflate")])
async def test_packed_bodies_are_read(pack: Any, name: str) -> None:
    """Gzip and deflate; what is neither, or ends early, is refused."""
    async with Served() as there:
        packed = pack(orjson.dumps(body()))
        assert (await there.request("POST", INFER, packed, {"Content-Encoding": name})).status == 200
        assert (await there.request("POST", INFER, packed[:-9], {"Content-Encoding": name})).status == 400
        assert (await there.request("POST", INFER, b"none", {"Content-Encoding": name})).status == 400
        assert (await there.request("POST", INFER, packed, {"Content-Encoding": "br"})).status == 415


async def test_a_slow_body_is_given_up() -> None:
    """After its time, with 408; the connection is closed."""
    async with Served(within_s=0.02) as there:
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            if not sent:
                sent.append(None)
                return {"type": "http.request", "body": b"{", "more_body": True}
            await asyncio.Event().wait()
            raise AssertionError

        replies: list[Any] = []

        async def send(message: Any) -> None:
            replies.append(message)

        scope = {"type": "http", "method": "POST", "path": INFER, "headers": [], "query_string": b""}
        await there.application(scope, receive, send)
        assert replies[0]["status"] == 408
        assert (b"connection", b"close") in replies[0]["headers"]


TOKENS = """
# who              what
0123456789abcdef   iris
fedcba9876543210   other,more
ffffffffffffffff   *
"""


async def test_tokens_say_which_applications_may_be_asked() -> None:
    """As a bearer token or as Personalizer's key; 401 without one, 403 for another application."""
    more = [Application(name, ("forest",)) for name in ("iris", "other", "more")]
    async with Served(applications=more, tokens=TOKENS) as there:
        assert (await there.post(INFER, body())).status == 401
        assert (await there.post(INFER, body(), Authorization="Bearer 0123456789abcdeF")).status == 401
        for name in ("Authorization", "Ocp-Apim-Subscription-Key", "api-key"):
            given = {name: "Bearer 0123456789abcdef" if name == "Authorization" else "0123456789abcdef"}
            assert (await there.post(INFER, body(), **given)).status == 200
        refused = await there.post(INFER, body(), Authorization="Bearer fedcba9876543210")
        assert (refused.status, "other" in refused.json["error"]) == (403, False)
        assert (await there.post(INFER, body(), Authorization="Bearer ffffffffffffffff")).status == 200
        invoked = {"instances": [[1, 2, 3, 4]]}
        assert (await there.post("/invocations", invoked, Authorization="Bearer 0123456789abcdef")).status == 200
        several = await there.post("/invocations", invoked, Authorization="Bearer fedcba9876543210")
        assert (several.status, several.json["error_code"]) == (404, "NOT_FOUND")
        metadata = {"Authorization": "Bearer fedcba9876543210"}
        listed = (await there.request("GET", "/v2/models", headers=metadata)).json["models"]
        assert [one["name"] for one in listed] == ["more", "other"]
        assert (await there.request("GET", "/v2/models")).status == 401
        assert (await there.request("GET", "/v2/models/iris", headers=metadata)).status == 403


@pytest.mark.parametrize("text", ["short iris", "0123456789abcdef", "0123456789abcdef  ,"])
def test_a_file_of_tokens_that_is_none_is_refused(text: str) -> None:
    """With its line; never with the token."""
    with pytest.raises(ValueError, match="line 1") as caught:
        BearerTokens(text)
    assert "0123456789abcdef" not in str(caught.value)


async def test_pages_of_strangers_may_not_ask() -> None:
    """A browser says for which page it asks; named origins may."""
    async with Served(origins=frozenset({"https://shop.example"})) as there:
        assert (await there.post(INFER, body(), Origin="https://evil.example")).status == 403
        assert (await there.post(INFER, body(), Origin="https://shop.example")).status == 200


@pytest.mark.parametrize(
    ("path", "form"),
    [
        ("/v2/models/none/infer", ("error",)),
        ("/v1/models/none:predict", ("error",)),
        ("/serving-endpoints/none/invocations", ("error_code", "message")),
        ("/v2/nothing", ("error",)),
    ],
)
async def test_errors_are_json_of_the_protocol(path: str, form: tuple[str, ...]) -> None:
    """With what to do."""
    async with Served() as there:
        reply = await there.post(path, {})
        assert reply.status == 404
        assert tuple(reply.json) == form
        assert reply.headers[b"content-type"] == b"application/json"


async def test_a_wrong_method_is_told() -> None:
    """405, with the one that is meant."""
    async with Served() as there:
        reply = await there.request("GET", INFER)
        assert (reply.status, "POST" in reply.json["error"]) == (405, True)


async def test_personalizer_asks_by_its_own_paths() -> None:
    """Rank, reward, activate, under the version that its clients name; errors in its form."""
    one = Application("shop", ("forest", "net"), policy="thompson")
    rank = {"actions": [{"id": "forest"}, {"id": "net"}], "eventId": "e1"}
    async with Served(applications=[one]) as there:
        reply = await there.post("/personalizer/v1.1-preview.3/rank", rank)
        assert (reply.status, reply.json["rewardActionId"]) == (201, "forest")
        assert (await there.post("/personalizer/v1.0/events/e1/reward", {"value": 1})).status == 204
        ((feedback, _),) = there.asker.told
        assert (feedback.query_id, feedback.loss) == ("e1", 0.0)
        assert (await there.post("/personalizer/v1.0/events/e1/activate", b"")).status == 204
        wrong = await there.post("/personalizer/v1.0/rank", {"actions": []})
        assert (wrong.status, wrong.json["error"]["code"]) == (400, "BadRequest")


async def test_a_reward_is_a_label_for_a_policy_that_learns_one() -> None:
    """`ridge` is a regression: of a loss alone it learns nothing."""
    one = Application("shop", ("any",), policy="ridge", loss="given")
    async with Served(applications=[one]) as there:
        assert (await there.post("/personalizer/v1.0/events/e1/reward", {"value": 0.25})).status == 204
        ((feedback, _),) = there.asker.told
        assert (feedback.label, feedback.loss) == (0.25, 0.75)


async def test_metadata_is_that_of_the_models() -> None:
    """Types, shapes and versions, in both protocols; statistics have the one entry that clients insist on."""
    async with Served() as there:
        about = (await there.request("GET", "/v2/models/iris")).json
        assert about["inputs"] == [{"name": "input", "datatype": "FP32", "shape": [-1, 4]}]
        assert about["versions"] == [IRIS.version]
        assert about["outputs"][0] == {"name": "answer", "datatype": "INT64", "shape": [-1]}
        assert (await there.request("GET", "/v2/models/iris/versions/9")).status == 404
        assert (await there.request("GET", "/v2/models/iris/versions/3/ready")).status == 200
        await there.post(INFER, body(3))
        (counts,) = (await there.request("GET", "/v2/models/iris/stats")).json["model_stats"]
        assert (counts["inference_count"], counts["execution_count"]) == (3, 1)
        signature = (await there.request("GET", "/v1/models/iris/metadata")).json["metadata"]["signature_def"]
        inputs = signature["signature_def"]["serving_default"]["inputs"]["input"]
        assert (inputs["dtype"], [one["size"] for one in inputs["tensor_shape"]["dim"]]) == ("DT_FLOAT", ["-1", "4"])
        status = (await there.request("GET", "/v1/models/iris")).json["model_version_status"]
        assert status[0]["state"] == "AVAILABLE"
        assert (await there.request("GET", "/v2")).json["version"] == "1.2.3"
        assert (await there.request("GET", "/version")).body == b"1.2.3"


async def test_who_has_only_an_address_finds_what_can_be_asked() -> None:
    """A path that is none names the one that lists applications; each says whether it has a model."""
    async with Served(applications=[Application("iris", ("forest",)), Application("bare", ("none",))]) as there:
        for path in ("/", "/v2/models/iris/predict", "/predict"):
            reply = await there.request("GET", path)
            assert (reply.status, "GET /v2/models lists applications" in reply.json["error"]) == (404, True)
        listed = (await there.request("GET", "/v2/models")).json
        assert listed == {"models": [{"name": "bare", "ready": False}, {"name": "iris", "ready": True}]}


async def test_an_error_of_its_own_is_told_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """500, and the log has the traceback; the next request is served."""

    def broken(query: Query) -> Prediction:
        raise ZeroDivisionError

    async with Served(broken) as there:
        assert (await there.post(INFER, body(id="a"))).status == 500
        assert "ZeroDivisionError" in caplog.text
        there.asker.answer = predicted
        assert (await there.post(INFER, body(id="a"))).status == 200
