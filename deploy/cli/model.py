"""`skysail model`: package, deploy, change versions, list."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.cli import packing
from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.cli.versions import print_package, print_timings, print_versions
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.state import catalog, desired
from schemas.records import Application, Model
from workers import manifest as manifests
from workers.packages.conversion import CONVERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.config.settings import Settings

folder_argument = click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))

share_option = click.option(
    "--share",
    type=click.FloatRange(0.0, 1.0),
    default=1.0,
    show_default=True,
    help="Of the model's queries that it answers.",
)

EXAMPLES = """\
skysail model package my_rules:predict_batch models/rules-1 --name rules --sample '[[0.0, 1.0]]'
skysail model package net.safetensors models/net-1 --name net --sample rows.npy --architecture my_nets:make_net
skysail model package forest.joblib models/forest-1 --name forest --sample rows.npy --trust-pickle SHA256
skysail model add models/forest-1      deploy it
skysail model add models/forest-2      a new version of it takes over, no query is lost or late
skysail model add models/forest-2 --share 0.1     it answers a tenth of the queries, the present version the rest
skysail model add models/forest-2 --shadow        it is asked everything and answers nothing
skysail model canary forest 2 --share 0.5         another share for a version that is known
skysail model canary forest 2 --share 1           it serves: as `use`
skysail model canary forest 2 --share 0           it ends
skysail model canary forest 3 --share 0.2         a canary more, beside the others
skysail model shadow forest 2          a version that is known as a shadow; its score: skysail tail reports
skysail model shadow forest 2 --end
skysail model rollback forest          ends all canaries; without one, back to the version before
skysail model use forest 1             back to one that is named
skysail model list
skysail model show models/forest-1     what is in a package
skysail model show forest 2            what is in that version's package
skysail model show forest              which versions of a model there are, and what each is for
skysail model remove forest
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def model() -> None:
    """Package models, deploy them, list them.

    From Python, `skysail.package_sklearn(estimator, folder, name, version, sample)` does the same without a pickle
    between; torch networks are packaged with `skysail.package_torch`.
    """


@model.command()
@click.argument("source")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--name", required=True, help="What applications call the model.")
@click.option("--version", default="1", show_default=True)
@click.option(
    "--sample",
    required=True,
    help="A few input rows: a .npy file, or JSON as `skysail query` takes it; of a data frame a .csv file with its"
    " columns, or JSON objects. Kept in what can be converted.",
)
@click.option(
    "--output", type=click.Choice(manifests.OUTPUTS), help="[default: value of a regressor, label of anything else]"
)
@click.option("--classes", help="Labels of a network's or function's scores: cat,dog [default: 0, 1, ...].")
@click.option("--architecture", help="SOURCE is the state of a torch network that this builds: module:factory.")
@click.option("--argument", "arguments", multiple=True, help="Of the architecture, as NAME=JSON.")
@click.option("--allow-nan", is_flag=True, help="Rows may hold NaN.")
@click.option("--trust-pickle", metavar="SHA256", help="SOURCE is a pickle of yours, and this is its digest.")
@click.option(
    "--allow-pickle",
    is_flag=True,
    help="Store an estimator as a pickle, which skops need not know; workers load it only with worker.allow_pickle.",
)
@click.option(
    "--convert",
    type=click.Choice(CONVERSIONS),
    default="load",
    show_default=True,
    help="Trees and linear models become arrays when they are loaded, if they agree and are faster; `hummingbird`: and "
    "tensor operations of torch; `none`: never. Or kept in the package: an ONNX graph or arrays, which workers run, or "
    "`auto`, of these forms the fastest.",
)
@json_option
def package(source: str, folder: Path, sample: str, *, as_json: bool, **options: Any) -> None:
    """Package SOURCE into FOLDER, and let it answer the sample.

    SOURCE is a function `module:name`; the state of a torch network (.safetensors, or .pt with --trust-pickle); an ONNX
    graph (.onnx); or a fitted estimator saved with joblib or pickle (with --trust-pickle). Modules are looked for in
    this folder, too.
    """
    manifest = packing.package(source, folder, packing.sample(sample), **options)
    digest = manifests.digest(folder)
    if as_json:
        print_json(asdict(manifest) | {"folder": str(folder), "digest": digest})
        return
    click.echo(f"packaged {manifest} in {folder}, digest {digest}")
    conversion = manifest.options.get("conversion")
    if conversion is not None:
        _print_conversion(conversion)
    click.echo(f"deploy it with: skysail model add {folder}")
    if options["allow_pickle"]:
        click.echo("it is a pickle: its worker needs `worker: {allow_pickle: true}` in the settings")


