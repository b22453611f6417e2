"""`skysail app`: applications are desired state in a compacted topic, and the roles follow it."""

from __future__ import annotations

import asyncio
import dataclasses
import difflib
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from rich.console import Console
from rich.progress import Progress

from deploy.cli import promote as promotions
from deploy.cli.common import VerbGroup, json_option, print_json, print_table, with_settings
from deploy.cli.comparing import alpha_option, since_option, trace_argument
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.process.progress import shown
from deploy.state import catalog, desired
from deploy.terminal import echo
from policies import registry
from policies.loss_rules import rule, written
from policies.outside import is_outside
from schemas.records import Application, Model
from schemas.topics import MODEL_VERSION
from streams.promotion.lifecycle import POLICY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec

PARAMETER = "parameters."
# What `promote --apprentice` sets is not set by hand: nobody would judge it. The file has sources, stages and the like.
SET_APART = {"name", "parameters", "options", "apprentice", "versions", "sources", "stages", "crosses", "metrics"}
IN_FILE = ("sources", "stages", "crosses", "metrics", "from", "to", "feedback", "mapping")
FIELDS = {field.name: field for field in dataclasses.fields(Application) if field.name not in SET_APART}
MODELS = "models"
UNSET = "none"  # a key without a value, as it is typed and printed

changes_argument = click.argument("changes", nargs=-1, metavar="KEY=VALUE...")


