"""A deployment that shows the legs of sampled queries to a collector in the process of the test."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest

from deploy.config.settings import ROLES
from deploy.local.process import free_port
from tests.collector import receiving, spans_of
from tests.deployments import Toy, deployed

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.collector import Received

WAIT_S = 60.0
TRACES = [f"{number:032x}" for number in (0xA1, 0xA2, 0xA3)]
PARENT = "b7ad6b7169203331"
LEGS = {"queue", "select", "wait", "predict", "return", "join", "answer"}


async def until_told(received: Received, trace: str, legs: set[str]) -> dict[str, Any]:
    """Return a trace's spans by leg when they are all there."""
    end = asyncio.get_running_loop().time() + WAIT_S
    while True:
        found = {span.name.partition(" ")[0]: span for span in spans_of(received) if span.trace_id.hex() == trace}
        if legs <= found.keys():
            return found
        assert asyncio.get_running_loop().time() < end, f"only {sorted(found)} of {sorted(legs)}"
        await asyncio.sleep(0.2)


async def test_a_query_s_trace_goes_through_all_roles(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """Asked by a client and over HTTP; one that is not sampled is not there; no role but its own has told anything."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
    parity = Toy("tests.toys:parity", np.zeros((2, 2), np.float32))
    applications = {"sums": {"models": ["parity"], "default_output": -1, "slo_ms": 20_000}}
    port = free_port()
    with receiving() as received:
        more = {
            "roles": (*ROLES, "gateway", "telemetry"),
            "telemetry": {"endpoint": received.endpoint, "rate": 0.0},
            "gateway": {"port": port},
            "control": {"port": free_port()},
        }
        async with deployed(
            kafka, redis_server.url, prefix, tmp_path, {"parity": parity}, applications, **more
        ) as there:
            await there.watch.until(
                lambda: (report := there.watch.reports().get("telemetry")) and report.gauges.get("partitions"),
                "the role reads",
            )
            row = np.array([1, 2], np.float32)
            flags = ("01", "00")
            headers = [(("traceparent", f"00-{TRACES[at]}-{PARENT}-{flags[at]}".encode()),) for at in (0, 1)]
            sampled, left = [await there.client.predict("sums", row, timeout_s=60, headers=each) for each in headers]
            for one in (sampled, left):
                await there.client.feedback(one, label=1)
            async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
                given = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
                trace = {"traceparent": f"00-{TRACES[2]}-{PARENT}-01"}
                async with session.post("/v2/models/sums/infer", json=given, headers=trace) as reply:
                    assert reply.status == 200, await reply.text()
            legs = await until_told(received, TRACES[0], LEGS)
            over_http = await until_told(received, TRACES[2], LEGS - {"join"})
        check(legs, sampled.query_id, prefix)
        assert over_http["answer"].parent_span_id.hex() == PARENT
        assert not [span for span in spans_of(received) if span.trace_id.hex() == TRACES[1]]
        services = {
            one.value.string_value for each in received.told() for one in each.resource.attributes
            if one.key == "service.name"
        }  # fmt: skip
        assert services == {"skysail.selection", "skysail.worker.parity", "skysail.joiner"}


def check(legs: dict[str, Any], query_id: str, prefix: str) -> None:
    """Hold parents, order and links of a trace."""
    whole = legs["answer"]
    assert whole.parent_span_id.hex() == PARENT
    assert {legs[name].parent_span_id for name in LEGS - {"answer"}} == {whole.span_id}
    assert legs["queue"].end_time_unix_nano == legs["select"].start_time_unix_nano
    assert legs["wait"].end_time_unix_nano == legs["predict"].start_time_unix_nano
    assert legs["predict"].end_time_unix_nano == legs["return"].start_time_unix_nano
    assert legs["return"].end_time_unix_nano == whole.end_time_unix_nano
    inside = [legs[name] for name in LEGS - {"join"}]
    assert all(one.start_time_unix_nano >= whole.start_time_unix_nano for one in inside)
    assert len(legs["predict"].links) == 1
    told = {one.key: one.value.string_value for one in whole.attributes}
    assert (told["messaging.system.name"], told["messaging.message.id"]) == ("kafka", query_id)
    assert told["messaging.destination.name"] == f"{prefix}.queries"
