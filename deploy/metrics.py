"""Shows the figures of a process to Prometheus, if the settings say where."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from deploy.errors import StartError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.settings import Metrics
    from streams.runtime.metrics import MetricsHook

WORKER = "worker."


@contextmanager
def exporting(settings: Metrics) -> Iterator[tuple[MetricsHook, ...]]:
    """Serve `/metrics` for the time of a block; gives the hooks that every role's reports must go to.

    Raises:
        StartError: the port cannot be listened on.
    """
    if not settings.port:
        yield ()
        return
    from streams.runtime.prometheus import PrometheusExporter  # 2 MB, its HTTP server included

    try:
        exporter = PrometheusExporter(settings.port, settings.host)
    except (OSError, OverflowError) as error:
        message = f"cannot show metrics on {settings.host}:{settings.port}: {error}; set metrics.port and metrics.host"
        raise StartError(message) from error
    try:
        yield (exporter,)
    finally:
        exporter.stop()


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
