"""`skysail query` and `skysail feedback`: one question and its answer, from a shell."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
import yaml

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.clients import properties
from deploy.errors import UsageError
from deploy.registry import codec_for
from schemas.jsonable import query_from_json, to_json
from schemas.records import Feedback, Input, Tensor
from streams.client import Client

if TYPE_CHECKING:
    from deploy.settings import Settings
    from schemas.records import Prediction


QUERY_EXAMPLES = """\
skysail query digits --input '[0, 0, 5, 13, 9, 1, 0, 0, ...]'
skysail query pixels --input '{"values": [0, 255, 3], "dtype": "uint8"}'
skysail query reviews --input '"a fine piece of work"'
skysail query digits --npy row.npy --context user-17 --json
"""
FEEDBACK_EXAMPLES = """\
skysail feedback 5f0c... --label 3
skysail feedback 5f0c... --loss 0.25 --context user-17
"""


@click.command(cls=Verb, epilog=QUERY_EXAMPLES)
@click.argument("application")
@click.option("--input", "text", help="One row as JSON: numbers, a string, or an object with values and dtype.")
@click.option("--npy", type=click.Path(path_type=Path, exists=True), help="One row in a .npy file.")
@click.option("--context", help="User, session or region whose policy state decides.")
@click.option("--slo-ms", type=float, help="Instead of the application's objective.")
@click.option("--timeout", "timeout_s", type=float, default=10.0, show_default=True, help="Seconds to wait.")
@json_option
@with_settings
def query(settings: Settings, application: str, *, as_json: bool, **options: Any) -> None:
    """Ask APPLICATION and print the prediction."""
    row = _input(application, options.pop("text"), options.pop("npy"))
    prediction = asyncio.run(_ask(settings, application, row, options))
    if as_json:
        print_json(to_json(prediction))
    else:
        click.echo(_line(prediction))
        click.echo(f"say what the truth was: skysail feedback {_address(prediction)} --label LABEL")


def _input(application: str, text: str | None, npy: Path | None) -> Input:
    if (text is None) == (npy is None):
        raise UsageError("give either --input or --npy")
    try:
        if npy is not None:
            return Tensor.of(np.load(npy, allow_pickle=False))
        return query_from_json({"query_id": "", "application": application, "input": json.loads(text or "")}).input
    except ValueError as error:
        message = f"this is no input: {error}"
        raise UsageError(message) from error


async def _ask(settings: Settings, application: str, row: Input, options: dict[str, Any]) -> Prediction:
    async with _client(settings) as client:
        return await client.predict(application, row, **options)


def _client(settings: Settings) -> Client:
    return Client(settings.kafka.bootstrap, settings.prefix, properties(settings), codec=codec_for(settings))


def _now_us() -> int:
    return time.time_ns() // 1000


def _line(prediction: Prediction) -> str:
    took_ms = (prediction.answered_us - prediction.received_us) / 1000
    asked = ", ".join(output.model for output in prediction.outputs) or "none"
    reason = f" ({prediction.reason})" if prediction.reason else ""
    return (
        f"{to_json(prediction)['answer']}   confidence {prediction.confidence:.2f}, {prediction.status.value}{reason},"
        f" asked {asked}, {took_ms:.1f} ms"
    )


def _address(prediction: Prediction) -> str:
    return prediction.query_id + (f" --context {prediction.context}" if prediction.context else "")


@click.command(cls=Verb, epilog=FEEDBACK_EXAMPLES)
@click.argument("query_id")
@click.option("--label", help="The truth: a label or a number, as YAML (3 is a number, '\"3\"' a string).")
@click.option("--loss", type=click.FloatRange(0, 1), help="Or the loss of the answer that was given.")
@click.option("--context", help="The query's context, if it had one.")
@with_settings
def feedback(settings: Settings, query_id: str, *, label: str | None, loss: float | None, context: str | None) -> None:
    """Say what the truth of query QUERY_ID was."""
    if (label is None) == (loss is None):
        raise UsageError("give either --label or --loss")
    record = Feedback(query_id, None if label is None else yaml.safe_load(label), loss, _now_us())
    asyncio.run(_tell(settings, record, context))
    click.echo("sent")


async def _tell(settings: Settings, record: Feedback, context: str | None) -> None:
    async with _client(settings) as client:
        await client.send_feedback([(record, context)])
