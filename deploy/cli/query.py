"""`skysail query`: one question and its answer, from a shell."""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click
import numpy as np

from deploy.cli.common import Verb, json_option, print_json, with_settings
from deploy.connect.clients import asking
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state import catalog
from deploy.terminal import echo
from policies.confidence import own_confidence
from policies.registry import asks_one
from schemas import ids, topics
from schemas.inputs import as_features, as_input
from schemas.jsonable import candidates_from_json, query_from_json, to_json
from schemas.records import Application, Input, Outcome, Query, Status, Tensor
from streams.client import TIMEOUT_S

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import LabelSet, NumberInterval, Prediction


EXAMPLES = """\
skysail query digits --input '[0, 0, 5, 13, 9, 1, 0, 0, ...]'
skysail query pixels --input '{"values": [0, 255, 3], "dtype": "uint8"}'
skysail query reviews --input '"a fine piece of work"'
skysail query digits --npy row.npy --context user-17 --json
skysail query digits --npy row.npy --features '[0.5, 1, 0]'
skysail query digits --npy row.npy --version canary
skysail query ratings --input 0 --context ann --candidates '["film-7", "film-9"]' --top 1
skysail query digits --npy row.npy --print-bytes --id my-1 > query.avro
"""
# Advice for an answer without a model's output, by its reason.
ADVICE = {
    "deadline": "no model answered in time: does its worker run, and how fast is it? See `skysail doctor`",
    "expired": "the query's time was over when it was read: see `skysail doctor`, or ask with a larger --slo-ms",
    "expired_in_queue": "older queries kept its worker busy: raise slo_ms, or run more workers",
    "invalid_input": "the model takes another shape or dtype: see `skysail model list`",
    "low_confidence": "the models agree less than the application's confidence_floor: see `skysail app show`",
    "no_model_in_time": "no model has been quick enough lately: raise slo_ms, or give `timely` the parameter least: 1",
    "not_ranked": "the policy ranks no such candidates: see `skysail app show`, and docs/recommending.md",
    "overloaded": "the model gets more queries than it can answer in time: run more workers, raise slo_ms, or ask less",
    "over_limit": "this application has its full share of queries, or of turns for candidates: ask less, lower slo_ms",
    "oversized_outputs": "the models' outputs together are too large for one record: ask fewer models at once",
    "model_failed": "the model raised; its worker's log says why",
    "policy_failed": "the application's policy raised, or returned what cannot be: `skysail policy check` says what",
    "too_many_features": "the policy counts fewer: set its parameter `features`, see `skysail app show`",
    "unknown_version": "that version of the model does not run, or not yet: see `skysail model list`",
    "unknown_model": "a model of the application is not deployed: see `skysail model list`, `skysail model add`",
}
WRONG, BY_DEFAULT = 1, 3  # exit codes; 2 is click's for wrong usage
_UNASKED = frozenset({Outcome.UNKNOWN_VERSION, Outcome.OVERLOADED})
# The caller can mend these.
MISTAKES = frozenset({"invalid_input", "too_many_features", "unknown_model", "unknown_version"})


class _QueryOptions(TypedDict):
    """What a query says besides its input and features."""

    context: str | None
    slo_ms: float | None
    priority: int
    version: str | None
    top: int


