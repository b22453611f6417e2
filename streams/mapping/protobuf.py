"""Values written as Protobuf: a message of the settings' schema without framing, or one that a registry's schema has.

    registry's framing    0 │ id, 4 bytes │ which message of the file: how many numbers follow, and these │ message

The numbers are zigzag varints: the place of the message in its file, then of one inside it, and so on. `0` alone stands
for the first message. Schemas come compiled, as a `FileDescriptorSet`; who has a compiler makes it.

A field that is not set is null, where Protobuf knows that: messages, `optional` ones and those of a `oneof`. An
enumeration is its name, a map an object.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, Final

from schemas.errors import DecodeError
from schemas.wire import read_long, write_long
from streams.mapping.avro import FRAME_BYTES, schema_id
from streams.mapping.errors import MappingError
from streams.mapping.schemas import BY_ID, BY_SUBJECT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from streams.mapping.schemas import RegisteredSchemas

    Row: TypeAlias = Mapping[str, Any]

KIND: Final = "PROTOBUF"
_MOST_DEEP: Final = 16


def message_type(where: str, compiled: str, name: str = "") -> Any:
    """Return the class of a message.

    Args:
        where: the schema stands.
        compiled: a `FileDescriptorSet` in base64.
        name: of the message, with its package; empty: the first one of the last file.

    Raises:
        MappingError: it cannot be read, or has no such message.
    """
    file, pool = _file(where, compiled)
    if name:
        try:
            found = pool.FindMessageTypeByName(name)
        except KeyError as error:
            there = ", ".join(sorted(each.full_name for each in file.message_types_by_name.values()))
            raise MappingError(where, f"has no message {name}; there are: {there}") from error
    else:
        found = _at(where, file, (0,))
    return _class_of(found)


def plain_reader(kind: Any) -> Callable[[bytes], Row]:
    """Return what reads messages without framing."""
    return lambda value: _read(value, kind)


def plain_writer(kind: Any) -> Callable[[Row], bytes]:
    """Return what writes messages without framing."""
    return lambda row: _written(b"", row, kind)


def framed_reader(schemas: RegisteredSchemas) -> Callable[[bytes], Row]:
    """Return what reads messages by the schemas that they name."""

    def read(value: bytes) -> Row:
        key = f"{BY_ID}{schema_id(value)}"
        found = schemas.get(key, KIND)
        places, begin = _places(value, FRAME_BYTES)
        form = ".".join(map(str, places))
        kind = schemas.parsed(key, form)
        if kind is None:
            where = key.replace("/", " ")
            kind = _class_of(_at(where, _file(where, found.text)[0], places))
            schemas.keep(key, form, kind)
        return _read(value[begin:], kind)

    return read


def framed_writer(schemas: RegisteredSchemas, topic: str, name: str) -> Callable[[Row], bytes]:
    """Return what writes a message of the latest schema of a topic's subject; the first one, unless it is named."""
    key = f"{BY_SUBJECT}{topic}-value"

    def write(row: Row) -> bytes:
        found = schemas.get(key, KIND)
        made = schemas.parsed(key, name)
        if made is None:
            kind = message_type(key.replace("/", " "), found.text, name)
            made = kind, b"\0" + found.id.to_bytes(4, "big") + _place_of(kind.DESCRIPTOR)
            schemas.keep(key, name, made)
        return _written(made[1], row, made[0])

    return write


def _file(where: str, compiled: str) -> tuple[Any, Any]:
    """Return the descriptor of the last file, and all descriptors."""
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(compiled, validate=True)).file
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(files[-1].name), pool
    except Exception as error:  # the parts of protobuf in C raise errors of their own
        raise MappingError(where, f"is no compiled Protobuf schema: {error or type(error).__name__}") from error


def _class_of(descriptor: Any) -> Any:
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(descriptor)


def _at(where: str, file: Any, places: Sequence[int]) -> Any:
    """Return the message at a place of a file."""
    from google.protobuf import descriptor_pb2

    given = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(given)
    among, name = given.message_type, given.package
    try:
        for place in places:
            name = f"{name}.{among[place].name}" if name else among[place].name
            among = among[place].nested_type
    except IndexError as error:
        raise MappingError(where, f"has no message at {[*places]}") from error
    return file.pool.FindMessageTypeByName(name)


def _place_of(descriptor: Any) -> bytes:
    """Return where a message stands in its file, as it stands in a frame."""
    places: list[int] = []
    while descriptor is not None:
        parent = descriptor.containing_type
        among = descriptor.file.message_types_by_name.values() if parent is None else parent.nested_types
        places.insert(0, [each.name for each in among].index(descriptor.name))
        descriptor = parent
    if places == [0]:
        return b"\0"
    return b"".join(map(write_long, [len(places), *places]))


def _places(value: bytes, at: int) -> tuple[tuple[int, ...], int]:
    """Return where in its file a message stands, and where it begins in the value."""
    count, at = _number(value, at)
    if not 0 <= count <= _MOST_DEEP:
        raise MappingError("value", f"names a message {count} deep")
    places = []
    for _ in range(count):
        place, at = _number(value, at)
        places.append(place)
    if min(places, default=0) < 0:
        raise MappingError("value", "names a message at a negative place")
    return tuple(places) or (0,), at


def _number(value: bytes, at: int) -> tuple[int, int]:
    try:
        return read_long(value, at)
    except (IndexError, DecodeError) as error:
        raise MappingError("value", "ends before it says which message it is") from error


def _read(value: bytes, kind: Any) -> Row:
    try:
        message = kind.FromString(value)
    except Exception as error:  # its DecodeError is that of one implementation of several
        raise MappingError("value", f"is no {kind.DESCRIPTOR.full_name}: {error or type(error).__name__}") from error
    return _row(message)


def _row(message: Any) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    kind = field.message_type
    if not field.is_repeated:
        return _single(found, field, kind)
    if kind is not None and kind.GetOptions().map_entry:
        inner = kind.fields_by_name["value"]
        return {str(key): _single(found[key], inner, inner.message_type) for key in found}
    return [_single(each, field, kind) for each in found]


def _single(found: Any, field: Any, kind: Any) -> Any:
    if kind is not None:
        return _row(found)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(found)
        return found if known is None else known.name
    return found


def _written(head: bytes, row: Row, kind: Any) -> bytes:
    from google.protobuf import json_format

    try:
        message = json_format.ParseDict(dict(row), kind(), ignore_unknown_fields=True)
        return bytes(head + message.SerializeToString())
    except Exception as error:  # as above
        raise MappingError("value", f"does not fit {kind.DESCRIPTOR.full_name}: {error}") from error
