"""Ids from a Confluent schema registry, resolved once at start; the codec itself never calls it.

confluent-kafka's registry client needs further packages (the extra `registry`). They are imported only if a registry is
configured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deploy.config.configuration import without_secrets
from schemas import avsc, topics
from schemas.codec import Codec
from schemas.definitions import CURRENT, readable
from schemas.errors import RegistryError, SchemaError
from workers.extras import install

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Self

    from deploy.config.settings import Settings

# For one answer of the registry, which is asked up to four times: by itself its client would wait for ever.
ANSWER_S: Final = 5.0
# Under which subject each record's schema stands: the topic whose values it describes. Model queries have one schema
# but a topic for every model, feedback by id, by key and of metrics has one topic, observations stand alone or several
# in a record of theirs, beside measurements, and policy states live in the store, so these have names of their own.
SUBJECTS: Final = {
    "Query": f"{topics.QUERIES}-value",
    "ModelQueries": "model-queries-value",
    "ModelPredictions": f"{topics.MODEL_PREDICTIONS}-value",
    "Prediction": f"{topics.PREDICTIONS}-value",
    "Feedback": f"{topics.FEEDBACK}-value",
    "KeyedFeedback": "keyed-feedback-value",
    "MetricFeedback": "metric-feedback-value",
    "Observation": f"{topics.OBSERVATIONS}-value",
    "Observations": "observation-batches-value",
    "Measurements": "measurements-value",
    "Application": f"{topics.APPLICATIONS}-value",
    "Model": f"{topics.MODELS}-value",
    "Report": f"{topics.REPORTS}-value",
    "PolicyState": "policy-states-value",
    "Candidate": f"{topics.CANDIDATES}-value",
    "Promotion": f"{topics.PROMOTIONS}-value",
    "Profile": f"{topics.PROFILES}-value",
    "Plan": f"{topics.PLAN}-value",
    "Features": f"{topics.FEATURES}-value",
}


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """What `Codec(ids.ids, ids.accepted)` takes.

    Attributes:
        ids: Registry id of each record's current schema.
        accepted: Fingerprint behind every id in our subjects that holds an allow-listed schema.
    """

    ids: Mapping[str, int]
    accepted: Mapping[int, bytes]


class Registry:
    """A connection to one schema registry; `close` it, or use it as a context manager.

    Args:
        properties: As confluent-kafka names them, at least `url`; `mock://<any>` is an empty registry in memory. Unless
            they say otherwise, an answer is waited for `ANSWER_S`.

    Attributes:
        client: of confluent-kafka.
        failures: that its calls raise.

    Raises:
        RegistryError: If the packages it needs are not installed, or a property is wrong.
    """

    def __init__(self, properties: Mapping[str, object]) -> None:
        try:
            from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
            from httpx2 import HTTPError
        except ImportError as error:
            raise RegistryError(f"{error}; a schema registry needs: {install('registry')}") from error
        self._schema = Schema
        self.failures = (SchemaRegistryError, HTTPError, OSError)
        try:
            self.client = SchemaRegistryClient.new_client({"timeout": ANSWER_S, **properties})
        except (TypeError, ValueError) as error:
            raise RegistryError(f"schema registry: {error}; check the properties under `registry`") from error

    def close(self) -> None:
        """Disconnect; the next call connects no more."""
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def resolve(self, prefix: str = "") -> SchemaIds:
        """Register the current schemas and read which ids stand for schemas we may read.

        Registering what is there already returns its id and changes nothing. `prefix` is the deployment's topic prefix.

        Raises:
            RegistryError: If the registry does not answer, or refuses a schema as incompatible.
        """
        subjects = {name: f"{prefix}.{subject}" if prefix else subject for name, subject in SUBJECTS.items()}
        try:
            ids = {name: self._register(name, subject) for name, subject in subjects.items()}
            accepted = dict(pair for name, subject in subjects.items() for pair in self._readable(name, subject))
        except self.failures as error:
            raise RegistryError(f"schema registry: {error}; check `registry.url` and what it has registered") from error
        return SchemaIds(ids, accepted)

    def _register(self, name: str, subject: str) -> int:
        """Register a record's current schema; returns its id."""
        return self.client.register_schema(subject, self._schema(CURRENT[name].text, "AVRO"))

    def _readable(self, name: str, subject: str) -> Iterator[tuple[int, bytes]]:
        """Yield id and fingerprint of every version of a subject that is on the allow-list of its record."""
        allowed = {schema.fingerprint for schema in readable(name)}
        for version in self.client.get_versions(subject):
            registered = self.client.get_version(subject, version)
            schema_id, text = registered.schema_id, registered.schema.schema_str
            if schema_id is not None and text is not None and (fingerprint := _fingerprint(text)) in allowed:
                yield schema_id, fingerprint


def _fingerprint(text: str) -> bytes:
    """Return a registered schema's fingerprint; none (no bytes) where it is nothing we could have written."""
    try:
        return avsc.load(text).fingerprint
    except SchemaError:
        return b""


def properties_of(settings: Settings) -> dict[str, object]:
    """Return how a registry's client connects."""
    given = settings.registry
    properties: dict[str, object] = {"url": given.url}
    if given.user is not None:
        password = "" if given.password is None else given.password.get_secret_value()
        properties["basic.auth.user.info"] = f"{given.user}:{password}"
    return properties


def codec_for(settings: Settings) -> Codec:
    """Return the codec; with a registry, registers the current schemas and takes their ids.

    Raises:
        RegistryError: the registry does not answer, or refuses a schema.
    """
    if settings.registry.url is None:
        return Codec(max_bytes=settings.max_input_kib << 10)
    try:
        with Registry(properties_of(settings)) as registry:
            found = registry.resolve(settings.prefix)
    except RegistryError as error:
        raise RegistryError(without_secrets(str(error))) from None  # the client's own errors may show the URL
    return Codec(found.ids, found.accepted, settings.max_input_kib << 10)