EXAMPLES = """\
skysail app create digits models=svc,forest
skysail app create digits models=svc,forest policy=exp3 parameters.eta=0.1 slo_ms=50 default_output=0
skysail app set digits models=svc,forest,tree --json
skysail app set cards loss='{cost: {fraud: {ok: 40}, ok: {fraud: 1}}, unit: EUR}'
skysail app set digits models=svc,forest@nightly       forest answers in the version that has this label
skysail app apply                      the models and applications of the settings file
skysail app list
skysail app show digits
skysail app holdout digits             what the policy saves, by the people held out of it
skysail app holdout digits traces/week            the same, by a recorded log alone
skysail app tree digits                the groups of `context_tree`, and what they were split on
skysail app contexts digits            users whose weights differ most from the others'
skysail app promote digits --policy thompson               it decides, if the feedback shows that it is better
skysail app promote digits --policy thompson --apprentice  it learns along until it is as good, then decides
skysail app promote digits --end
skysail app backfill ratings packages/films-2       the new model learns from earlier feedback
skysail app remove digits
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def app() -> None:
    """Create applications, change them, list them, remove them."""


@app.command()
@click.argument("name")
@changes_argument
@json_option
@with_settings
def create(settings: Settings, name: str, changes: tuple[str, ...], *, as_json: bool) -> None:
    """Create application NAME. `models=a,b` is required; every other key has a default.

    A model may be given as MODEL@VERSION, by number or label. Then that version answers, unless a query names another.
    """
    codec = codec_for(settings)
    if name in catalog.read(settings, codec, Application):
        message = f"application {name} exists; change it with: skysail app set {name} KEY=VALUE"
        raise UsageError(message)
    _publish(settings, codec, _changed(Application(name, models=()), changes), as_json=as_json)


@app.command("set")
@click.argument("name")
@changes_argument
@json_option
@with_settings
def set_(settings: Settings, name: str, changes: tuple[str, ...], *, as_json: bool) -> None:
    """Change keys of application NAME; the others stay."""
    codec = codec_for(settings)
    before = _find(settings, codec, name)
    after = _changed(before, changes)
    _publish(settings, codec, after, as_json=as_json)
    if anew := desired.begins_anew(before, after):
        echo(anew, err=True)


@app.command()
@click.argument("name")
@json_option
@with_settings
def remove(settings: Settings, name: str, *, as_json: bool) -> None:
    """Remove application NAME; its models and their workers stay.

    Later queries get an empty answer at once (`unknown_application`); queries under way are answered. The policy states
    stay in Redis, and are used again if NAME comes back. Open windows run on, and their feedback is judged by the
    application's loss.
    """
    record = _find(settings, codec_for(settings), name)
    catalog.remove(settings, Application, name)
    if as_json:
        print_json({"removed": name, "models": record.models, "in_settings": name in settings.applications})
        return
    echo(f"application {name} is removed; its models stay deployed: {', '.join(record.models)}")
    if name in settings.applications:
        echo(
            f"the settings still name it under `applications`: the next `skysail run` or `skysail app apply` publishes"
            f" {name} again",
            err=True,
        )


@app.command("list")
@json_option
@with_settings
def list_(settings: Settings, *, as_json: bool) -> None:
    """List the applications."""
    found = sorted(catalog.read(settings, codec_for(settings), Application).values(), key=lambda record: record.name)
    if as_json:
        print_json([asdict(record) for record in found])
    else:
        heads = ("application", "policy", "slo_ms", "models", "parity")
        print_table(heads, ((r.name, r.policy, f"{r.slo_ms:g}", _asked(r), _worded(r.parity)) for r in found))


@app.command()
@click.argument("name")
@json_option
@with_settings
def show(settings: Settings, name: str, *, as_json: bool) -> None:
    """Show every key of application NAME that is set; with --json all of them."""
    codec = codec_for(settings)
    record = asdict(_find(settings, codec, name))
    if as_json:
        print_json(record)
    else:
        worded = {key: _worded(value) for key, value in record.items()}
        print_table(("", ""), ((key, text) for key, text in worded.items() if text != UNSET))
        if unset := [key for key, text in worded.items() if text == UNSET]:
            echo(f"not set: {', '.join(unset)}")
        promotions.print_course(settings, codec, POLICY, name)


@app.command()
@click.argument("name")
@json_option
@with_settings
def contexts(settings: Settings, name: str, *, as_json: bool) -> None:
    """Show which contexts of application NAME are decided for most differently from the others.

    Of the last thousand contexts that asked: the weights of their states, and how far they are from the mean of all.
    `skysail story --application NAME --context CONTEXT` shows one of them.
    """
    from deploy.state.differing import read_differing  # with NumPy, which other commands need not
    from streams.story import differing

    told = partial(echo, err=True)
    found = asyncio.run(read_differing(settings, codec_for(settings), name, told))
    if as_json:
        print_json(differing.document(found))
    else:
        echo(*differing.lines(found))


@app.command()
@click.argument("name")
@trace_argument
@since_option
@alpha_option
@json_option
@with_settings
def holdout(
    settings: Settings, name: str, trace: Path | None, *, since: float | None, alpha: float, as_json: bool
) -> None:
    """Show what the policy of application NAME saves, by those who are held out of it.

    A person (a context) is one value, the mean of what their answers cost. The bounds hold with confidence 1 - ALPHA.
    Read is the log of the running deployment, or a TRACE that `skysail record` has made of it.
    """
    from deploy.state.evidence import fold
    from deploy.state.read_log import ReadLog
    from streams.promotion.holdout import HoldoutEvidence, lines

    found, log = HoldoutEvidence(name), ReadLog.of(settings, codec_for(settings), trace)
    with shown(Console(stderr=True)) as progress:
        fold(log, found.take, 0 if since is None else log.end_us - int(since * 1e6), progress)
    report = found.report(alpha)
    if as_json:
        print_json({**report._asdict(), "evidence": asdict(report.evidence)})
    else:
        echo(*lines(name, report))


@app.command()
@click.argument("name")
@json_option
@with_settings
def tree(settings: Settings, name: str, *, as_json: bool) -> None:
    """Show into which groups the policy `context_tree` of application NAME has split those who ask."""
    from deploy.state.groups import read_groups
    from streams.story import groups

    found = asyncio.run(read_groups(settings, codec_for(settings), name))
    if as_json:
        print_json(groups.document(found))
    else:
        echo(*groups.lines(found))


@app.command("backfill")
@click.argument("name")
@click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))
@json_option
@with_settings
def backfill_(settings: Settings, name: str, package: Path, *, as_json: bool) -> None:
    """Teach the model of PACKAGE what application NAME has observed before the model came.

    For a policy whose state answers (`ridge`): the model computes the features of the queries that Kafka still holds,
    and its regressions learn from their labels. Name the model in `models` first, and wait for the window of feedback.
    What it has learnt is not learnt again, so after a failure run this once more. It ends when the learner has learnt
    the labels. A user who asks right then may still be answered from a state of the tenth of a second before.
    """
    from deploy.state.backfill import backfill  # loads models, which other commands need not

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("the model computes", total=None)

        def tell(left: int) -> None:
            bar.update(task, description=f"the learner learns: {left:,} records are left")

        found = backfill(settings, codec_for(settings), name, package, tell)
    if as_json:
        print_json(found._asdict())
        return
    echo(f"labels taught: {found.taught}; without a query any more: {found.without_input}")
    if found.left:
        echo(f"{found.left} are left for another run", err=True)
    if found.unlearnt:
        echo(
            f"the learner gets no further: it has {found.unlearnt} records to learn, which it does as soon as it runs."
            " See what it waits for: skysail doctor",
            err=True,
        )


@app.command()
@click.argument("name")
@click.option("--policy", help="That is to decide: a name, or NAME(PARAMETER=NUMBER,...).")
@click.option("--apprentice", is_flag=True, help="Let it learn along, and take over when it is as good.")
@promotions.shared_options
@json_option
@with_settings
def promote(
    settings: Settings,
    name: str,
    *,
    policy: str | None,
    apprentice: bool,
    end: bool,
    unproven: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Let POLICY decide for application NAME, if the feedback shows that it is better than the present one.

    The policy is taught by the observations in their order, and judged by each before it is taught. What it would have
    chosen is weighed by the logged probability of what was chosen. It takes over if the lower bound of the difference
    of the mean losses is above 0. Otherwise this says how much is missing. What it was taught here it does not keep: it
    starts anew.

    With --apprentice the control role goes on with that, until the lower bound is above 0 (or above -TOLERANCE): then
    the policy takes over by itself. Until then it answers nothing.
    """
    codec = codec_for(settings)
    if end:
        promotions.end(settings, codec, POLICY, name, as_json=as_json)
        return
    if policy is None:
        raise UsageError("name the policy that is to decide: --policy thompson")
    plan = promotions.policy_plan(settings, codec, name, policy, **given)
    if apprentice:
        promotions.leave_to_control(settings, codec, plan, as_json=as_json)
    else:
        promotions.take_over(settings, codec, plan, "", unproven=unproven, as_json=as_json)


