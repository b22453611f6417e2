"""Scored rows as files: chunks of their own, and at the end one file of all of them."""

from __future__ import annotations

import csv
import json
import os
import shutil
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import fastavro
import numpy as np
import orjson

from deploy.errors import UsageError
from deploy.scoring.reading import kind
from deploy.scoring.scored import FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from deploy.scoring.blocks import RowBlock
    from deploy.scoring.scored import Scored

# Of a field in Avro and Parquet; `answer` is told by the models.
_TYPES: Final[Mapping[str, str]] = {
    "id": "text", "confidence": "number", "status": "text", "reason": "text", "message": "text", "model": "text",
    "version": "text", "propensity": "number", "state_version": "whole",
}  # fmt: skip
_AVRO: Final[Mapping[str, str]] = {"text": "string", "number": "double", "whole": "long"}


class OutputForm(NamedTuple):
    """How rows are written.

    Attributes:
        kind: parquet, csv, json or avro.
        answer: what answers are: whole, number, text.
        keep: columns of the input that stand in the output, too.
        fields: what each field of an answer is called, by field.
        keeps_all: whether that is all of them.
    """

    kind: str
    answer: str
    keep: tuple[str, ...]
    fields: Mapping[str, str]
    keeps_all: bool = False

    def type_of(self, field: str) -> str:
        """Return what a field of an answer is."""
        return self.answer if field == "answer" else _TYPES[field]


def answer_kind(kinds: frozenset[str]) -> str:
    """Return what a column of answers is that has some of these kinds; several are written as texts."""
    if kinds == {"whole", "number"}:
        return "number"
    return next(iter(kinds)) if len(kinds) == 1 else "text"


def named(given: Sequence[str]) -> dict[str, str]:
    """Return what fields are called, by field, of `NAME=FIELD` and `FIELD`.

    Raises:
        UsageError: there is no such field.
    """
    found: dict[str, str] = {}
    for each in given:
        name, _, field = each.rpartition("=")
        if field not in FIELDS:
            raise UsageError(f"--field {each}: there is no {field}; there are: {', '.join(FIELDS)}")
        found[field] = name or field
    return found or {field: field for field in FIELDS}


def check_names(form: OutputForm, names: Sequence[str]) -> None:
    """Refuse fields that are called as a column that is kept.

    Raises:
        UsageError: one is.
    """
    missing = [name for name in form.keep if name not in names]
    if missing:
        raise UsageError(f"--keep: there is no column {missing[0]}; there are: {', '.join(names)[:400]}")
    twice = [name for name in form.fields.values() if name in form.keep]
    if twice:
        field = next(field for field, name in form.fields.items() if name == twice[0])
        raise UsageError(
            f"the input has a column {twice[0]}, too: call the field otherwise (--field scored_{field}={field}), or"
            " leave the column out (--keep none, --keep a,b)"
        )


def columns(form: OutputForm, block: RowBlock, ids: Sequence[str], scored: Scored) -> dict[str, Sequence[Any]]:
    """Return the output's columns of a block, kept ones first."""
    kept = block.names if form.keeps_all and form.kind == "json" else form.keep  # rows of JSON differ
    found: dict[str, Sequence[Any]] = {name: block.listed(name) for name in kept}
    for field, name in form.fields.items():
        cells = ids if field == "id" else getattr(scored, field)
        found[name] = [_answer(form.answer, cell) for cell in cells] if field == "answer" else cells
    return found


def _answer(kind: str, cell: Any) -> Any:
    """Return an answer as a column of its kind holds it."""
    if cell is None:
        return None
    if kind == "number":
        return float(cell) if isinstance(cell, int | float) else None
    if kind == "whole":
        return cell if isinstance(cell, int) else None
    return cell if isinstance(cell, str) else json.dumps(cell)


def write(path: Path, form: OutputForm, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
    """Write a chunk; it is there whole, or not at all."""
    unfinished = path.with_name(f".{path.name}.part")
    _WRITERS[form.kind](unfinished, form, block, ids, scored)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.rename(path)


def lines(form: OutputForm, block: RowBlock, ids: Sequence[str], scored: Scored) -> Iterator[dict[str, Any]]:
    """Yield the output's rows by name."""
    found = columns(form, block, ids, scored)
    return (dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True))


