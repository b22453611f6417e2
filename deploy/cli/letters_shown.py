"""Dead letters for people and scripts: counted in groups, or one by one with what is in them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from schemas import records
from schemas.errors import DecodeError
from schemas.jsonable import to_json
from streams.dead_letters.redriving import KINDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from streams.dead_letters.letter import Letter

_DUMPED: Final = 256  # bytes of a value that is no text
_TEXT: Final = 2_048  # characters of one that is
_LINE: Final = 16  # bytes of a line of a dump
_PRINTABLE: Final = range(32, 127)


@dataclass(slots=True)
class LetterGroup:
    """Letters with one topic, cause and application."""

    count: int = 0
    size: int = 0
    redriven: int = 0
    oldest_us: int = 1 << 62
    newest_us: int = 0
    place: str = ""
    message: str = ""

    def add(self, letter: Letter, *, is_redriven: bool) -> None:
        """Count one more."""
        self.count += 1
        self.size += len(letter.value or b"") + len(letter.key or b"")
        self.redriven += is_redriven
        self.oldest_us = min(self.oldest_us, letter.written_us)
        if letter.written_us >= self.newest_us:
            self.newest_us, self.place, self.message = letter.written_us, letter.place, letter.message


def age(us: int) -> str:
    """Return a span of time as people say it."""
    seconds = max(0, us) / 1e6
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def group_as_json(topic: str, cause: str, application: str, group: LetterGroup) -> dict[str, object]:
    """Return a group as JSON values."""
    return {
        "topic": topic,
        "cause": cause,
        "application": application or None,
        "letters": group.count,
        "redriven": group.redriven,
        "bytes": group.size,
        "oldest": _time(group.oldest_us),
        "newest": _time(group.newest_us),
        "such_as": group.place,
        "message": group.message,
    }


def letter_as_json(letter: Letter, codec: Codec) -> dict[str, Any]:
    """Return a letter as JSON values; bytes that are no text as text with escapes."""
    return {
        "place": letter.place,
        "written": _time(letter.written_us),
        "cause": letter.cause,
        "message": letter.message,
        "from": {
            "topic": letter.source,
            "partition": letter.partition,
            "offset": letter.source_offset,
            "time": _time(letter.record_us) if letter.record_us else None,
        },
        "refused_by": letter.group,
        "sent_again": letter.attempts,
        "cut_from_bytes": letter.cut or None,
        "key": _text(letter.key),
        "headers": {name: _text(value) for name, value in letter.headers},
        "bytes": None if letter.value is None else len(letter.value),
        "value": _value(letter, codec),
    }


def _value(letter: Letter, codec: Codec) -> object:
    """Return what is in a letter: its record, its text, or a dump of its first bytes."""
    if letter.value is None:
        return None
    kind = KINDS.get(letter.source) or getattr(
        records, "ModelQueries" if letter.source.startswith("models.") else "", None
    )
    if kind is not None and not letter.cut:
        try:
            return to_json(codec.decode(kind, letter.value))
        except DecodeError:
            pass  # it is shown as bytes
    try:
        return letter.value[:_TEXT].decode()
    except UnicodeDecodeError:
        return _dump(letter.value[:_DUMPED])


def _dump(data: bytes) -> list[str]:
    """Return bytes as people read them: place, hexadecimal, letters."""
    return [
        f"{start:06x}  {data[start : start + _LINE].hex(' '):<47}  "
        + "".join(chr(byte) if byte in _PRINTABLE else "." for byte in data[start : start + _LINE])
        for start in range(0, len(data), _LINE)
    ]


def letter_lines(one: Mapping[str, Any]) -> list[str]:
    """Return a letter for a person."""
    origin = one["from"]
    where = "" if origin["partition"] is None else f", partition {origin['partition']}, offset {origin['offset']}"
    lines = [
        f"{one['place']}  {one['cause']}  {one['written']}",
        f"  {one['message']}",
        f"  from    {origin['topic']}{where}, {origin['time'] or 'time not known'}",
        f"  group   {one['refused_by'] or 'not known'}",
    ]
    lines += [f"  again   it was sent again {one['sent_again']} times before"] if one["sent_again"] else []
    lines += [f"  cut     of {one['cut_from_bytes']:,} bytes the beginning is left"] if one["cut_from_bytes"] else []
    lines += [f"  key     {one['key']}"] if one["key"] is not None else []
    lines += [f"  header  {name}: {value}" for name, value in one["headers"].items()]
    value = one["value"]
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [*lines, *(f"  {line}" for line in value)]
    return [*lines, f"  value   {value if value is not None else 'none'}"]


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="backslashreplace")


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
