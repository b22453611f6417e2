"""Ids from a schema registry, in memory."""

from __future__ import annotations

import json

import pytest

from deploy.connect.schema_registry import SUBJECTS, Registry
from schemas.codec import Codec
from schemas.definitions import CURRENT
from schemas.errors import RegistryError
from schemas.records import Query
from tests.samples import FULL

pytest.importorskip("authlib", reason="the registry's client needs the extra `registry`")
pytest.importorskip("httpx2", reason="the registry's client needs the extra `registry`")


def registered(registry: Registry, subject: str, document: object) -> int:
    """Register a schema under a subject, as another program would."""
    from confluent_kafka.schema_registry import Schema

    schema_id: int = registry.client.register_schema(subject, Schema(json.dumps(document), "AVRO"))
    return schema_id


def test_every_record_gets_an_id() -> None:
    """A subject each, with one schema; the codec writes with those ids and reads them."""
    ids = Registry({"url": "mock://ids"}).resolve("skysail")
    assert set(ids.ids) == set(SUBJECTS) == set(CURRENT)
    codec = Codec(ids.ids, ids.accepted)
    for record in FULL:
        value = codec.encode(record)
        assert value[0] == 0
        assert codec.decode(type(record), value) == record


def test_resolving_again_changes_nothing() -> None:
    """The second process to start finds what the first has registered."""
    registry = Registry({"url": "mock://again"})
    assert registry.resolve() == registry.resolve()
    assert registry.client.get_versions("queries-value") == [1]


def test_the_same_schema_under_another_id_is_accepted() -> None:
    """A client that registered our schema with words of its own writes another id for the same fingerprint."""
    registry = Registry({"url": "mock://other"})
    document = json.loads(CURRENT["Query"].text)
    document["doc"] = "in other words"
    other = registered(registry, "queries-value", document)
    ids = registry.resolve()
    assert ids.ids["Query"] != other
    assert ids.accepted[other] == CURRENT["Query"].fingerprint
    value = bytes((0, 0, 0, 0, other)) + Codec().encode(FULL[0])[10:]
    assert Codec(ids.ids, ids.accepted).decode(Query, value) == FULL[0]


def test_a_schema_of_somebody_else_is_not_accepted() -> None:
    """What another program registered under our subject is not on the allow-list, whatever it is."""
    registry = Registry({"url": "mock://foreign"})
    document = json.loads(CURRENT["Query"].text)
    document["fields"] = document["fields"][:3]
    foreign = registered(registry, "queries-value", document)
    odd = registered(registry, "queries-value", {"type": "fixed", "name": "F", "size": 4})
    ids = registry.resolve()
    assert foreign not in ids.accepted
    assert odd not in ids.accepted


def test_an_unreachable_registry_is_one_error() -> None:
    """Whatever the client library raises, the caller sees a RegistryError that says where to look."""
    with pytest.raises(RegistryError, match=r"registry\.url"):
        Registry({"url": "http://127.0.0.1:1", "max.retries": 0, "timeout": 1}).resolve()


def test_a_wrong_property_is_named() -> None:
    """A property the client does not know is refused at once."""
    with pytest.raises(RegistryError, match="no\\.such\\.property"):
        Registry({"url": "mock://x", "no.such.property": 1})