@click.command(cls=Verb, epilog=EXAMPLES)
@click.argument("application")
@click.option("--input", "text", help="One row as JSON: numbers, a string, or an object with values and dtype.")
@click.option(
    "--npy",
    type=click.Path(path_type=Path, exists=True),
    help="One row in a .npy file; of tensors by name in an .npz file.",
)
@click.option("--context", help="The user, session or region whose policy state decides.")
@click.option("--features", help="Features for a contextual policy: numbers as a JSON list.")
@click.option("--slo-ms", type=float, help="Objective of this query, at most the application's max_slo_ms.")
@click.option("--priority", type=int, default=0, show_default=True, help="An overloaded model drops the lowest first.")
@click.option(
    "--version",
    help="Version that must answer, or its label (stable, canary, or one of your own); for one model: MODEL@VERSION.",
)
@click.option("--candidates", help="Of which the best are asked for: ids, or rows of numbers, as a JSON list.")
@click.option("--top", type=click.IntRange(1), default=1, show_default=True, help="So many of the candidates.")
@click.option("--timeout", "timeout_s", type=float, help="Seconds to wait [default: 10, or --slo-ms and a second].")
@click.option("--print-bytes", is_flag=True, help="Do not ask; write the query's record, for another Kafka client.")
@click.option("--id", "query_id", help="With --print-bytes: the query's id, different for each query.")
@json_option
@with_settings
def query(
    settings: Settings,
    application: str,
    *,
    text: str | None,
    npy: Path | None,
    features: str | None,
    candidates: str | None,
    timeout_s: float | None,
    print_bytes: bool,
    query_id: str | None,
    as_json: bool,
    **options: Unpack[_QueryOptions],
) -> None:
    """Ask APPLICATION and print the prediction.

    Exit codes: 0 if models have answered. 1 without an answer, or if the query itself is wrong: no such application,
    model or version, or an input that no model takes. 3 if the application's default output was answered instead; the
    reason is printed.
    """
    row, codec = _input(application, text, npy), codec_for(settings)
    numbers, among = _features(features), _candidates(candidates)
    if print_bytes:
        name = query_id or ids.query_id(time.time_ns() // 1000, secrets.randbits(ids.DRAWN_BITS))
        record = Query(name, application, row, features=numbers, candidates=among, **options)
        _write_record(settings, codec, record)
        return
    if query_id is not None:
        raise UsageError("--id goes with --print-bytes")
    wait_s = max(TIMEOUT_S, (options["slo_ms"] or 0.0) / 1_000 + 1.0) if timeout_s is None else timeout_s
    prediction = asyncio.run(_ask(settings, codec, application, row, numbers, among, wait_s, options))
    if as_json:
        print_json(to_json(prediction))
    if prediction.reason == "unknown_application":
        raise UsageError(_unknown(settings, codec, application))
    if not as_json:
        _show(prediction)
    if prediction.answer is None or prediction.reason in MISTAKES:
        raise SystemExit(WRONG)
    if prediction.status is Status.DEFAULT:
        raise SystemExit(BY_DEFAULT)


def _write_record(settings: Settings, codec: Codec, query: Query) -> None:
    """Write the record alone to the standard output; its time is left open (0), so that Kafka's own time counts."""
    click.get_binary_stream("stdout").write(codec.encode(query))
    key = query.context or query.query_id
    echo(f"topic {settings.prefix}.{topics.QUERIES}, key {key}", err=True)


def _input(application: str, text: str | None, npy: Path | None) -> Input:
    if (text is None) == (npy is None):
        raise UsageError("give either --input or --npy")
    try:
        if npy is not None:
            found = np.load(npy, allow_pickle=False)
            return as_input({**found} if npy.suffix == ".npz" else found)
        return query_from_json({"query_id": "", "application": application, "input": json.loads(text or "")}).input
    except json.JSONDecodeError as error:
        quoted = shlex.quote(json.dumps(text))
        message = f"this is no input: {error}; write numbers as '[1, 2.5]' and quote a text: --input {quoted}"
        raise UsageError(message) from error
    except ValueError as error:
        message = f"this is no input: {error}"
        raise UsageError(message) from error


def _features(text: str | None) -> tuple[float, ...]:
    if text is None:
        return ()
    try:
        return as_features(json.loads(text))
    except ValueError as error:
        message = f"--features: {error}"
        raise UsageError(message) from error


def _candidates(text: str | None) -> Tensor | tuple[str, ...] | None:
    if text is None:
        return None
    try:
        return candidates_from_json(json.loads(text))
    except ValueError as error:
        message = f"--{error}" if str(error).startswith("candidates: ") else f"--candidates: {error}"
        raise UsageError(message) from error


async def _ask(
    settings: Settings,
    codec: Codec,
    application: str,
    row: Input,
    features: tuple[float, ...],
    candidates: Tensor | tuple[str, ...] | None,
    timeout_s: float,
    options: _QueryOptions,
) -> Prediction:
    async with asking(settings, codec) as client:
        return await client.predict(
            application, row, features=features, candidates=candidates, timeout_s=timeout_s, **options
        )


def _unknown(settings: Settings, codec: Codec, application: str) -> str:
    known = ", ".join(sorted(catalog.read(settings, codec, Application)))
    return (
        f"there is no application {application}; there are: {known or 'none'}. Make it with:"
        f" skysail app create {application} models=MODEL,..."
    )


def _show(prediction: Prediction) -> None:
    echo(_line(prediction))
    if prediction.label_set is not None:
        echo(_set(prediction.label_set))
    if prediction.interval is not None:
        echo(_interval(prediction.interval))
    if prediction.message:
        echo(prediction.message, err=True)
    is_refused = prediction.reason == "invalid_input"  # what a model says of it is all there is to say
    if prediction.reason in ADVICE and not (is_refused and prediction.message):
        echo(ADVICE[prediction.reason], err=True)
    if prediction.status is not Status.COMPLETE and prediction.reason not in MISTAKES:
        echo(f"who was late, and why: skysail story {_address(prediction)}", err=True)
    if _teaches(prediction):
        echo(f"give feedback: skysail feedback {_address(prediction)} --label LABEL")


def _teaches(prediction: Prediction) -> bool:
    """Tell whether feedback teaches something: a model, or its silence, stands behind the answer."""
    is_asked = bool(prediction.outputs or prediction.stages or prediction.ranked)
    return prediction.decision is not None and is_asked and prediction.reason not in MISTAKES


def _line(prediction: Prediction) -> str:
    took_ms = (prediction.answered_us - prediction.received_us) / 1000
    heard = (output for output in prediction.outputs if output.outcome not in _UNASKED)
    asked = ", ".join(f"{output.model} {output.version}".strip() for output in heard) or "no model"
    asked = "no model (the policy ranks)" if prediction.first and prediction.best else asked
    reason = f" ({prediction.reason})" if prediction.reason else ""
    answer = list(prediction.best) or to_json(prediction)["answer"]
    return (
        f"{json.dumps(answer, ensure_ascii=False)}   confidence {prediction.confidence:.2f}{_own(prediction)},"
        f" {prediction.status.value}{reason}, asked {asked}, {took_ms:.1f} ms"
    )


def _own(prediction: Prediction) -> str:
    """Say how sure the one model that was asked is itself, where that is known."""
    outputs, decision = prediction.outputs, prediction.decision
    if len(outputs) != 1 or outputs[0].outcome is not Outcome.OK or decision is None:
        return ""
    own = own_confidence(outputs[0]) if asks_one(decision.policy) else None
    return "" if own is None else f" (its own {own:.2f})"


def _set(made: LabelSet) -> str:
    """Say which labels may be the true one."""
    named = ", ".join(json.dumps(label, ensure_ascii=False) for label in made.labels)
    if made.is_all:
        return f"with coverage {made.coverage:g}: any label, as too little is known; the likeliest is {named}"
    return f"with coverage {made.coverage:g}: {named}"


def _interval(made: NumberInterval) -> str:
    """Say which numbers may be the true one."""
    if made.low is None or made.high is None:
        return f"with coverage {made.coverage:g}: any number, as too little is known"
    return f"with coverage {made.coverage:g}: {made.low:g} to {made.high:g}"


def _address(prediction: Prediction) -> str:
    context = f" --context {shlex.quote(prediction.context)}" if prediction.context else ""
    return shlex.quote(prediction.query_id) + context