def _print_conversion(conversion: Mapping[str, Any]) -> None:
    forms, at_load = ", ".join(conversion["to"]), conversion.get("at") == "load"
    said = f"will be converted to {forms} when it is loaded" if at_load else f"converted to {forms}"
    click.echo(f"{said}: {conversion['rows']} rows agree within {conversion['difference']:.1g}")
    if not at_load:
        for name, reason in conversion["refused"].items():
            click.echo(f"not to {name}: {reason}")
        print_timings(conversion["batch_us"])


@model.command()
@folder_argument
@share_option
@click.option("--shadow", is_flag=True, help="It is asked everything and answers nothing.")
@click.option("--force", is_flag=True, help="Also if it takes or gives something else than the version that serves.")
@json_option
@with_settings
def add(settings: Settings, package: Path, *, share: float, shadow: bool, force: bool, as_json: bool) -> None:
    """Deploy PACKAGE: check it, create its topic, publish it.

    Another version of a model that runs takes over without a restart: its workers load it beside the one that answers,
    warm it up, and change between two batches. If it cannot be loaded, the one that answers goes on. With --share it
    answers only some queries (a canary), with --shadow none. A model that is new gets its workers from `skysail run`,
    also where that runs already, once PACKAGE is on its machine.

    One that takes or gives something else than the version that serves is refused, unless with --force; even then its
    workers change to it only when something that it takes has been asked.
    """
    record, codec = desired.model_record(package), codec_for(settings)
    share = 0.0 if shadow else _above_zero(share)
    takes_over = desired.add(settings, codec, package, share=share, force=force)
    if as_json:
        print_json(asdict(record))
    elif share < 1.0:
        click.echo(_told_beside(record.name, record.version, share))
    else:
        click.echo(f"{record.name} {record.version} is deployed")
        click.echo(_told_next(record.name, takes_over=takes_over))


@model.command()
@click.argument("name")
@click.argument("version")
@json_option
@with_settings
def use(settings: Settings, name: str, version: str, *, as_json: bool) -> None:
    """Have VERSION of model NAME answer, forward or back: any that `skysail model list` shows."""
    _use(settings, name, version, as_json=as_json)


@model.command()
@click.argument("name")
@click.argument("version")
@share_option
@json_option
@with_settings
def canary(settings: Settings, name: str, version: str, *, share: float, as_json: bool) -> None:
    """Have VERSION of model NAME answer a share of the queries, drawn by query id, and the present version the rest.

    Answers carry the version that gave them, and each one's count for the model. A model may have several canaries,
    whose shares together are below 1. With a share of 1 this one serves and the others end, with 0 it ends.
    """
    if share == 1.0:
        _use(settings, name, version, as_json=as_json)
    else:
        _run_beside(settings, name, version, share or None, as_json=as_json)


@model.command()
@click.argument("name")
@click.argument("version")
@click.option("--end", is_flag=True, help="It is a shadow no longer.")
@json_option
@with_settings
def shadow(settings: Settings, name: str, version: str, *, end: bool, as_json: bool) -> None:
    """Have VERSION of model NAME asked everything and answer nothing.

    Joined with feedback, its loss stands in the joiner's reports, beside those of the versions that answer
    (`version_loss_total` / `version_joined_total`). It runs in the model's workers, in a queue of its own.
    """
    _run_beside(settings, name, version, None if end else 0.0, as_json=as_json)


def _run_beside(settings: Settings, name: str, version: str, share: float | None, *, as_json: bool) -> None:
    serving = desired.run_beside(settings, codec_for(settings), name, version, share)
    if share is None or as_json:
        _tell_rest(serving, (version,), as_json=as_json)
    else:
        click.echo(_told_beside(name, version, share))


def _told_beside(name: str, version: str, share: float) -> str:
    if share:
        told = f"{name} {version} answers {share:.3g} of the queries as soon as its workers have loaded it"
        return f"{told}; all of them: skysail model use {name} {version}; none: skysail model rollback {name}"
    told = f"{name} {version} is asked everything as soon as its workers have loaded it, and answers nothing"
    return f"{told}; to end that: skysail model shadow {name} {version} --end"


def _told_next(name: str, *, takes_over: bool) -> str:
    if takes_over:
        return f"its workers answer with it as soon as they have loaded it; back again: skysail model rollback {name}"
    return (
        "`skysail run` starts its workers, also where it runs already; where roles are started one by one: skysail run"
        f" --role worker --model {name}"
    )


