"""`skysail parity`: makes the models that tell a late output from the other ones."""

from __future__ import annotations

import importlib
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from deploy.cli.common import Verb, VerbGroup, json_option, print_json
from deploy.cli.packing import argument
from deploy.errors import UsageError
from deploy.process.interrupts import named_extras
from deploy.terminal import echo
from workers import manifest as manifests
from workers.packages.parity import Judged, Training, package_parity

EXAMPLES = """\
skysail parity train models/mnist-1 models/mnist-parity-1 --rows train.npy --labels labels.npy
skysail parity train models/mnist-1 models/parity-3 --rows train.npy --k 3 --epochs 100 --seed 7
skysail parity train models/churn-1 models/churn-parity-1 --rows rows.npy --architecture my_nets:make_net
skysail model add models/mnist-parity-1            deploy it beside the model that it belongs to
skysail app set digits parity=mnist-parity         late outputs are decoded from now on
skysail app set digits parity=none                 and no longer
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def parity() -> None:
    """Make a parity model: late outputs are decoded from its output and the other ones (docs/parity.md)."""


@parity.command(cls=Verb, epilog=EXAMPLES)
@click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--rows",
    required=True,
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A .npy file of inputs, (n, ...): those that the model was trained on, or recorded ones.",
)
@click.option(
    "--labels",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A .npy file of their right answers, (n,): tells how often decoded answers are right, and so how sure.",
)
@click.option("--name", help="The parity model's name.  [default: that of PACKAGE, and -parity]")
@click.option("--version", help="The parity model's version.  [default: that of PACKAGE]")
@click.option("--k", type=click.IntRange(2, 4), default=2, show_default=True, help="Rows of a group: 1/k more work.")
@click.option("--epochs", type=click.IntRange(min=1), default=50, show_default=True)
@click.option("--batch", type=click.IntRange(min=1), help="Sums in a step.  [default: 64 for k = 2, else 32]")
@click.option("--rate", type=click.FloatRange(min=0, min_open=True), default=1e-3, show_default=True, help="Of Adam.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--held-out",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.1,
    show_default=True,
    help="The share of the rows that is not trained on, and judged by.",
)
@click.option("--threads", type=click.IntRange(min=1), default=1, show_default=True, help="More for large networks.")
@click.option("--architecture", default="", help="Builds the network: module:factory.  [default: as PACKAGE]")
@click.option("--argument", "arguments", multiple=True, help="Argument of the architecture, as NAME=JSON; repeatable.")
@json_option
def train(
    package: Path,
    folder: Path,
    *,
    rows: Path,
    labels: Path | None,
    name: str | None,
    version: str | None,
    arguments: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Train the parity model of PACKAGE into FOLDER; of a linear model it is exact, and nothing is trained.

    PACKAGE answers scores or a value. Its parity model answers the sum of k rows with the sum of their outputs. After
    each epoch, every row of groups that were held back is decoded as if it were missing.
    """
    with named_extras("torch"):
        importlib.import_module("torch")  # before anything is computed: parity models run under it, exact ones, too
    manifest = manifests.read(package)
    judged: list[Judged] = []

    def on_epoch(one: Judged) -> None:
        judged.append(one)
        if not as_json:
            echo(described(one))

    made = package_parity(
        package,
        folder,
        name or f"{manifest.name}-parity",
        version or manifest.version,
        _array(rows),
        Training(**options, arguments=dict(map(argument, arguments))),
        labels=None if labels is None else _array(labels),
        on_epoch=on_epoch,
    )
    if as_json:
        epochs = [{key: value for key, value in one._asdict().items() if not math.isnan(value)} for one in judged]
        print_json(asdict(made) | {"folder": str(folder), "epochs": epochs})
        return
    of, k = made.options["parity"]["of"], made.options["parity"]["k"]
    echo(f"packaged {made} in {folder}: the parity model of {of} for groups of {k}")
    echo(f"deploy it with: skysail model add {folder}, then: skysail app set APPLICATION parity={made.name}")


def described(one: Judged) -> str:
    """Return what an epoch has come to, in one line."""
    head = f"epoch {one.epoch}: loss {one.loss:.4g}" if one.epoch else "exact, without training"
    parts = [head, f"decoded outputs differ by {one.difference:.3g}"]
    if not math.isnan(one.agreement):
        parts.append(f"{one.agreement:.2%} of decoded answers equal the model's own")
    if not math.isnan(one.accuracy):
        parts.append(f"{one.accuracy:.2%} are right, of the model's own {one.own:.2%}")
    return ", ".join(parts)


def _array(file: Path) -> np.ndarray[Any, np.dtype[np.generic]]:
    try:
        found = np.load(file, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise UsageError(f"{file} is no array ({error}): save it with numpy.save") from error
    if not isinstance(found, np.ndarray) or not found.ndim:
        raise UsageError(f"{file} holds no array of rows: save one with numpy.save")
    return found
