"""`skysail model`: package, deploy, change versions, list."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy import catalog, desired, packing
from deploy.cli.common import VerbGroup, json_option, print_json, print_table, with_settings
from deploy.errors import UsageError
from deploy.registry import codec_for
from schemas.records import Application, Model
from workers import manifest as manifests
from workers.packaging import CONVERSIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deploy.settings import Settings

folder_argument = click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))


EXAMPLES = """\
skysail model package my_rules:predict_batch models/rules-1 --name rules --sample '[[0.0, 1.0]]'
skysail model package net.safetensors models/net-1 --name net --sample rows.npy --architecture my_nets:make_net
skysail model package forest.joblib models/forest-1 --name forest --sample rows.npy --trust-pickle SHA256
skysail model add models/forest-1      deploy it
skysail model add models/forest-2      a new version of it takes over, no query is lost or late
skysail model rollback forest          back to the version before
skysail model use forest 1             back to one that is named
skysail model list
skysail model show models/forest-1     what is in a package
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
@click.option("--sample", required=True, help="A few input rows: a .npy file, or JSON as `skysail query` takes it.")
@click.option("--output", type=click.Choice(manifests.OUTPUTS), default="label", show_default=True)
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
    default="none",
    show_default=True,
    help="Add an estimator as an ONNX graph, too, if both agree: `onnx` runs that, `auto` the faster, by measuring.",
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
    click.echo(f"packaged {manifest.name} {manifest.version} ({manifest.runtime}) in {folder}, digest {digest}")
    conversion = manifest.options.get("conversion")
    if conversion is not None:
        click.echo(f"converted to ONNX: {conversion['rows']} rows agree within {conversion['difference']:.1g}")
        _print_timings(conversion["batch_us"])
    click.echo(f"deploy it with: skysail model add {folder}")
    if options["allow_pickle"]:
        click.echo("it is a pickle: its worker needs `worker: {allow_pickle: true}` in the settings")


@model.command()
@folder_argument
@json_option
@with_settings
def add(settings: Settings, package: Path, *, as_json: bool) -> None:
    """Deploy PACKAGE: check it, create its topic, publish it.

    Another version of a model that runs takes over without a restart: its workers load it beside the one that answers,
    warm it up, and change between two batches. If it cannot be loaded, the one that answers goes on.
    """
    record, codec = desired.model_record(package), codec_for(settings)
    if desired.add(settings, codec, package):
        told = "its workers answer with it as soon as they have loaded it; back again: skysail model rollback "
        told += record.name
    else:
        told = ""
    if as_json:
        print_json(asdict(record))
        return
    click.echo(f"{record.name} {record.version} is deployed")
    if told:
        click.echo(told)
    else:
        click.echo(
            f"it needs a worker: skysail run starts one with all else, or:"
            f" skysail run --role worker --model {record.name}"
        )


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
@json_option
@with_settings
def rollback(settings: Settings, name: str, *, as_json: bool) -> None:
    """Have the version of model NAME answer that was added before the present one."""
    _use(settings, name, None, as_json=as_json)


def _use(settings: Settings, name: str, version: str | None, *, as_json: bool) -> None:
    before, now = desired.use(settings, codec_for(settings), name, version)
    if as_json:
        print_json({"model": name, "served": before, "serves": now})
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
    under way is answered. Its worker idles until it is stopped; its topic stays, and is used again if NAME comes back.
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
    click.echo(f"model {name} is removed; stop its worker" + (f"; {', '.join(asking)} still asks it" if asking else ""))
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
    found = [(r, r.version == serving[name].version) for name, versions in listed for r in versions]
    if as_json:
        print_json([asdict(r) | {"serves": serves} for r, serves in found])
        return
    heads = ("model", "version", "serves", "runtime", "input", "output", "package")
    print_table(
        heads, ((r.name, r.version, "yes" if on else "", r.runtime, _input(r), r.output, r.path) for r, on in found)
    )


def _input(record: Model) -> str:
    return f"{record.dtype}{list(record.shape)}" if record.dtype else "text or bytes"


@model.command()
@folder_argument
@json_option
def show(package: Path, *, as_json: bool) -> None:
    """Show what is in PACKAGE, its files checked against the manifest."""
    manifest = manifests.read(package)
    manifests.verify(package, manifest)
    content = asdict(manifest) | {"digest": manifests.digest(package)}
    if as_json:
        print_json(content)
        return
    print_table(("", ""), content.items())
    if "conversion" in manifest.options:
        click.echo("measured when it was packaged; with --convert auto each worker measures, and logs its choice:")
        _print_timings(manifest.options["conversion"]["batch_us"])


def _print_timings(batch_us: Mapping[str, Mapping[Any, float]]) -> None:
    """Print a table of microseconds, a row for each runtime."""
    sizes = next(iter(batch_us.values()))
    rows = ((name, *(f"{us:,.0f}" for us in times.values())) for name, times in batch_us.items())
    print_table(("us a batch of", *map(str, sizes)), rows)