def _above_zero(share: float) -> float:
    if share == 0.0:
        raise UsageError("a new version with a share of 0 would do nothing; --shadow has it asked without answering")
    return share


@model.command()
@click.argument("name")
@json_option
@with_settings
def rollback(settings: Settings, name: str, *, as_json: bool) -> None:
    """End the canaries of model NAME; without one, have the version answer that was added before the present one."""
    serving, gone = desired.end_canaries(settings, codec_for(settings), name)
    if not gone:
        _use(settings, name, None, as_json=as_json)
    else:
        _tell_rest(serving, gone, as_json=as_json)


def _tell_rest(serving: Model, gone: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"model": serving.name, "serves": serving.version, "shares": serving.shares})
        return
    for version in gone:
        click.echo(f"{serving.name} {version} ends: it answers what it holds, {serving.version} everything else")


def _use(settings: Settings, name: str, version: str | None, *, as_json: bool) -> None:
    before, now = desired.use(settings, codec_for(settings), name, version)
    if as_json:
        print_json({"model": name, "served": before, "serves": now})
    elif before == now:
        click.echo(f"{name} {now} serves already, and answers all queries; others: skysail model show {name}")
    else:
        click.echo(f"{name} {now} serves, no longer {before}, as soon as its workers have loaded it")


@model.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also while applications ask it.")
@json_option
@with_settings
def remove(settings: Settings, name: str, *, force: bool, as_json: bool) -> None:
    """Take model NAME out of the deployment; its package stays.

    Queries for which an application then still chooses it are answered by default at once (`unknown_model`). What is
    under way is answered. `skysail run` stops its worker; one that was started by itself idles until it is stopped.
    The topic stays, and is used again if NAME comes back.
    """
    codec = codec_for(settings)
    known = catalog.read(settings, codec, Model)
    if name not in known:
        raise UsageError(f"there is no model {name}; there are: {', '.join(sorted(known)) or 'none'}")
    asking = sorted(app.name for app in catalog.read(settings, codec, Application).values() if name in app.models)
    if asking and not force:
        raise UsageError(
            f"model {name} is asked by {', '.join(asking)}; take it out of there first (skysail app set {asking[0]}"
            " models=OTHER,...), or have those queries answered by default with --force"
        )
    catalog.remove(settings, Model, name)
    if as_json:
        print_json({"removed": name, "asked_by": asking, "in_settings": name in settings.models})
        return
    click.echo(
        f"model {name} is removed; `skysail run` stops its worker, stop one that was started by itself"
        + (f"; {', '.join(asking)} still asks it" if asking else "")
    )
    if name in settings.models:
        click.echo(f"the settings still name it under `models`: the next `skysail run` deploys {name} again", err=True)


@model.command("list")
@json_option
@with_settings
def list_(settings: Settings, *, as_json: bool) -> None:
    """List the deployed models with all their versions, in the order in which these were added."""
    codec = codec_for(settings)
    serving = catalog.read(settings, codec, Model)
    listed = sorted(catalog.versions(settings, codec).items())
    print_versions([(r, serving[name]) for name, versions in listed for r in versions], as_json=as_json)
    if serving and not as_json:
        from deploy.diagnose.health import failing_versions

        for check in failing_versions(settings, codec):
            click.echo(f"{check.found}; {check.advice}", err=True)


@model.command()
@click.argument("package")
@click.argument("version", required=False)
@json_option
@with_settings
def show(settings: Settings, package: str, version: str | None, *, as_json: bool) -> None:
    """Show what is in PACKAGE, its files checked against the manifest, or which versions of a model there are.

    PACKAGE is a folder, or the name of a model that is deployed: with VERSION, that version's package is shown.
    """
    if version is None and Path(package).is_dir():
        print_package(Path(package), as_json=as_json)
        return
    codec = codec_for(settings)
    serving = catalog.read(settings, codec, Model).get(package)
    if serving is None:
        raise UsageError(f"{package} is neither the folder of a package nor a deployed model: see `skysail model list`")
    versions = catalog.versions(settings, codec)[package]
    if version is None:
        print_versions([(r, serving) for r in versions], as_json=as_json)
        return
    found = {record.version: record for record in versions}
    if version not in found:
        raise UsageError(f"{package} has no version {version}; it has {', '.join(found)}")
    print_package(Path(found[version].path), as_json=as_json)
