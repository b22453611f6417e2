"""Values of other topics that a reader or writer could stumble over."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from streams.mapping import avro
from streams.mapping.formats import TopicForm, writer
from streams.mapping.schemas import RegisteredSchemas

NODE: dict[str, Any] = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
# A value that holds itself 100,000 times; where a reader follows it on its stack, the process is gone.
DEEP = """
import json, sys
from streams.mapping import avro
from streams.mapping.errors import MappingError
read = avro.plain_reader(avro.parsed("schema", sys.argv[1]))
print(read(bytes([2, 2, 0])))
try:
    read(bytes([2]) * 100_000 + bytes([0]))
except MappingError as error:
    print(error)
"""


def test_a_value_of_any_depth_is_refused_and_ends_nothing() -> None:
    """A record of 100 KB; another process reads it."""
    ran = subprocess.run([sys.executable, "-c", DEEP, json.dumps(NODE)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines()[0] == "{'next': {'next': {'next': None}}}"
    assert "is not written by the schema" in ran.stdout


@pytest.mark.parametrize(
    ("schema", "references", "nests"),
    [
        (NODE, [], True),
        ({"type": "record", "name": "List", "fields": [{"name": "all", "type": {"type": "array", "items": "List"}}]},
         [], True),
        ({"type": "record", "name": "Has", "fields": [{"name": "node", "type": "Node"}]}, [NODE], True),
        ({"type": "record", "name": "A", "namespace": "x", "fields": [{"name": "b", "type": {
            "type": "record", "name": "B", "fields": [{"name": "a", "type": {"type": "map", "values": "A"}}]}}]},
         [], True),
        ({"type": "record", "name": "Twice", "fields": [
            {"name": "one", "type": {"type": "record", "name": "One", "fields": [{"name": "x", "type": "int"}]}},
            {"name": "two", "type": ["null", "One"]}]}, [], False),
    ],
)  # fmt: skip
def test_types_that_stand_in_themselves_are_found(schema: dict[str, Any], references: list[Any], nests: bool) -> None:
    """In an array, a map, through another type, and by reference; a type that is used twice does not."""
    texts = [json.dumps(each) for each in references]
    assert avro.parsed("schema", json.dumps(schema), texts).nests is nests


def test_types_that_are_used_many_times_are_looked_through_once() -> None:
    """Each of 60 has the one before it twice: 2 to the 60th, if each use counted."""
    texts = ['{"type": "record", "name": "T0", "fields": []}']
    for place in range(1, 60):
        fields = [{"name": name, "type": f"T{place - 1}"} for name in ("a", "b")]
        texts.append(json.dumps({"type": "record", "name": f"T{place}", "fields": fields}))
    assert not avro.parsed("schema", texts[-1], texts[:-1]).nests


def test_a_line_of_csv_stays_one_record_whatever_stands_in_it() -> None:
    """As Python's own reader has it back; days, decimals and bytes stand there plainly, lists as JSON."""
    row = {
        "lines": "a\nb\rc", "quoted": 'say "x", y', "day": date(2026, 1, 2), "price": Decimal("1.50"), "raw": b"ab",
        "none": None, "list": [1, "x"],
    }  # fmt: skip
    write = writer(TopicForm("scored", "csv", tuple(row)), RegisteredSchemas())
    (found,) = csv.reader([write(row).decode()], strict=True)
    assert found == ["a\nb\rc", 'say "x", y', "2026-01-02", "1.50", "YWI=", "", '[1, "x"]']
