"""Legs to a collector, by OpenTelemetry's own exporter: OTLP over HTTP."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import (
    SERVICE_INSTANCE_ID,
    SERVICE_NAME,
    SERVICE_NAMESPACE,
    SERVICE_VERSION,
    OTELResourceDetector,
    Resource,
)
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from streams.telemetry.values import CONVENTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.telemetry.values import LegContext, TimedLeg

TIMEOUT_S: Final = 5.0
_KINDS: Final = {"consumer": SpanKind.CONSUMER, "internal": SpanKind.INTERNAL}
_SAMPLED: Final = TraceFlags(TraceFlags.SAMPLED)
_RESOURCES: Final = 1_024  # workers that are remembered


class OtlpExporter:
    """Sends legs to a collector.

    Args:
        endpoint: address with its path, `http://collector:4318/v1/traces`; "" = as OpenTelemetry's variables say.
        prefix: of the deployment.
        version: of Skysail.
    """

    def __init__(self, endpoint: str, prefix: str, version: str) -> None:
        self._exporter = OTLPSpanExporter(endpoint=endpoint or None, timeout=TIMEOUT_S)
        self._scope = InstrumentationScope("skysail", version, CONVENTIONS)
        self._resource = lru_cache(_RESOURCES)(self._made)
        self._prefix, self._version = prefix, version

    def give(self, legs: Sequence[TimedLeg]) -> bool:
        """Send legs, some times if need be; returns whether the collector has taken them."""
        result = self._exporter.export([self._span(leg) for leg in legs])
        return result is SpanExportResult.SUCCESS

    def close(self) -> None:
        """Let go of the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]  # the library's

    def _made(self, role: str, instance: str) -> Resource:
        about = {SERVICE_NAME: f"skysail.{role}", SERVICE_NAMESPACE: self._prefix, SERVICE_VERSION: self._version}
        own = Resource(about | ({SERVICE_INSTANCE_ID: instance} if instance else {}), CONVENTIONS)
        return OTELResourceDetector().detect().merge(own)  # what OTEL_RESOURCE_ATTRIBUTES says beside

    def _span(self, leg: TimedLeg) -> ReadableSpan:
        trace_id = leg.at.trace_id
        return ReadableSpan(
            leg.name,
            _context(leg.at),
            SpanContext(trace_id, leg.parent_id, is_remote=True, trace_flags=_SAMPLED) if leg.parent_id else None,
            self._resource(leg.role, leg.instance),
            leg.attributes,
            links=[Link(_context(at)) for at in leg.links],
            kind=_KINDS[leg.kind],
            status=Status(StatusCode.ERROR, leg.fault) if leg.fault else Status(StatusCode.UNSET),
            start_time=leg.begin_us * 1_000,
            end_time=leg.end_us * 1_000,
            instrumentation_scope=self._scope,
        )


def _context(at: LegContext) -> SpanContext:
    return SpanContext(at.trace_id, at.leg_id, is_remote=False, trace_flags=_SAMPLED)