def _worded(value: object) -> str:
    """Return a value as one types it after `skysail app set NAME KEY=`; `none` means that it is not set."""
    if value is None:
        return UNSET
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_worded(item)}" for key, item in value.items()) or UNSET
    return _several(value) if isinstance(value, list | tuple) else str(value) or UNSET


def _several(values: Sequence[object]) -> str:
    """Return values one after the other; sources, stages and metrics with their fields, in brackets."""
    fields = [one._asdict() if hasattr(one, "_asdict") else one for one in values]
    return ", ".join(f"({_worded(one)})" if isinstance(one, dict) else str(one) for one in fields) or UNSET


@app.command()
@json_option
@with_settings
def apply(settings: Settings, *, as_json: bool) -> None:
    """Create missing topics and publish the models and applications of the settings file, as `skysail run` does."""
    deployed = desired.establish(settings, codec_for(settings))
    if as_json:
        print_json({"models": sorted(deployed), "applications": sorted(settings.applications)})
        return
    echo(f"models: {', '.join(sorted(deployed)) or 'none'}")
    echo(f"applications: {', '.join(settings.applications) or 'none'}")


def _find(settings: Settings, codec: Codec, name: str) -> Application:
    known = catalog.read(settings, codec, Application)
    if name not in known:
        message = f"there is no application {name}; there are: {', '.join(sorted(known)) or 'none'}"
        raise UsageError(message)
    return known[name]


