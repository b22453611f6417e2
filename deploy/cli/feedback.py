"""`skysail feedback`: the true answer of one query, from a shell; and what is made of topics of feedback."""

from __future__ import annotations

import asyncio
import json
import time
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

import click

from deploy.cli import mapped
from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.config.addresses import connection
from deploy.connect.clients import answering, asking
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.terminal import echo
from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.jsonable import feedback_from_json, to_json
from schemas.records import MetricFeedback, Observation, Observations
from streams.runtime.kafka.log_reader import KafkaTail

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.avsc import Json
    from schemas.codec import Codec
    from schemas.records import Feedback
    from streams.operators.contract import Record

EXAMPLES = """\
skysail feedback 5f0c... --label 3
skysail feedback 5f0c... --loss 0.25 --context user-17
skysail feedback 5f0c... --label 3 --wait 5
skysail feedback 5f0c... --label 3 --weight 5   counts five times as much, up to the application's max_weight
skysail feedback 5f0c... --metric revenue --value 12.5
skysail feedback tell check --label 3   of a query whose id is the name of a command
skysail feedback check fraud            the last hundred records of each topic of feedback
"""
_TELL, _CHECK = "tell", "check"
CAUSE, MESSAGE = "skysail.error.cause", "skysail.error.message"
REFUSED = frozenset({topics.dead_letters(topics.FEEDBACK)})
POLL_MS = 200


class Fate(NamedTuple):
    """What has become of a feedback: joined into an observation, or refused for a cause; neither if it is not known."""

    observation: Observation | None = None
    refused: str | None = None
    message: str = ""  # why it was refused, for a person


class _FeedbackVerbs(VerbGroup):
    """A group whose usual command needs no name: what is no command is the id of a query."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Name the usual command, unless another one is named, or help is asked for."""
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = [_TELL, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_FeedbackVerbs, epilog=EXAMPLES)
def feedback() -> None:
    """Report the true answer of a query: skysail feedback QUERY_ID --label LABEL; or check topics of feedback.

    `tell` need not be written, unless the query's id is the name of a command.
    """


@feedback.command(_CHECK)
@click.argument("name", metavar="APPLICATION")
@mapped.count_option
@json_option
@with_settings
def check(settings: Settings, name: str, count: int, *, as_json: bool) -> None:
    """Map the last records of each topic from which APPLICATION learns, and print which queries they are about.

    Queries are looked for in the topic of `from`, or among those that clients have asked. Nothing is written. The
    application is taken as the settings say it, else as it is deployed. Exits with 1 if a record cannot be mapped.
    """
    mapped.check(settings, name, count, as_json=as_json, feedback_alone=True)


