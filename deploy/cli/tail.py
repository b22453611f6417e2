"""`skysail tail`: reads a topic without a group and decodes its records."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

import click

from deploy.cli.common import Verb, with_settings
from deploy.connect.clients import answering
from deploy.connect.schema_registry import codec_for
from deploy.state.messages import messages
from deploy.terminal import echo
from schemas import records
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.jsonable import to_json
from schemas.topics import dead_letters
from streams.topology import build

if TYPE_CHECKING:
    from confluent_kafka import Message

    from deploy.config.settings import Settings
    from schemas.codec import Codec

EXAMPLES = """\
skysail tail predictions
skysail tail queries.dlq --from-beginning --end
skysail tail feedback --count 1 --raw        the bytes as they are
"""


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start at the oldest record instead of the next one.")
@click.option("--count", "limit", type=int, help="Stop after this many lines.")
@click.option("--end", "stops_at_end", is_flag=True, help="Stop at the present end instead of waiting for more.")
@click.option("--raw", is_flag=True, help="Print the bytes as base64, undecoded.")
@with_settings
def tail(
    settings: Settings, topic: str, *, raw: bool, limit: int | None, from_beginning: bool, stops_at_end: bool
) -> None:
    """Print the records of TOPIC (its name without the prefix), one JSON document a line.

    Observations that were written at once share one record and offset; each gets a line.
    """
    codec, record = codec_for(settings), _record_of(topic)
    with answering(settings):
        read = messages(settings, topic, since_us=0 if from_beginning else None, stops_at_end=stops_at_end)
        lines = (line for message in read for line in shown(message, None if raw else record, codec, is_text=not raw))
        for line in islice(lines, limit):
            echo(json.dumps(line))


def _record_of(topic: str) -> type | None:
    """Return the record type of a topic's values; a dead letter is what its source topic carries."""
    models = [topic.removesuffix(dead_letters("")).split(".")[1]] if topic.startswith("models.") else []
    known = build(models).topics
    source = topic.removesuffix(dead_letters(""))
    return getattr(records, known[source].value, None) if source in known else None


def shown(message: Message, record: type | None, codec: Codec, *, is_text: bool = False) -> list[dict[str, object]]:
    """Return a message as JSON values: several for observations that were written at once.

    Args:
        message: as read.
        record: what its value is; None = nothing of Skysail's.
        codec: of the deployment.
        is_text: whether such a value is shown as text where it is one; else as base64.
    """
    about: dict[str, object] = {
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp_ms": message.timestamp()[1],
        "key": _text(message.key()),
        "headers": {name: _text(value) for name, value in _headers(message)},
    }
    value = message.value()
    if value is None:
        return [about | {"value": None}]
    if record is None:
        return [about | {"value": _text(value) if is_text else base64.b64encode(value).decode()}]
    try:
        decoded = _decoded(value, record, codec)
    except DecodeError as error:
        return [about | {"value": _text(value), "undecodable": str(error)}]
    several = decoded.items if isinstance(decoded, records.Observations | records.Measurements) else (decoded,)
    return [about | {"value": to_json(one)} for one in several]


def _decoded(value: bytes, record: type, codec: Codec) -> object:
    """Return what a value is, of topics whose values are of several kinds, too; the first fault, if it is none."""
    is_keyed = record is records.Feedback and peek_id(value) == ""  # about a context's last answer
    kind = records.KeyedFeedback if is_keyed else record
    try:
        found: object = codec.decode(kind, value)
    except DecodeError:
        if record is not records.Feedback:
            raise
        with suppress(DecodeError):
            return codec.decode(records.MetricFeedback, value)
        raise
    return codec.decode(records.Measurements, value) if found == records.Observations(()) else found


def _headers(message: Message) -> list[tuple[str, bytes]]:
    return list(message.headers() or [])  # type: ignore[arg-type]  # values read from a broker are bytes


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "base64:" + base64.b64encode(value).decode()
