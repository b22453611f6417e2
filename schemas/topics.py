"""Topic names, without the deployment's prefix, and the rules for the names that go into them."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

from schemas.errors import SchemaError

QUERIES: Final = "queries"
MODEL_PREDICTIONS: Final = "model-predictions"
PREDICTIONS: Final = "predictions"
SHADOWS: Final = "shadows"
FEEDBACK: Final = "feedback"
OBSERVATIONS: Final = "observations"
APPLICATIONS: Final = "applications"
MODELS: Final = "models"
REPORTS: Final = "reports"
CANDIDATES: Final = "candidates"
PROMOTIONS: Final = "promotions"
PROFILES: Final = "profiles"
PLAN: Final = "plan"
FEATURES: Final = "features"
CALLS: Final = "calls"
MAPPING: Final = "mapping"  # no topic: the dead letters of topics that are not Skysail's own are `mapping.dlq`

# Before the name of a topic that is not Skysail's own, which has no prefix. No name in Kafka has such a sign.
OUTSIDE: Final = "/"

# Between name and version in keys of `models`; the record under the bare name is the version that serves.
MODEL_VERSION: Final = "@"
# Behind the version that rows name: if it is not loaded, the one that serves answers them.
OR_SERVING: Final = "?"

# Longer keys of features are named by their hash: they are a client's, and are kept in every process.
MAX_KEY_BYTES: Final = 256

# Of a model's topic, unless the model's record says otherwise.
MODEL_PARTITIONS: Final = 4

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
_VERSION = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._+:-]{0,255}", re.ASCII)


def model_queries(model: str) -> str:
    """Return the topic of one model's queries."""
    return f"models.{model}.queries"


def asked_model(topic: str) -> str:
    """Return the model whose queries a topic holds: the reverse of `model_queries`."""
    return topic.removeprefix("models.").removesuffix(".queries")


def model_version(model: str, version: str) -> str:
    """Return the key in `models` under which a version is known, whether it serves or not."""
    return f"{model}{MODEL_VERSION}{version}"


def candidate(kind: str, name: str) -> str:
    """Return the key in `candidates` and `promotions` of a model (kind `version`) or application (kind `policy`)."""
    return f"{kind}/{name}"


def feature_key(source: str, key: str) -> str:
    """Return the key in `features` of one key's features; a source's name alone is the key of their running mean.

    A key of more than `MAX_KEY_BYTES` bytes stands there by its BLAKE2b, 128 characters.
    """
    if len(key) * 4 > MAX_KEY_BYTES and len(encoded := key.encode(errors="surrogatepass")) > MAX_KEY_BYTES:
        key = blake2b(encoded).hexdigest()
    return f"{source}/{key}"


def dead_letters(topic: str) -> str:
    """Return the topic that takes what of `topic` could not be processed; one takes that of all other topics."""
    return f"{MAPPING if topic.startswith(OUTSIDE) else topic}.dlq"


def outside(topic: str) -> str:
    """Return what a topic is called here that is not Skysail's own."""
    return OUTSIDE + topic


def check_name(name: str, what: str = "model") -> str:
    """Return a name if it can be part of a topic's.

    Raises:
        SchemaError: not lower-case letters, digits and dashes (Kafka confuses dots and underscores in metric names).
    """
    if not _NAME.fullmatch(name):
        raise SchemaError(f"{what} name {name!r}: use 1 to 63 lower-case letters, digits and dashes, no dash first")
    return name


def check_version(version: str) -> str:
    """Return a version if it can stand in a key, a command and a log.

    Raises:
        SchemaError: it holds anything but letters, digits and `. _ + : -`, or is too long.
    """
    if not _VERSION.fullmatch(version):
        raise SchemaError(
            f"version {version!r:.100}: use 1 to 256 letters, digits and . _ + : -, the first a letter or digit"
        )
    return version
