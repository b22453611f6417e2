"""Which changes of a schema the released data survives."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from schemas import avsc, compatibility, compiling
from schemas.compatibility import check, faults
from schemas.compiling import IS_COMPILED
from schemas.decoders import reader
from schemas.definitions import CURRENT, RELEASED
from schemas.encoders import writer
from schemas.errors import CompatibilityError, SchemaError
from schemas.records import Application, Feedback, ModelPredictions, Query
from tests.samples import FULL

if TYPE_CHECKING:
    from collections.abc import Callable


def changed(name: str, change: Callable[[str], str]) -> list[str]:
    """Return the faults between a changed current schema and the released one."""
    text = CURRENT[name].text
    assert change(text) != text
    return list(faults(avsc.load(change(text)).record, CURRENT[name].record, name))


def test_current_schemas_read_every_release(capsys: pytest.CaptureFixture[str]) -> None:
    """What ships is compatible with what was ever released, and the command says so."""
    check(CURRENT, RELEASED)
    assert "0.1.0" in RELEASED
    assert compatibility.main() == 0
    assert "0.1.0" in capsys.readouterr().out


def test_every_schema_is_released() -> None:
    """The newest release has a file for every record."""
    assert set(max(RELEASED.items())[1]) == set(CURRENT)


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("Query", '"name": "context"', '"name": "user"', "Query.context: removed or renamed"),
        (
            "Query",
            '"type": "long", "default": 0',
            '"type": "string", "default": ""',
            "Query.sent_us: long became string",
        ),
        ("Query", '["null", "double"]', '"double"', "Query.slo_ms"),
        ("Query", '["null", "double"]', '["null", "long"]', "Query.slo_ms<1>: double became long"),
        ("Query", ', "string", "bytes", ', ', "bytes", "string", ', "Query.input<1>"),
        ("Query", ', "string", "bytes", ', ', "string", ', "branches of the union were removed"),
        ("Query", '"float32", "float64"', '"float64", "float32"', "Query.input<0>: Tensor became Tensor"),
        ("Query", '"uint64", "bool"', '"uint64", "bool", "float16"', "its definition changed"),
        ("Prediction", '"partial", "default"]', '"default"]', "Prediction.status: symbols may only be appended"),
        ("Prediction", '"name": "arms"', '"name": "models"', "Prediction.decision<1>.arms: removed or renamed"),
        ("ModelPredictions", '"logicalType": "outcomes"', '"logicalType": "int32s"', "ModelPredictions.outcomes"),
        ("Application", '"values": "double"', '"values": "long"', "Application.parameters[]: double became long"),
    ],
)
def test_what_would_break_old_records_is_found(name: str, old: str, new: str, fault: str) -> None:
    """Each of these changes is refused, with the path to what it breaks."""
    text = CURRENT[name].text
    extra = {old: new}
    if new == '"double"':
        extra['"default": null, "doc": "Overrides'] = '"default": 0.0, "doc": "Overrides'
    if new == '["default"]':
        extra = {old: new}

    def change(before: str) -> str:
        for what, by in extra.items():
            before = before.replace(what, by)
        return before

    assert change(text) != text
    assert any(fault in found for found in changed(name, change))


def test_a_field_without_a_default_cannot_be_added() -> None:
    """Older records could not fill it."""

    def add(text: str) -> str:
        return text.replace('"fields": [', '"fields": [{"name": "tenant", "type": "string"},', 1)

    assert changed("Feedback", add) == ["Feedback.tenant: added without a default"]


def test_fields_cannot_change_places() -> None:
    """The id stays where peeking expects it."""
    fields = json.loads(CURRENT["Report"].text)
    fields["fields"].reverse()
    assert list(faults(avsc.load(json.dumps(fields)).record, CURRENT["Report"].record, "Report")) == [
        "Report: the order of the fields changed"
    ]


def test_a_removed_schema_is_found() -> None:
    """Records of a kind that is gone could not be read at all."""
    current = {name: schema for name, schema in CURRENT.items() if name != "Query"}
    with pytest.raises(CompatibilityError, match=r"0\.1\.0 Query: removed"):
        check(current, RELEASED)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("Query", '"type": "string", "doc": "Name of', '"type": ["null", "string"], "doc": "Name of'),
        ("ModelQueries", '"type": "int", "doc": "Partition', '"type": "long", "doc": "Partition'),
        ("Prediction", '"partial", "default"]', '"partial", "default", "refused"]'),
        ("Query", ']}], "doc": "What the models', ']}, "long"], "doc": "What the models'),
        ("Query", '"fields": [', '"fields": [{"name": "tenant", "type": "string", "default": ""},'),
    ],
)
def test_what_old_records_survive_is_allowed(name: str, old: str, new: str) -> None:
    """Wider types, appended symbols and branches, and fields with a default are no fault."""
    assert changed(name, lambda text: text.replace(old, new, 1)) == []


def written_by(text: str, **values: object) -> tuple[avsc.Schema, bytes]:
    """Return an older schema and a record written with it."""
    schema = avsc.load(text)
    record = type(schema.record.name, (), values)
    return schema, writer(schema.record)(record, b"")


def test_a_field_the_writer_did_not_know_gets_its_default() -> None:
    """A record of a version before `slo_ms` and `sent_us` is read as if it had said nothing about them."""
    text = json.loads(CURRENT["Query"].text)
    text["fields"] = text["fields"][:4]
    schema, value = written_by(json.dumps(text), query_id="q", application="a", input=b"x", context="c")
    assert reader(schema, Query)(value, 0) == (Query("q", "a", b"x", "c"), len(value))


@pytest.mark.parametrize("is_compiled", [True, False] if IS_COMPILED else [False])
def test_a_batch_of_a_released_version_says_nothing_of_why_it_started(is_compiled: bool) -> None:
    """All else that it says is read."""
    schema = RELEASED["0.1.0"]["ModelPredictions"]
    batch = next(record for record in FULL if isinstance(record, ModelPredictions))
    value = writer(schema.record)(batch, b"")
    read = compiling.reader(schema, ModelPredictions, is_compiled=is_compiled)
    assert (batch.released, read(value, 0)) == (
        "deadline",
        (batch._replace(released="", messages=(), earliest_us=0, latest_us=0, steps=()), len(value)),
    )


def test_defaults_that_hold_others_are_not_shared() -> None:
    """Two applications without parameters do not get one dictionary between them."""
    text = json.loads(CURRENT["Application"].text)
    text["fields"] = text["fields"][:2]
    schema, value = written_by(json.dumps(text), name="digits", models=("good",))
    first, second = (reader(schema, Application)(value, 0)[0] for _ in range(2))
    assert first == second == Application("digits", ("good",))
    assert first.parameters is not second.parameters


def test_a_field_the_reader_does_not_know_is_dropped() -> None:
    """What a record class has no place for is read over."""
    text = CURRENT["Feedback"].text.replace(
        '"fields": [', '"fields": [{"name": "tags", "type": {"type": "map", "values": "long"}},', 1
    )
    known = {
        "query_id": "q",
        "label": 7,
        "loss": None,
        "sent_us": 1,
        "weight": None,
        "application": "",
        "teacher": "",
        "places": [],
    }
    values = known | {"tags": {"a": 1}}
    schema, value = written_by(text, **values)
    assert reader(schema, Feedback)(value, 0) == (Feedback("q", 7, None, 1), len(value))


def test_a_missing_field_without_a_default_cannot_be_read() -> None:
    """Such a writer's schema is refused when the reader is made."""
    text = json.loads(CURRENT["Query"].text)
    text["fields"] = text["fields"][1:]
    with pytest.raises(SchemaError, match=r"Query\.query_id"):
        reader(avsc.load(json.dumps(text)), Query)
