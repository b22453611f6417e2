"""Topics and rights as resources of Strimzi, the operator that keeps Kafka on Kubernetes."""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streams.rights import Right
    from streams.topology import Topology

API: Final = "kafka.strimzi.io/v1"
MOST_NAME: Final = 40  # characters; a chart's release stands before it, and a label has 63
_HASH: Final = 8
_QUOTAS: Final = {"producer_byte_rate": "producerByteRate", "consumer_byte_rate": "consumerByteRate"}
NO_QUOTAS: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType({})
NOBODY: Final[Mapping[str, Iterable[Right]]] = MappingProxyType({})


def short(name: str) -> str:
    """Return a name as Kubernetes takes it in labels: dots as dashes, and what is too long ends with a hash."""
    plain = name.replace(".", "-")
    if len(plain) <= MOST_NAME:
        return plain
    return f"{plain[: MOST_NAME - _HASH - 1]}-{hashlib.sha256(name.encode()).hexdigest()[:_HASH]}"


def topics(topology: Topology, prefix: str, replicas: int) -> list[dict[str, Any]]:
    """Return each topic as the specification of a `KafkaTopic`, with its name."""
    return [
        {
            "name": f"{prefix}.{topic.name}",
            "partitions": topic.partitions,
            "replicas": replicas,
            "config": {key: int(value) if value.isdecimal() else value for key, value in topic.config().items()},
        }
        for topic in topology.topics.values()
    ]


def users(
    rights: Mapping[str, Iterable[Right]],
    prefix: str,
    acting: Mapping[str, Iterable[Right]] = NOBODY,
    quotas: Mapping[str, Mapping[str, int]] = NO_QUOTAS,
) -> list[dict[str, Any]]:
    """Return each principal with its rights, as `KafkaUser` has them.

    Args:
        rights: by principal.
        prefix: of their names.
        acting: further ones by principal, as soon as somebody has a token for the page: the chart knows.
        quotas: by principal, as Kafka names them.
    """
    return [
        {"name": short(f"{prefix}.{who}"), "acls": [*map(_acl, its)]}
        | ({"acting": [*map(_acl, acting[who])]} if who in acting else {})
        | ({"quotas": {_QUOTAS[name]: rate for name, rate in quotas[who].items()}} if quotas.get(who) else {})
        for who, its in rights.items()
    ]


def resources(values: Mapping[str, Any], cluster: str, namespace: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield topics and users as they are applied without the chart.

    Args:
        values: with `topics` and `users`.
        cluster: the name of the `Kafka` resource.
        namespace: where Strimzi looks for them; None = where they are applied.
    """
    place = {"labels": {"strimzi.io/cluster": cluster}} | ({"namespace": namespace} if namespace else {})
    for topic in values["topics"]:
        spec = {key: topic[key] for key in ("partitions", "replicas", "config")}
        yield {"apiVersion": API, "kind": "KafkaTopic", "metadata": {"name": topic["name"]} | place, "spec": spec}
    for user in values["users"]:
        spec = {
            "authentication": {"type": "scram-sha-512"},
            "authorization": {"type": "simple", "acls": user["acls"]},
        } | ({"quotas": user["quotas"]} if "quotas" in user else {})
        yield {"apiVersion": API, "kind": "KafkaUser", "metadata": {"name": user["name"]} | place, "spec": spec}


def _acl(right: Right) -> dict[str, Any]:
    if right.resource == "cluster":
        return {"resource": {"type": "cluster"}, "operations": [*right.operations]}
    pattern = "prefix" if right.is_prefix else "literal"
    resource = {"type": right.resource, "name": right.name, "patternType": pattern}
    return {"resource": resource, "operations": [*right.operations]}