def _write_json(path: Path, form: OutputForm, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
    with path.open("wb") as file:
        file.writelines(map(_line, lines(form, block, ids, scored)))


def _line(row: dict[str, Any]) -> bytes:
    return orjson.dumps(row, default=as_json, option=orjson.OPT_APPEND_NEWLINE)


def as_json(value: object) -> object:
    """Return what JSON has for a value that is none of its own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return value.hex() if isinstance(value, bytes) else str(value)


def _write_csv(path: Path, form: OutputForm, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
    found = columns(form, block, ids, scored)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(zip(*map(_cells, found.values()), strict=True))


def _cells(cells: Sequence[Any]) -> Sequence[Any]:
    return [cell if isinstance(cell, str | int | float) or cell is None else _line({"": cell})[4:-2].decode()
            for cell in cells]  # fmt: skip


def _write_avro(path: Path, form: OutputForm, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
    found = {**columns(form, block, ids, scored)}
    for name in form.keep:
        found[name] = [None if cell is None else cell if isinstance(cell, str) else _text(cell) for cell in found[name]]
    with path.open("wb") as file:
        fastavro.writer(
            file, _schema(form), (dict(zip(found, row, strict=True)) for row in zip(*found.values(), strict=True))
        )


def _text(cell: Any) -> str:
    return orjson.dumps(cell, default=as_json).decode()


def _schema(form: OutputForm) -> Any:
    """Return the schema of the output: what is kept is a text, or its JSON."""
    fields = [{"name": name, "type": ["null", "string"]} for name in form.keep]
    fields += [{"name": name, "type": ["null", _AVRO[form.type_of(field)]]} for field, name in form.fields.items()]
    return fastavro.parse_schema({"type": "record", "name": "Scored", "fields": fields})


def _write_parquet(path: Path, form: OutputForm, block: RowBlock, ids: Sequence[str], scored: Scored) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    types = {"text": pa.string(), "number": pa.float64(), "whole": pa.int64()}
    names, arrays = [], []
    for name in form.keep:
        names.append(name)
        arrays.append(pa.array(map(_kept, block.listed(name)), pa.string()) if block.arrow is None else
                      block.arrow.column(name))  # fmt: skip
    for field, name in form.fields.items():
        cells = ids if field == "id" else getattr(scored, field)
        if field == "answer":
            cells = [_answer(form.answer, cell) for cell in cells]
        names.append(name)
        arrays.append(pa.array(cells, types[form.type_of(field)]))
    parquet.write_table(pa.Table.from_arrays(arrays, names=names), path)


def _kept(cell: Any) -> str | None:
    """Return a cell of a file without types as a text."""
    return cell if cell is None or isinstance(cell, str) else _text(cell)


def join(parts: Sequence[Path], path: Path, form: OutputForm) -> None:
    """Make one file of chunks, in order; it is there whole, or not at all."""
    unfinished = path.with_name(f".{path.name}.part")
    _JOINERS[form.kind](parts, unfinished, form)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    unfinished.rename(path)


def _join_bytes(parts: Sequence[Path], path: Path, form: OutputForm) -> None:
    with path.open("wb") as file:
        if form.kind == "csv":
            heads = [*form.keep, *form.fields.values()]
            file.write(",".join(f'"{head}"' if "," in head else head for head in heads).encode() + b"\n")
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 20)


def _join_avro(parts: Sequence[Path], path: Path, form: OutputForm) -> None:
    with path.open("wb") as file:
        out = fastavro.write.Writer(file, _schema(form))
        for part in parts:
            with part.open("rb") as source:
                for block in fastavro.block_reader(source):
                    out.write_block(block)
        out.flush()


def _join_parquet(parts: Sequence[Path], path: Path, form: OutputForm) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    if not parts:
        types = {"text": pa.string(), "number": pa.float64(), "whole": pa.int64()}
        fields = [(name, types[form.type_of(field)]) for field, name in form.fields.items()]
        parquet.write_table(pa.schema([*[(name, pa.string()) for name in form.keep], *fields]).empty_table(), path)
        return
    with parquet.ParquetFile(parts[0]) as first, parquet.ParquetWriter(path, first.schema_arrow) as out:
        for part in parts:
            with parquet.ParquetFile(part) as source:
                for number in range(source.metadata.num_row_groups):
                    out.write_table(_alike(source.read_row_group(number), first.schema_arrow))


def _alike(rows: Any, schema: Any) -> Any:
    """Return rows with the types of the first chunk.

    Raises:
        UsageError: files of the input have columns of other types.
    """
    try:
        return rows if rows.schema.equals(schema) else rows.cast(schema)
    except (ValueError, NotImplementedError) as error:
        raise UsageError(
            f"the files of the input differ in the types of their columns ({error!s:.200}): leave these out (--keep)"
        ) from error


_WRITERS: Final[Mapping[str, Callable[[Path, OutputForm, RowBlock, Sequence[str], Scored], None]]] = {
    "json": _write_json,
    "csv": _write_csv,
    "avro": _write_avro,
    "parquet": _write_parquet,
}
_JOINERS: Final[Mapping[str, Callable[[Sequence[Path], Path, OutputForm], None]]] = {
    "json": _join_bytes,
    "csv": _join_bytes,
    "avro": _join_avro,
    "parquet": _join_parquet,
}


def output_kind(path: Path) -> str:
    """Return the kind of a file that is to be written.

    Raises:
        UsageError: its ending says none.
    """
    return kind(path)
