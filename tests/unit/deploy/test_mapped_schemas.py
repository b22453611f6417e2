"""Schemas of a registry and of files, as role `mapping` gets them."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from deploy.config.configuration import load
from deploy.config.protobuf_compiler import compiled
from deploy.config.settings import Settings
from deploy.connect import schema_registry
from deploy.connect.mapped_schemas import MappedSchemas
from deploy.connect.schema_registry import Registry
from deploy.errors import SettingsError, UsageError
from deploy.state import desired
from streams.mapping.protobuf import message_type
from streams.mapping.spec import TopicMapping
from streams.runtime.errors import StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MONEY = {"type": "record", "name": "Money", "fields": [{"name": "amount", "type": "double"}]}
ORDER = {"type": "record", "name": "Order", "fields": [{"name": "paid", "type": "Money"}]}
PROTO = 'syntax = "proto3"; package shop; message Order { string id = 1; double amount = 2; }'


def found(schemas: MappedSchemas, *keys: str) -> list[Any]:
    """Return what a registry tells about keys."""
    told: Sequence[bytes | None] = asyncio.run(schemas.features(keys))
    return [None if value is None else json.loads(value) for value in told]


def test_a_schema_is_told_by_its_id_with_those_that_it_refers_to() -> None:
    """And the latest of a subject; None where there is none."""
    registry = Registry({"url": "mock://references"})
    client = registry.client
    client.register_schema("money-value", Schema(json.dumps(MONEY), "AVRO"))
    order = Schema(json.dumps(ORDER), "AVRO", [SchemaReference("Money", "money-value", 1)])
    number = client.register_schema("orders-value", order)
    told, latest, nothing, nobody = found(
        MappedSchemas(Settings(), registry), f"schema/{number}", "subject/orders-value", "schema/999", "subject/x-value"
    )

    assert told == latest == {
        "id": number, "type": "AVRO", "schema": json.dumps(ORDER), "references": [json.dumps(MONEY)],
    }  # fmt: skip
    assert (nothing, nobody) == (None, None)


def test_a_schema_of_protobuf_is_compiled_and_one_that_cannot_be_says_why() -> None:
    """The kernel gets descriptors, and no text."""
    registry = Registry({"url": "mock://protobuf"})
    good = registry.client.register_schema("good-value", Schema(PROTO, "PROTOBUF"))
    bad = registry.client.register_schema("bad-value", Schema("message {", "PROTOBUF"))
    told, spoilt = found(MappedSchemas(Settings(), registry), f"schema/{good}", f"schema/{bad}")

    assert message_type("test", told["schema"]).DESCRIPTOR.full_name == "shop.Order"
    assert spoilt["type"].startswith("PROTOBUF that cannot be compiled (is no Protobuf schema: ")


def test_without_a_registry_a_look_up_says_which_setting_is_missing() -> None:
    """Applications that need one are refused before they run."""
    with pytest.raises(StoreUnavailableError, match=r"set `registry\.url`"):
        found(MappedSchemas(Settings()), "schema/1")


def test_a_registry_that_takes_a_question_and_says_nothing_keeps_no_look_up_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its connection may be half open; the kernel asks again, and is answered as soon as there is somebody."""
    monkeypatch.setattr(schema_registry, "ANSWER_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        registry = Registry({"url": url, "max.retries": 0})
        with pytest.raises(StoreUnavailableError, match="timed out"):
            found(MappedSchemas(Settings(), registry), "schema/1")


def settings_of(folder: Path, mapping: dict[str, Any]) -> Settings:
    """Return the settings of a file in a folder."""
    (folder / "skysail.yaml").write_text(json.dumps({"applications": {"fraud": {"models": ["forest"], **mapping}}}))
    return load(folder / "skysail.yaml", {})


def test_a_schema_in_a_file_travels_with_the_application(tmp_path: Path) -> None:
    """The file lies beside the settings; a Protobuf file may import its neighbours."""
    (tmp_path / "orders.avsc").write_text(json.dumps({**MONEY, "name": "Order"}))
    (tmp_path / "money.proto").write_text('syntax = "proto3"; message Money { double amount = 1; }')
    (tmp_path / "truths.proto").write_text(
        'syntax = "proto3"; import "money.proto"; message Truth { string id = 1; Money paid = 2; }'
    )
    settings = settings_of(
        tmp_path,
        {
            "from": {"topic": "orders", "format": "avro", "schema": "orders.avsc", "input": "amount"},
            "feedback": [
                {"topic": "truths", "format": "protobuf", "schema": "truths.proto", "id": "id", "label": "paid.amount"}
            ],
        },
    )
    mapping = TopicMapping.parse(desired.mapped(settings.applications["fraud"]))

    assert mapping.incoming is not None
    assert json.loads(mapping.incoming.form.schema)["name"] == "Order"
    truth = message_type("test", mapping.feedback[0].form.schema)
    assert truth.DESCRIPTOR.fields_by_name["paid"].message_type.full_name == "Money"


def test_a_schema_file_that_is_not_there_or_no_schema_is_refused(tmp_path: Path) -> None:
    """With its name."""
    given = {"from": {"topic": "orders", "format": "protobuf", "schema": "orders.proto", "input": "amount"}}
    with pytest.raises(SettingsError, match=r"orders\.proto cannot be read"):
        settings_of(tmp_path, given)
    (tmp_path / "orders.proto").write_text("message {")
    with pytest.raises(SettingsError, match="is no Protobuf schema"):
        settings_of(tmp_path, given)


def test_what_an_application_maps_must_fit_the_settings() -> None:
    """A registry that nobody names; a click on an answer that waits no longer."""
    mapped = {"from": {"topic": "orders", "key": "user", "input": "amount"}}
    registry = {"from": {**mapped["from"], "format": "avro", "schema": "registry"}}
    clicks = {**mapped, "feedback": [{"topic": "clicks", "key": "user", "within": "2h", "loss": "0"}], "window_s": 600}
    for given, message in ((registry, r"set `registry\.url`"), (clicks, "within is 7200 s, over window_s")):
        settings = Settings.model_validate({"applications": {"fraud": {"models": ["forest"], **given}}})
        with pytest.raises(UsageError, match=message):
            desired.applications(settings)


def test_a_metric_that_a_topic_tells_is_one_of_the_application() -> None:
    """And one that is told: latencies and prices are measured."""
    told = {"topic": "sales", "id": "id", "metric": "revenue", "value": "price"}
    metrics = {"revenue": {"span": 10}, "late": {"span": 10, "of": "latency"}}
    application = {"models": ["forest"], "metrics": metrics, "feedback": [told]}
    assert Settings.model_validate({"applications": {"shop": application}}).applications["shop"].feedback == (told,)
    for wrong in ("revenu", "late"):
        given = application | {"feedback": [{**told, "metric": wrong}]}
        with pytest.raises(ValueError, match=f"{wrong} is no metric that is told; in `metrics`: revenue"):
            Settings.model_validate({"applications": {"shop": given}})


def test_a_compiler_that_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Avro needs none."""
    monkeypatch.setattr("deploy.config.protobuf_compiler.find_spec", lambda _: None)
    with pytest.raises(Exception, match=r"pip install 'skysail\[protobuf\]'"):
        compiled(PROTO)
