"""`skysail k8s`: what a deployment needs on Kubernetes, from its settings and the topology."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click
import yaml

from deploy.cli.common import VerbGroup, config_option
from deploy.config.configuration import as_given
from deploy.config.readable import ReadableDumper
from deploy.k8s import strimzi
from deploy.k8s.values import values as chart_values
from deploy.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

EXAMPLES = """\
skysail k8s values > deployment.yaml        values of the chart, from skysail.yaml
helm install shop deploy/k8s/chart -f deployment.yaml -f mine.yaml
skysail k8s strimzi --cluster kafka         topics and users alone, for kubectl apply
"""
_HEAD: Final = (
    "# Written by `skysail k8s values`; write it again when the settings change. Values of your own: another file."
)


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def k8s() -> None:
    """Write the values of the Helm chart, and topics and users for Strimzi. Neither needs a broker or a cluster."""


@k8s.command("values")
@config_option
def values_(config: Path | None) -> None:
    """Print what the chart `deploy/k8s/chart` needs: the settings, a list of roles, topics, users and their rights."""
    echo(_HEAD, *_written([{"deployment": _deployment(config)}]))


@k8s.command("strimzi")
@click.option("--cluster", required=True, help="Name of the `Kafka` resource.")
@click.option("--namespace", help="Where it is [default: where you apply them].")
@config_option
def strimzi_(cluster: str, namespace: str | None, config: Path | None) -> None:
    """Print a KafkaTopic for every topic, and a KafkaUser for every role, for askers, teachers, readers, operators."""
    echo(*_written(strimzi.resources(_deployment(config), cluster, namespace)))


def _deployment(config: Path | None) -> dict[str, Any]:
    return chart_values(*as_given(config))


def _written(documents: Iterable[dict[str, Any]]) -> list[str]:
    text: str = yaml.dump_all(documents, Dumper=ReadableDumper, sort_keys=False, width=120)
    return text.splitlines()
