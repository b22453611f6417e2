"""`skysail model`: package, deploy, list."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from deploy import catalog, desired
from deploy.cli.common import VerbGroup, json_option, print_json, print_table, with_settings
from deploy.errors import UsageError
from deploy.registry import codec_for
from deploy.topics import create
from schemas.records import Model
from workers import manifest as manifests
from workers.packaging import package_function, package_sklearn

if TYPE_CHECKING:
    from deploy.settings import Settings
    from workers.manifest import Manifest

folder_argument = click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))


EXAMPLES = """\
skysail model package forest.joblib models/forest-1 --name forest --sample rows.npy --trust-pickle
skysail model package my_rules:predict_batch models/rules-1 --name rules --sample '[[0.0, 1.0]]'
skysail model add models/forest-1      deploy it: workers of that name load it when they start
skysail model list
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
@click.option("--sample", required=True, help="A few input rows: a .npy file, or JSON.")
@click.option("--output", type=click.Choice(manifests.OUTPUTS), default="label", show_default=True)
@click.option("--allow-nan", is_flag=True, help="Rows may hold NaN.")
@click.option(
    "--trust-pickle", is_flag=True, help="SOURCE is a pickle of yours: reading it runs whatever code it holds."
)
def package(source: str, folder: Path, trust_pickle: bool, **options: Any) -> None:
    """Package SOURCE into FOLDER: a fitted estimator saved with joblib or pickle, or a function `module:name`."""
    rows = _sample(options.pop("sample"))
    manifest = _package(source, folder, rows, trust_pickle=trust_pickle, **options)
    click.echo(f"packaged {manifest.name} {manifest.version} ({manifest.runtime}) in {folder}")
    click.echo(f"deploy it with: skysail model add {folder}")


def _package(source: str, folder: Path, rows: Any, *, trust_pickle: bool, **options: Any) -> Manifest:
    if not Path(source).exists():
        return package_function(source, folder, sample_input=rows, **options)
    return package_sklearn(_estimator(Path(source), trust_pickle=trust_pickle), folder, sample_input=rows, **options)


def _estimator(source: Path, *, trust_pickle: bool) -> Any:
    """Read a fitted estimator, if its owner says that it is safe to."""
    if not trust_pickle:
        message = f"{source} is a pickle, and reading one runs the code in it; add --trust-pickle if it is yours"
        raise UsageError(message)
    import joblib

    return joblib.load(source)


def _sample(text: str) -> Any:
    try:
        if text.endswith(".npy"):
            return np.load(text, allow_pickle=False)
        rows = json.loads(text)
    except (OSError, ValueError) as error:
        message = f"--sample: {text} is neither a readable .npy file nor JSON: {error}"
        raise UsageError(message) from error
    return rows if rows and isinstance(rows[0], str) else np.asarray(rows)


@model.command()
@folder_argument
@with_settings
def add(settings: Settings, package: Path) -> None:
    """Deploy PACKAGE: check it, create its topic, publish it."""
    record, codec = desired.model_record(package), codec_for(settings)
    create(settings, desired.build(settings, [*catalog.read(settings, codec, Model), record.name]))
    catalog.publish(settings, codec, [record])
    click.echo(
        f"{record.name} {record.version} is deployed; run it with: skysail run --role worker --model {record.name}"
    )


@model.command("list")
@json_option
@with_settings
def list_(settings: Settings, *, as_json: bool) -> None:
    """List the deployed models."""
    found = sorted(catalog.read(settings, codec_for(settings), Model).values(), key=lambda record: record.name)
    if as_json:
        print_json([asdict(record) for record in found])
    else:
        heads = ("model", "version", "runtime", "input", "output", "package")
        print_table(heads, ((r.name, r.version, r.runtime, _input(r), r.output, r.path) for r in found))


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
    else:
        print_table(("", ""), content.items())
