"""Ids from a Confluent schema registry, resolved once at start; the codec itself never talks to it.

Needs confluent-kafka's extra dependencies (`pip install skysail[registry]`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from httpx import HTTPError

from schemas import avsc, topics
from schemas.definitions import CURRENT, readable
from schemas.errors import RegistryError, SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Ids:
    """What `Codec(ids=..., accepted=...)` takes.

    Attributes:
        ids: Registry id of each record's current schema.
        accepted: Fingerprint behind every other id of our subjects that holds an allow-listed schema.
    """

    ids: Mapping[str, int]
    accepted: Mapping[int, bytes]


# Whose value each record is. Model queries have a topic for every model but one schema, so they share a subject; policy
# states live in the store, not on a topic.
SUBJECTS: Mapping[str, str] = {
    "Query": f"{topics.QUERIES}-value",
    "ModelQuery": "models.queries-value",
    "ModelPredictions": f"{topics.MODEL_PREDICTIONS}-value",
    "Prediction": f"{topics.PREDICTIONS}-value",
    "Feedback": f"{topics.FEEDBACK}-value",
    "Observation": f"{topics.OBSERVATIONS}-value",
    "Application": f"{topics.APPLICATIONS}-value",
    "Model": f"{topics.MODELS}-value",
    "Report": f"{topics.REPORTS}-value",
    "PolicyState": "policy-states-value",
}


def connect(properties: Mapping[str, object]) -> SchemaRegistryClient:
    """Return a client; `properties` as confluent-kafka names them, at least `url`."""
    return SchemaRegistryClient(dict(properties))


def resolve(client: SchemaRegistryClient, prefix: str = "") -> Ids:
    """Register the current schemas under `<topic>-value` and read which ids stand for schemas we may read.

    Registering what is there already returns its id and changes nothing. `prefix` is the deployment's topic prefix.

    Raises:
        RegistryError: If the registry does not answer, or refuses a schema as incompatible.
    """
    try:
        ids = {name: _register(client, _subject(prefix, subject), name) for name, subject in SUBJECTS.items()}
        accepted = {
            schema_id: fingerprint
            for name, subject in SUBJECTS.items()
            for schema_id, fingerprint in _known(client, _subject(prefix, subject), name)
        }
    except (SchemaRegistryError, HTTPError, OSError) as error:
        raise RegistryError(f"schema registry: {error}; check registry.url and its compatibility setting") from error
    return Ids(ids, accepted)


def _subject(prefix: str, subject: str) -> str:
    """Return a subject with the deployment's topic prefix."""
    return f"{prefix}.{subject}" if prefix else subject


def _register(client: SchemaRegistryClient, subject: str, name: str) -> int:
    """Register a record's current schema; returns its id."""
    schema_id: int = client.register_schema(subject, Schema(CURRENT[name].text, "AVRO"))
    return schema_id


def _known(client: SchemaRegistryClient, subject: str, name: str) -> Iterator[tuple[int, bytes]]:
    """Yield the id and fingerprint of every version of a subject that the codec can read."""
    allowed = {schema.fingerprint for schema in readable(name)}
    for fingerprint, schema_id in _versions(client, subject):
        if fingerprint in allowed:
            yield schema_id, fingerprint


def _versions(client: SchemaRegistryClient, subject: str) -> Iterable[tuple[bytes | None, int]]:
    """Yield fingerprint and id of every version of a subject; None for one that is no schema of the kind we use."""
    for version in client.get_versions(subject):
        registered = client.get_version(subject, version)
        try:
            yield avsc.load(registered.schema.schema_str).fingerprint, registered.schema_id
        except SchemaError:
            yield None, registered.schema_id
