"""Files of rows for tests of scoring: written, scored by the command, read back."""

from __future__ import annotations

import csv
import json
import os
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from click.testing import CliRunner

from deploy.cli import skysail

if TYPE_CHECKING:
    from pathlib import Path


def put(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write rows as the file's ending says."""
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, [*rows[0]])
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".avro":
        fields = [{"name": name, "type": "string" if isinstance(rows[0][name], str) else "long"} for name in rows[0]]
        with path.open("wb") as file:
            fastavro.writer(file, fastavro.parse_schema({"type": "record", "name": "R", "fields": fields}), rows)
    else:
        pa = pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
        parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
        parquet.write_table(pa.Table.from_pylist(rows), path, row_group_size=4)
    return path


def got(path: Path) -> list[dict[str, Any]]:
    """Read rows of a file that was written."""
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return [*csv.DictReader(file)]
    if path.suffix == ".avro":
        with path.open("rb") as file:
            return [*fastavro.reader(file)]  # type: ignore[misc]
    parquet = pytest.importorskip("pyarrow.parquet", reason="the extra `parquet` is not installed")
    found: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return found


def score(*arguments: object) -> Any:
    """Run the command; returns what it says as JSON."""
    runner = CliRunner(env=dict(os.environ))
    result = runner.invoke(skysail, ["score", *map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
