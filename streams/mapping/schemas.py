"""Schemas of a registry, as a kernel knows them: each is looked up once, by whoever runs the kernel.

    key       schema/17                       the schema with the id 17, by which a record says that it is written
              subject/orders.scored-value     the latest schema of a subject, by which records are written
    answer    {"id": 17, "type": "AVRO", "schema": TEXT, "references": [TEXT, …]}   those first that others refer to
              {"id": 18, "type": "PROTOBUF", "schema": …, "references": []}   a FileDescriptorSet in base64; the
                                                                              schema's file is its last
              nothing                                                         the registry has none

Who asks for one that is not known gets `UnknownSchemaError`. One that the registry does not have is known as such for a
minute.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streams.mapping.errors import MappingError, UnknownSchemaError

if TYPE_CHECKING:
    from streams.operators.contract import Record

BY_ID: Final = "schema/"
BY_SUBJECT: Final = "subject/"
# Parsed schemas that are kept: some kilobytes each.
MOST_KNOWN: Final = 512
_MISSING_US: Final = 60_000_000


class RegisteredSchema(NamedTuple):
    """A schema as the registry has it.

    Attributes:
        id: of the schema.
        type: `AVRO` or `PROTOBUF`; others are not read.
        text: of the schema; see the head of this file.
        references: texts of schemas whose types it names.
    """

    id: int
    type: str
    text: str
    references: tuple[str, ...] = ()


class RegisteredSchemas:
    """The schemas that were looked up, the latest of them."""

    def __init__(self) -> None:
        self._known: dict[str, RegisteredSchema] = {}
        self._missing: dict[str, int] = {}  # until when
        self._parsed: dict[tuple[str, str], Any] = {}

    def take(self, record: Record, now_us: int) -> str:
        """Take an answer; return under which key it was asked for."""
        key = (record.key or b"").decode(errors="replace")
        if record.value is None:
            self._missing[key] = now_us + _MISSING_US
        else:
            given = json.loads(record.value)
            self._known[key] = RegisteredSchema(given["id"], given["type"], given["schema"], tuple(given["references"]))
        while len(self._known) > MOST_KNOWN:
            gone = next(iter(self._known))
            del self._known[gone]
            self._parsed = {place: parsed for place, parsed in self._parsed.items() if place[0] != gone}
        return key

    def forget_missing(self, now_us: int) -> None:
        """Look again, when they are asked for, for schemas that were not there a minute ago."""
        if self._missing:
            self._missing = {key: until_us for key, until_us in self._missing.items() if until_us > now_us}

    def get(self, key: str, kind: str) -> RegisteredSchema:
        """Return a schema.

        Args:
            key: under which it is looked up.
            kind: `AVRO` or `PROTOBUF`.

        Raises:
            UnknownSchemaError: it is still to be looked up.
            MappingError: the registry does not have it, or it is of another kind.
        """
        found = self._known.get(key)
        if found is None:
            if key in self._missing:
                raise MappingError("value", f"the registry has no {key.replace('/', ' ', 1)}")
            raise UnknownSchemaError(key)
        if found.type != kind:
            raise MappingError("value", f"{key.replace('/', ' ', 1)} is {found.type}, not {kind}")
        return found

    def parsed(self, key: str, form: str) -> Any:
        """Return what was made of a schema for a purpose; None: nothing yet."""
        return self._parsed.get((key, form))

    def keep(self, key: str, form: str, parsed: Any) -> None:
        """Keep what was made of a schema for a purpose."""
        if len(self._parsed) >= 2 * MOST_KNOWN:
            self._parsed.clear()
        self._parsed[key, form] = parsed
