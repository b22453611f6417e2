"""Shows the latest reports to Prometheus. Nothing happens between scrapes."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric

from streams.runtime.metrics import TOTAL, is_counter
from streams.runtime.process.meanings import meaning
from streams.runtime.process.prometheus_server import ScrapeServer

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.records import Report

_NAMESPACE = "skysail_"


class PrometheusExporter:
    """A metrics hook with an HTTP server, on 127.0.0.1 unless told otherwise; it answers from its own thread."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._latest: dict[str, Report] = {}
        registry = CollectorRegistry()
        registry.register(self)
        self._server = ScrapeServer((address, port), registry)
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on (the one given, or a free one for 0)."""
        return int(self._server.server_port)

    def __call__(self, report: Report) -> None:
        """Take a report."""
        self._latest[report.instance] = report

    def collect(self) -> Iterable[Metric]:
        """Return metric families; called by the client library at a scrape."""
        families: dict[str, Metric] = {}
        for report in tuple(self._latest.values()):
            for values in (report.counters, report.gauges):
                _add(families, report, values)
        return families.values()

    def stop(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _add(families: dict[str, Metric], report: Report, values: Mapping[str, float]) -> None:
    """Add figures to the family of their name: it must be one, whatever labels its samples have."""
    for full, value in values.items():
        name, labels = parse(full)
        if name not in families:
            kind = "counter" if is_counter(full) else "gauge"
            families[name] = Metric(_NAMESPACE + name.removesuffix(TOTAL), meaning(name), kind)
        shown = {"instance_name": report.instance, "role": report.role, **labels}
        families[name].add_sample(_NAMESPACE + name, shown, value)


def parse(full: str) -> tuple[str, dict[str, str]]:
    """Split `answers_total{application=digits,status=default}` into name and labels."""
    name, _, rest = full.partition("{")
    pairs = (pair.partition("=") for pair in rest.removesuffix("}").split(",") if pair)
    return name, {label: value for label, _, value in pairs}
