"""What the chart cannot know: the settings, the roles that follow from them, their topics, groups and users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy.config.configuration import masked
from deploy.errors import UsageError
from deploy.figures import rendered
from deploy.k8s import strimzi
from deploy.state import acls, desired
from streams.rights import OPERATOR, PEOPLE, acting
from streams.topology import host_role, worker_role

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from deploy.config.settings import Settings
    from streams.topology import Node, Topology

# One process each: one shows the page and promotes, one writes one folder, one tells of all queries.
_ALONE: Final = frozenset({"control", "record", "telemetry"})
_SECRETS: Final = ("redis.password", "registry.password", "gateway.tokens", "control.tokens", "selection.features_url")


def values(settings: Settings, given: Mapping[str, Any], text: str) -> dict[str, Any]:
    """Return what the chart's `deployment` is to hold.

    Args:
        settings: of the deployment.
        given: the same as the file has them.
        text: of the file.

    Raises:
        UsageError: they hold a secret, or what pods do not share.
    """
    _check(settings, given)
    known = dict.fromkeys(settings.models)
    topology = desired.build(settings, known)
    roles = [*_roles(settings, topology)]
    of_all = desired.rights_of(settings, topology)
    run = {who: its for who, its in of_all.items() if who in PEOPLE or who in {role["role"] for role in roles}}
    return {
        "prefix": settings.prefix,
        "settings": text,
        "roles": roles,
        "topics": strimzi.topics(topology, settings.prefix, settings.replication),
        "users": strimzi.users(
            run, settings.prefix, {"control": acting(settings.prefix)}, acls.quotas(settings.quotas)
        ),
        "operator": strimzi.short(f"{settings.prefix}.{OPERATOR}"),
        "rules": yaml.safe_load(rendered.rules()),
    }


def _check(settings: Settings, given: Mapping[str, Any]) -> None:
    if settings.store.kind == "embedded":
        raise UsageError("store: embedded is a file of one machine, and pods have no file together: use Redis")
    if not settings.models:
        raise UsageError("the settings name no models: each gets a worker, so name them under `models`")
    if secrets := sorted(_inline_secrets(settings, given)):
        raise UsageError(
            f"{', '.join(secrets)} would stand in a ConfigMap: leave it out of the settings, and put it into a Secret"
            " that the chart's values name (docs/kubernetes.md)"
        )


def _inline_secrets(settings: Settings, given: Mapping[str, Any]) -> Iterator[str]:
    """Yield the settings that are secret and stand in the file itself."""
    for key in _SECRETS:
        section, _, name = key.partition(".")
        if name in (given.get(section) or {}):
            yield key
    url = given.get("redis", {}).get("url", "")
    if url and masked(settings)["redis"]["url"] != url:  # type: ignore[index] # sections are mappings
        yield "redis.url"
    yield from (
        f"kafka.properties.{name}"
        for name in (given.get("kafka", {}).get("properties") or {})
        if "passw" in name and not name.endswith("_file")
    )


def _roles(settings: Settings, topology: Topology) -> Iterator[dict[str, Any]]:
    """Yield a deployment of pods for each role and model, in the order of the topology."""
    for node in topology.nodes:
        kind, _, name = node.role.partition(".")
        is_run = kind in settings.roles or (kind == "host" and "worker" in settings.roles)
        if is_run and not (kind == "mapping" and not any(map(desired.mapped, settings.applications.values()))):
            yield _role(settings, topology, node, kind, name)


def _role(settings: Settings, topology: Topology, node: Node, kind: str, name: str) -> dict[str, Any]:
    of = {worker_role(name): ["--model", name], host_role(name): ["--pool", name]}.get(node.role, [])
    start, main = f"{settings.prefix}.", node.consumes[0] if node.consumes else ""
    replicas = settings.worker.replicas.get(name, 1) if kind == "worker" else 1
    replicas = settings.hosts[name].replicas if kind == "host" else replicas
    scaled = bool(main) and kind not in {*_ALONE, "host"}  # a plan counts with a pool's hosts
    return {
        "name": strimzi.short(node.role),
        "role": node.role,
        "kind": kind,
        "model": name if kind == "worker" else "",
        "arguments": ["run", "--role", kind, *of],
        "user": strimzi.short(start + node.role),
        "replicas": replicas,
        "alone": kind in _ALONE,
        "most": topology.topics[main].partitions if scaled else replicas,  # more would get nothing to do
        "group": start + node.group if scaled else "",
        "topic": start + main if scaled else "",
    }