@feedback.command(_TELL)
@click.argument("query_id")
@click.option("--label", help="The true answer: a number, a text, or a list of scores ('\"3\"' is a text).")
@click.option("--loss", type=click.FloatRange(0, 1), help="The loss of the answer, instead of a label.")
@click.option("--weight", type=click.FloatRange(0, min_open=True), help="How much it counts; by default 1.")
@click.option("--metric", help="A metric of its application, instead of a label; --value has what it came to.")
@click.option("--value", type=float, help="Of the metric, in its unit.")
@click.option("--context", help="The query's context, if it had one.")
@click.option("--wait", "wait_s", type=click.FloatRange(0), default=0.0, help="Seconds to wait for its outcome.")
@json_option
@with_settings
def tell(
    settings: Settings,
    query_id: str,
    *,
    label: str | None,
    loss: float | None,
    weight: float | None,
    metric: str | None,
    value: float | None,
    context: str | None,
    wait_s: float,
    as_json: bool,
) -> None:
    """Report the true answer of query QUERY_ID.

    Feedback may come before its prediction. It waits for `joiner.early_s` (60 s) and then goes to `feedback.dlq` as
    `unmatched`. After the application's window it is `late`. A second feedback for the same query is counted and
    skipped. With --wait the exit code is 1 if no observation came of it in time.
    """
    if metric is not None:
        _measure(settings, MetricFeedback(query_id, metric, _valued(value), time.time_ns() // 1000), context)
        return
    if (label is None) == (loss is None):
        raise UsageError("give either --label or --loss, or --metric and --value")
    record = _record(query_id, label, loss, weight)
    fate = asyncio.run(_tell(settings, codec_for(settings), record, context=context, wait_s=wait_s))
    if as_json:
        seen = None if fate.observation is None else to_json(fate.observation)
        print_json(
            {"query_id": query_id, "sent": True, "observation": seen, "refused": fate.refused, "message": fate.message}
        )
    else:
        echo(_line(settings, fate, wait_s, context))
    if wait_s and fate.observation is None:
        raise SystemExit(1)


def _valued(value: float | None) -> float:
    if value is None or not isfinite(value):
        raise UsageError("--metric needs --value, a number in its unit")
    return value


def _measure(settings: Settings, record: MetricFeedback, context: str | None) -> None:
    async def tell_it() -> None:
        async with asking(settings, codec_for(settings)) as client:
            await client.send_feedback([(record, context)])

    asyncio.run(tell_it())
    echo(f"sent: {record.metric} {record.value:g}; see it with skysail tail observations")


def _record(query_id: str, label: str | None, loss: float | None, weight: float | None = None) -> Feedback:
    """Make the record; what is no JSON number, text or list is a text as it stands: yes, 3rd, true."""
    found: dict[str, Json] = {"query_id": query_id, "loss": loss, "sent_us": time.time_ns() // 1000, "weight": weight}
    if label is not None:
        try:
            value = json.loads(label)
        except ValueError:
            value = label
        found["label"] = label if value is None or isinstance(value, bool) else value
    return feedback_from_json(found)


async def _tell(settings: Settings, codec: Codec, record: Feedback, *, context: str | None, wait_s: float) -> Fate:
    watch = KafkaTail(connection(settings), (topics.OBSERVATIONS, *REFUSED))
    async with asking(settings, codec) as client:
        if not wait_s:
            await client.send_feedback([(record, context)])
            return Fate()
        with answering(settings):
            await watch.start()
        try:
            await client.send_feedback([(record, context)])
            return await _fate(watch, codec, record.query_id, wait_s)
        finally:
            await watch.stop()


async def _fate(watch: KafkaTail, codec: Codec, query_id: str, wait_s: float) -> Fate:
    try:
        async with asyncio.timeout(wait_s):
            fates: list[Fate | None] = []
            while not any(fates):
                fates = [fate_in(record, codec, query_id) for record in await watch.poll(POLL_MS)]
    except TimeoutError:
        return Fate()
    return next(filter(None, fates))


def fate_in(record: Record, codec: Codec, query_id: str) -> Fate | None:
    """Return what a record of the log, or a dead letter, says about a query; None if it is about others."""
    try:
        if record.topic in REFUSED:
            headers = dict(record.headers)
            refused, message = (headers.get(key, b"").decode(errors="replace") for key in (CAUSE, MESSAGE))
            return Fate(refused=refused or "?", message=message) if peek_id(record.value) == query_id else None
        log = codec.decode(Observations, record.value).items
    except DecodeError:
        return None
    return next((Fate(seen) for seen in log if seen.query_id == query_id), None)


def _line(settings: Settings, fate: Fate, wait_s: float, context: str | None) -> str:
    if fate.refused is not None:
        why = f"{fate.refused}: {fate.message}" if fate.message else fate.refused
        return f"refused: {why}; it is on {settings.prefix}.feedback.dlq"
    if fate.observation is not None:
        found = fate.observation
        losses = (
            f"{arm} {loss:g}" for arm, loss in zip(found.decision.arms, found.losses, strict=True) if loss is not None
        )
        return f"joined with the prediction of {found.application}: loss {', '.join(losses) or 'not known'}"
    if not wait_s:
        lacks = "" if context else "; if the query had a context, feedback needs --context"
        return f"sent; --wait SECONDS shows its outcome{lacks}"
    lacks = "" if context else " or had a context that --context must name"
    early_s, letters = settings.joiner.early_s, f"{settings.prefix}.feedback.dlq"
    return (
        f"sent, but nothing has come of it within {wait_s:g} s. Either this query already had feedback (the first"
        " counts); or no model was asked (the answer was a default: nothing to learn); or no such query is known"
        f"{lacks} (after {early_s:g} s this feedback goes to {letters} as `unmatched`); or no joiner runs (see"
        " `skysail doctor`)"
    )
