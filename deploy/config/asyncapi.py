"""The topics as an AsyncAPI 3 document, from the topology and the schemas: `docs/topics.yaml`.

    streams/topology.py ─▶ channels, operations        schemas/*.avsc ─▶ messages

Tools that know AsyncAPI draw it, and make clients of it. Every payload is the Avro schema as it stands in the package.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy.config.readable import ReadableDumper
from schemas import topics
from schemas.definitions import CURRENT
from streams.topology import build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streams.topology import Node, Topic, Topology

_HEAD: Final = (
    "# Written by `skysail topics asyncapi > docs/topics.yaml`; edit `streams/topology.py` or `schemas/` instead.\n"
)
_AVRO: Final = "application/vnd.apache.avro;version=1.9.0"
_BINDING: Final = "0.5.0"
_MODEL, _POOL = "{model}", "{pool}"
_DEAD: Final = "DeadLetter"
_CALLS: Final = "Calls"
# Topics whose values are of several kinds, or of none of ours. The role `mapping` writes feedback by key and time.
_SEVERAL: Final = {
    "verbatim": (_DEAD,),
    "Feedback": ("Feedback", "KeyedFeedback", "MetricFeedback"),
    "Observations": ("Observations", "Measurements"),
}
_INFO: Final = """\
Applications write queries and feedback, and read predictions. All other topics are the roles' own.

A value is Avro's single-object encoding: the bytes C3 01, the fingerprint (x-fingerprint, as it is written), the
record. With a schema registry it is Confluent's framing instead. Keys are UTF-8. Records with one key lie in the same
partition number of queries, predictions and feedback, by murmur2 as Kafka's Java client has it.
"""
_APPLICATION: Final = (
    ("asks", "send", topics.QUERIES),
    ("teaches", "send", topics.FEEDBACK),
    ("listens", "receive", topics.PREDICTIONS),
)


def document(prefix: str = "skysail", version: str = "0.1.0", bootstrap: str = "127.0.0.1:9092") -> dict[str, Any]:
    """Return the document of a deployment.

    Args:
        prefix: of its topics.
        version: of Skysail.
        bootstrap: `host:port` of a broker.
    """
    topology = build([_MODEL], hosts={_POOL: [_MODEL]})
    topology_alone = build([_MODEL])
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Skysail", "version": version, "description": _INFO},
        "defaultContentType": "application/avro",
        "servers": {"kafka": {"host": bootstrap, "protocol": "kafka"}},
        "channels": {_id(topic.name): _channel(topic, prefix) for topic in topology.topics.values()},
        "operations": {
            **dict(_application()),
            **{name: one for each in (topology_alone, topology) for name, one in _operations(each, prefix)},
        },
        "components": {"messages": dict(_messages(topology))},
    }


def text(prefix: str = "skysail", version: str = "0.1.0", bootstrap: str = "127.0.0.1:9092") -> str:
    """Return the document as YAML; see `document`."""
    made = document(prefix, version, bootstrap)
    written: str = yaml.dump(made, Dumper=ReadableDumper, sort_keys=False, width=120, allow_unicode=True)
    return _HEAD + written


def _id(name: str) -> str:
    """Return a name of the document for a topic or role."""
    return name.replace(_MODEL, "MODEL").replace(_POOL, "POOL")


def _messages_of(topic: Topic) -> tuple[str, ...]:
    """Return what a topic's values are."""
    return _SEVERAL.get(topic.value, (topic.value,))


def _channel(topic: Topic, prefix: str) -> dict[str, Any]:
    address, kept = f"{prefix}.{topic.name}" if prefix else topic.name, topic.config()
    placed = {"parameters": {"model": {"description": "Name of the model."}}} if _MODEL in topic.name else {}
    configuration: dict[str, object] = {
        "cleanup.policy": [kept["cleanup.policy"]],
        **{name: int(kept[name]) for name in ("retention.ms", "max.message.bytes") if name in kept},
    }
    return {
        "address": address,
        "description": f"Key: {topic.key}.",
        **placed,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _messages_of(topic)},
        "bindings": {
            "kafka": {
                "partitions": topic.partitions,
                "topicConfiguration": configuration,
                "bindingVersion": _BINDING,
            }
        },
    }


def _application() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what applications do."""
    for verb, action, name in _APPLICATION:
        yield f"application.{verb}", {"action": action, "channel": _to(name)}


def _operations(topology: Topology, prefix: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what roles do."""
    for node in topology.nodes:
        role = _id(node.role)
        for name in node.consumes:
            yield f"{role}.reads.{_id(name)}", {**_receive(name), "bindings": _group(node, prefix)}
        for name in node.follows:
            yield f"{role}.follows.{_id(name)}", _receive(name)
        for name in node.samples:
            yield f"{role}.samples.{_id(name)}", _receive(name)
        for name in node.produces:
            yield f"{role}.writes.{_id(name)}", {"action": "send", "channel": _to(name)}


def _receive(name: str) -> dict[str, Any]:
    return {"action": "receive", "channel": _to(name)}


def _to(name: str) -> dict[str, str]:
    return {"$ref": f"#/channels/{_id(name)}"}


def _group(node: Node, prefix: str) -> dict[str, Any]:
    group = _id(f"{prefix}.{node.group}" if prefix else node.group)
    return {"kafka": {"groupId": {"type": "string", "const": group}, "bindingVersion": _BINDING}}


def _messages(topology: Topology) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the messages of all channels."""
    keys = {name: topic for topic in reversed([*topology.topics.values()]) for name in _messages_of(topic)}
    for name, topic in sorted(keys.items()):
        if name == _DEAD:
            yield name, _DEAD_LETTER
        elif name == _CALLS:
            yield name, _CALLS_OF_A_KERNEL
        elif name in CURRENT:
            yield name, _message(name, topic)
        else:
            yield name, {"name": name, "contentType": "application/json", "payload": {"type": "object"}}


def _message(name: str, topic: Topic) -> dict[str, Any]:
    schema = CURRENT[name]
    raw = json.loads(schema.text)
    return {
        "name": name,
        "summary": raw["doc"],
        "contentType": "application/avro",
        "x-fingerprint": schema.fingerprint.hex(),
        "payload": {"schemaFormat": _AVRO, "schema": raw},
        "bindings": {"kafka": {"key": {"type": "string", "description": topic.key}, "bindingVersion": _BINDING}},
    }


_DEAD_LETTER: Final[dict[str, Any]] = {
    "name": _DEAD,
    "summary": "A record that could not be processed, key and value as they came.",
    "contentType": "application/octet-stream",
    "headers": {
        "type": "object",
        "properties": {
            "skysail.error.cause": {"type": "string", "description": "A word that dead letters are grouped by."},
        },
        "required": ["skysail.error.cause"],
    },
    "payload": {"type": "string", "format": "binary"},
}
_CALLS_OF_A_KERNEL: Final[dict[str, Any]] = {
    "name": _CALLS,
    "summary": "What a role's kernel was called with, by which `skysail replay --offline` makes the same calls.",
    "contentType": "application/octet-stream",
    "payload": {"type": "string", "format": "binary"},
}