def _publish(settings: Settings, codec: Codec, record: Application, *, as_json: bool) -> None:
    if not record.models:
        raise UsageError("an application needs models: add models=NAME,NAME")
    named = {*record.asks, *filter(None, (record.parity,))}
    known = catalog.read(settings, codec, Model)
    absent = sorted(named - known.keys())
    catalog.publish(settings, codec, [desired.checked(record, known)])
    if as_json:
        print_json(asdict(record) | {"not_deployed": absent})
        return
    decoded = f"; late outputs are decoded by {record.parity}" if record.parity else ""
    echo(f"application {record.name}: {record.policy} over {_asked(record)}{decoded}")
    if absent:
        echo(f"not deployed yet: {', '.join(absent)}; deploy with: skysail model add PACKAGE", err=True)


def _asked(record: Application) -> str:
    """Return the models of an application as one types them."""
    versions = record.versions
    return ", ".join(f"{name}{MODEL_VERSION}{versions[name]}" if name in versions else name for name in record.models)


def _changed(record: Application, changes: Iterable[str]) -> Application:
    """Return the application with `key=value` changes; values are YAML, lists are separated by commas."""
    fields: dict[str, Any] = {}
    asked: list[str] | None = None
    given: dict[str, str] = {}
    for change in changes:
        key, equals, text = change.partition("=")
        if not equals:
            message = f"{change!r} is no KEY=VALUE"
            raise UsageError(message)
        if key == MODELS:
            asked = [part.strip() for part in text.split(",") if part.strip()]
        elif key.startswith(PARAMETER):
            given[key.removeprefix(PARAMETER)] = text
        else:
            fields[key] = _field(key, text)
    if "loss" in fields:
        fields |= _loss(fields["loss"], record, is_span_given="span" in fields)
    name = fields.get("policy", record.policy)
    is_own = is_outside(name)
    parameters = registry.parameters_of(record)
    for key, text in given.items():
        parameters[key] = yaml.safe_load(text) if is_own else _value(PARAMETER + key, text, float)
    record = replace(record, **{**fields, **registry.recorded(name, parameters)})
    return record if asked is None else desired.asking(record, asked)


def _field(key: str, text: str) -> Any:
    if key.partition(".")[0] in IN_FILE:
        raise UsageError(f"{key} is set in the settings file, under `applications`; then run: skysail app apply")
    if key not in FIELDS:
        nearest = difflib.get_close_matches(key, [*FIELDS, "parameters.NAME"], n=1, cutoff=0.0)[0]
        message = f"an application has no {key!r}: did you mean {nearest!r}?"
        raise UsageError(message)
    kind = str(FIELDS[key].type)
    value = "" if kind == "str" and text in {"", UNSET} else yaml.safe_load(text)
    if kind.startswith("float") and value is not None:
        return _value(key, text, float)
    if kind.startswith("tuple[float"):
        listed = value if isinstance(value, list) else [] if value is None else text.strip().split(",")
        return tuple([_value(key, str(one), float) for one in listed if str(one) != UNSET])
    if key == "loss" and isinstance(value, dict):
        return value
    if kind in {"str", "bool"} and type(value).__name__ != kind:
        message = f"{key} must be a {kind}, not {text!r}"
        raise UsageError(message)
    return value


def _loss(given: object, record: Application, *, is_span_given: bool) -> dict[str, Any]:
    """Return the fields of a loss; a span that another kind of loss had is not its own."""
    loss = written(given)
    if loss.span is not None:
        return {"loss": loss.text, "span": loss.span}
    is_other = rule(loss.text).kind != rule(record.loss).kind
    return {"loss": loss.text} if is_span_given or not is_other else {"loss": loss.text, "span": None}


def _value(key: str, text: str, kind: type[float]) -> float:
    try:
        return kind(text)
    except ValueError as error:
        message = f"{key} must be a number, not {text!r}"
        raise UsageError(message) from error
