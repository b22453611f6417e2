"""docs/topics.yaml is what the topology and the records are: whoever makes a client of it can read them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import fastavro
import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import skysail
from schemas.codec import Codec
from schemas.definitions import CURRENT, field_names
from streams.topology import build
from tests.samples import ALL

PAGE = Path(__file__).parents[3] / "docs" / "topics.yaml"
# An observation alone is an item of `Observations`; policy states lie in Redis.
OUTSIDE = {"Observation", "PolicyState"}
RECORDS = [record for record in ALL if type(record).__name__ not in OUTSIDE]


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Return the committed document."""
    found: dict[str, Any] = yaml.safe_load(PAGE.read_text(encoding="utf-8"))
    return found


def test_the_committed_document_is_what_the_command_prints() -> None:
    """Who changes a schema or a topic writes it again."""
    printed = CliRunner().invoke(skysail, ["topics", "asyncapi"])
    assert printed.exit_code == 0
    assert PAGE.read_text(encoding="utf-8") == printed.output, "run: skysail topics asyncapi > docs/topics.yaml"


def test_it_has_every_topic_with_its_settings(page: dict[str, Any]) -> None:
    """By its name in Kafka, as `skysail topics create` makes it."""
    topology = build(["{model}"])
    found = {channel["address"]: channel["bindings"]["kafka"] for channel in page["channels"].values()}
    assert found.keys() == {f"skysail.{name}" for name in topology.topics}
    for topic in topology.topics.values():
        kafka = found[f"skysail.{topic.name}"]
        kept = {name: str(one) for name, one in kafka["topicConfiguration"].items() if name != "cleanup.policy"}
        assert kafka["partitions"] == topic.partitions
        assert kept.items() <= topic.config().items()


def test_it_has_every_edge_of_the_topology(page: dict[str, Any]) -> None:
    """Nobody reads or writes what it does not tell, and the groups are those of the roles."""
    operations = page["operations"]
    for node in build(["MODEL"]).nodes:
        reads = {name for name in operations if name.startswith(f"{node.role}.reads.")}
        assert reads == {f"{node.role}.reads.{name}" for name in node.consumes}
        assert {f"{node.role}.writes.{name}" for name in node.produces} <= operations.keys()
        assert {f"{node.role}.follows.{name}" for name in node.follows} <= operations.keys()
        for name in reads:
            assert operations[name]["bindings"]["kafka"]["groupId"]["const"] == f"skysail.{node.group}"


def test_references_lead_somewhere(page: dict[str, Any]) -> None:
    """Each channel and message that is named is there."""

    def check(found: Any) -> None:
        if isinstance(found, dict):
            if "$ref" in found:
                there: Any = page
                for step in found["$ref"].removeprefix("#/").split("/"):
                    there = there[step]
            for one in found.values():
                check(one)

    check({name: page[name] for name in ("channels", "operations")})
    assert {message["$ref"].rpartition("/")[2] for c in page["channels"].values() for message in c["messages"].values()}


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_its_schemas_read_what_skysail_writes(page: dict[str, Any], record: Any) -> None:
    """With fastavro, which knows nothing but the document: framing, fingerprint and every byte."""
    message, value = page["components"]["messages"][type(record).__name__], Codec().encode(record)
    assert value[:10].hex() == "c301" + message["x-fingerprint"]
    rest = io.BytesIO(value[10:])
    found: Any = fastavro.schemaless_reader(rest, message["payload"]["schema"], None)
    assert rest.read() == b""
    expected = {name: one for name, one in plain(record).items() if isinstance(one, str | int | float)}
    assert {name: found[name] for name in expected} == expected


def plain(record: Any) -> dict[str, Any]:
    """Return the fields of a record."""
    return {name: getattr(record, name) for name in field_names(type(record))}


def test_every_record_that_travels_by_itself_is_in_it(page: dict[str, Any]) -> None:
    """What does not lies elsewhere."""
    messages = page["components"]["messages"]
    assert {*CURRENT} - OUTSIDE == {*messages} - {"DeadLetter", "Calls", "JSON"}
    for name in CURRENT.keys() - OUTSIDE:
        schema = messages[name]["payload"]["schema"]
        form = fastavro.schema.to_parsing_canonical_form(schema)
        assert fastavro.schema.fingerprint(form, "CRC-64-AVRO") == CURRENT[name].fingerprint.hex()
