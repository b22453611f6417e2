"""Legs on their way to a collector: as OTLP says them, and dropped where nobody takes them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from streams.telemetry.export import AT_ONCE, LegQueue
from streams.telemetry.values import CONVENTIONS, LegContext, TimedLeg
from tests.collector import receiving

if TYPE_CHECKING:
    from collections.abc import Sequence

LEG = TimedLeg("predict", LegContext(7, 8), 9, "worker.svc", "svc@1", 10, 30, {"messaging.system.name": "kafka"})


def test_a_collector_is_told_what_a_leg_is() -> None:
    """Decoded by OpenTelemetry's own protocol: ids, parent, links, times, whose work it was, and by which names."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
    from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

    from streams.telemetry.otlp import OtlpExporter

    batch = LEG._replace(name="batch", at=LegContext(1 << 127, 5), parent_id=0, kind="consumer", links=(LEG.at,))
    other = LEG._replace(at=LegContext(7, 11), role="selection", instance="", fault="deadline")
    with receiving() as received:
        exporter = OtlpExporter(received.endpoint, "shop", "1.2.3")
        assert exporter.give([LEG, batch, other])
        exporter.close()
    told = received.told()
    about = [{one.key: one.value.string_value for one in each.resource.attributes} for each in told]
    names = {(its["service.namespace"], its["service.name"], its.get("service.instance.id")) for its in about}
    assert names == {("shop", "skysail.worker.svc", "svc@1"), ("shop", "skysail.selection", None)}
    scopes = [scope for each in told for scope in each.scope_spans]
    assert {(scope.scope.name, scope.scope.version, scope.schema_url) for scope in scopes} == {
        ("skysail", "1.2.3", CONVENTIONS)
    }
    spans = {span.span_id: span for scope in scopes for span in scope.spans}
    first, ran, last = (spans[number.to_bytes(8, "big")] for number in (8, 5, 11))
    assert (first.trace_id, first.parent_span_id) == ((7).to_bytes(16, "big"), (9).to_bytes(8, "big"))
    assert (first.start_time_unix_nano, first.end_time_unix_nano) == (10_000, 30_000)
    assert (first.kind, ran.kind) == (Span.SPAN_KIND_INTERNAL, Span.SPAN_KIND_CONSUMER)
    assert (ran.parent_span_id, [link.span_id for link in ran.links]) == (b"", [first.span_id])
    assert {one.key: one.value.string_value for one in first.attributes} == {"messaging.system.name": "kafka"}
    assert (last.status.code, last.status.message) == (Status.STATUS_CODE_ERROR, "deadline")
    assert first.status.code == Status.STATUS_CODE_UNSET


def test_a_collector_that_refuses_is_no_fault_of_the_role() -> None:
    """It is told so, and goes on."""
    pytest.importorskip("opentelemetry.sdk", reason="the extra `otel` is not installed")
    from streams.telemetry.otlp import OtlpExporter

    with receiving(400) as received:
        exporter = OtlpExporter(received.endpoint, "shop", "1")
        assert not exporter.give([LEG])
        exporter.close()


def test_legs_that_nobody_takes_are_dropped_and_counted_and_nothing_waits_for_them() -> None:
    """A collector that hangs fills the queue; what comes then is dropped at once."""

    async def scene() -> None:
        hangs, given = threading.Event(), list[int]()

        def give(legs: Sequence[TimedLeg]) -> bool:
            hangs.wait(30)
            given.append(len(legs))
            return len(given) > 1

        queue = LegQueue(give, waiting=1_000)
        handing = asyncio.create_task(queue.run())
        queue.put([LEG] * 3_000)
        assert queue.statistics()["telemetry_dropped_total{why=full}"] == 2_000
        await asyncio.sleep(0.01)
        queue.put([LEG] * 3_000)
        figures = queue.statistics()
        assert figures["telemetry_waiting"] == 1_000
        assert figures["telemetry_dropped_total{why=full}"] == 5_000 - AT_ONCE
        hangs.set()
        await queue.flush(30)
        figures = queue.statistics()
        assert given[0] == AT_ONCE
        assert figures["telemetry_dropped_total{why=refused}"] == AT_ONCE
        assert figures["telemetry_legs_total"] == 1_000
        assert figures["telemetry_waiting"] == 0
        handing.cancel()

    asyncio.run(scene())


def test_a_stop_waits_for_a_collector_no_longer_than_it_may() -> None:
    """What is left is dropped and counted."""

    async def scene() -> None:
        hangs = threading.Event()
        queue = LegQueue(lambda _: hangs.wait(30))
        handing = asyncio.create_task(queue.run())
        queue.put([LEG] * (AT_ONCE + 7))
        await asyncio.sleep(0.01)
        await queue.flush(0.05)
        assert queue.statistics()["telemetry_dropped_total{why=full}"] == 7
        hangs.set()
        handing.cancel()

    asyncio.run(scene())
