"""Checks that the current schemas can read everything that a released version wrote (BACKWARD_TRANSITIVE).

The rules are narrower than Avro's resolution, so that a generated reader converts nothing. A field may be added with a
default. A symbol or a branch of a union may be appended. An `int` may become a `long`, and a type the branch of a
union. Fields may not be removed, renamed or reordered. Tensor may not change at all, because hand-written code reads
it.

Run `python -m schemas.compatibility`. It prints what it compared, and exits with 1 if something cannot be read.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from schemas import avsc
from schemas.definitions import CURRENT, RELEASED
from schemas.errors import CompatibilityError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_WIDENED = (avsc.Primitive("long"), avsc.Primitive("int"))


def faults(reader: avsc.Type, writer: avsc.Type, path: str) -> Iterator[str]:
    """Yield a sentence for everything in a written type that the reading type cannot take; `path` says where it is."""
    match reader, writer:
        case avsc.Union(), _:
            yield from _union_faults(reader, writer, path)
        case avsc.AvroRecord(), avsc.AvroRecord() if reader.name == writer.name != "Tensor":
            yield from _field_faults(reader, writer, path)
        case avsc.Enumeration(), avsc.Enumeration() if reader.name == writer.name:
            if reader.symbols[: len(writer.symbols)] != writer.symbols:
                yield f"{path}: symbols may only be appended to {', '.join(writer.symbols)}"
        case (avsc.Array(mine), avsc.Array(theirs)) | (avsc.Map(mine), avsc.Map(theirs)):
            yield from faults(mine, theirs, f"{path}[]")
        case _ if reader != writer and (reader, writer) != _WIDENED:
            yield f"{path}: {_describe(writer)} became {_describe(reader)}, or its definition changed"


def _union_faults(reader: avsc.Union, writer: avsc.Type, path: str) -> Iterator[str]:
    """Yield the faults between a union and what was written, a union or the type of one branch."""
    if isinstance(writer, avsc.Union):
        yield from _branch_faults(reader.branches, writer.branches, path)
    elif all(any(faults(branch, writer, path)) for branch in reader.branches):
        yield f"{path}: no branch of the union takes what was written, {_describe(writer)}"


def _branch_faults(read: tuple[avsc.Type, ...], written: tuple[avsc.Type, ...], path: str) -> Iterator[str]:
    """Yield the faults between two unions, branch by branch."""
    if len(read) < len(written):
        yield f"{path}: branches of the union were removed"
    for index, (mine, theirs) in enumerate(zip(read, written, strict=False)):
        yield from faults(mine, theirs, f"{path}<{index}>")


def _field_faults(read: avsc.AvroRecord, written: avsc.AvroRecord, path: str) -> Iterator[str]:
    """Yield the faults between two versions of a record."""
    for field in written.fields:
        mine = read.field(field.name)
        if mine is None:
            yield f"{path}.{field.name}: removed or renamed"
        else:
            yield from faults(mine.type, field.type, f"{path}.{field.name}")
    order = [field.name for field in read.fields if written.field(field.name)]
    if order != [field.name for field in written.fields if read.field(field.name)]:
        yield f"{path}: the order of the fields changed"
    for field in read.fields:
        if written.field(field.name) is None and not field.optional:
            yield f"{path}.{field.name}: added without a default"


def _describe(kind: avsc.Type) -> str:
    """Return a type in a word or two."""
    match kind:
        case avsc.Primitive(name) | avsc.AvroRecord(name) | avsc.Enumeration(name):
            return name
    return type(kind).__name__.lower()


def check(current: Mapping[str, avsc.Schema], released: Mapping[str, Mapping[str, avsc.Schema]]) -> None:
    """Compare the current schemas with every released set.

    Raises:
        CompatibilityError: With every fault, a line each.
    """
    found = []
    for version, schemas in sorted(released.items()):
        for name, schema in sorted(schemas.items()):
            if name not in current:
                found.append(f"{version} {name}: removed")
            else:
                found += [f"{version} {fault}" for fault in faults(current[name].record, schema.record, name)]
    if found:
        raise CompatibilityError("\n".join(found))


def main() -> int:
    """Check the schemas that ship; returns the exit status."""
    try:
        check(CURRENT, RELEASED)
    except CompatibilityError as error:
        sys.stderr.write(f"{error}\nAdd fields with a default, append symbols; never rename, remove or reorder.\n")
        return 1
    sys.stdout.write(f"{len(CURRENT)} schemas read everything written by {', '.join(sorted(RELEASED))}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
