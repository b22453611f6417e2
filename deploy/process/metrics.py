"""Serves the figures of a process to Prometheus, if the settings name a port."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from deploy.errors import StartError
from deploy.process.ports import fault_of, is_ours

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.config.settings import Metrics
    from streams.runtime.metrics import MetricsHook

_log = logging.getLogger(__name__)

WORKER = "worker."
NEIGHBOURS = 100  # processes of one machine that may have the ports before


@contextmanager
def exporting(settings: Metrics) -> Iterator[tuple[MetricsHook, ...]]:
    """Serve `/metrics` for the time of a block; gives the hooks that every role's reports must go to.

    Raises:
        StartError: nobody can listen there.
    """
    if not settings.port:
        yield ()
        return
    from streams.runtime.process.prometheus import PrometheusExporter  # 2 MB, its HTTP server included

    port = _port(settings)
    try:
        exporter = PrometheusExporter(port, settings.host, settings.names)
    except (OSError, OverflowError) as error:
        message = f"cannot show metrics on {settings.host}:{port}: {error}; set metrics.port and metrics.host"
        raise StartError(message) from error
    try:
        yield (exporter,)
    finally:
        exporter.stop()


def _port(settings: Metrics) -> int:
    """Return the port to listen on: the one of the settings, or the next one that no process of Skysail has.

    Raises:
        StartError: something else listens there.
    """
    for port in range(settings.port, settings.port + NEIGHBOURS):
        fault = fault_of(settings.host, port)
        if not fault:
            if port != settings.port:
                _log.info("metrics are at http://%s:%d/metrics, as %d is taken", settings.host, port, settings.port)
            return port
        if not is_ours(port):
            break
    raise StartError(f"cannot show metrics: {fault}; stop that process, or set metrics.port and metrics.host")


def ports(settings: Metrics, instances: Iterable[str]) -> dict[str, int]:
    """Give each process of one machine a port: from the first one on, workers last, so that a new model moves no role.

    Args:
        settings: with the first port; 0 gives none to anybody.
        instances: in order, e.g. `selection`, `worker.svc`.
    """
    if not settings.port:
        return {}
    ordered = sorted(instances, key=lambda instance: instance.startswith(WORKER))
    return {instance: settings.port + place for place, instance in enumerate(ordered)}
