"""Versions beside the one that serves: canaries, each with a share of the queries, and shadows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deploy.errors import UsageError
from deploy.state.history import following
from workers.inputs.casting import taken, takes_alike
from workers.manifest import described

if TYPE_CHECKING:
    from schemas.records import Model

# Shares are typed as decimals, and 0.7 + 0.2 + 0.1 is a little less than 1.
_ROUNDING = 1e-9


def canaries(serving: Model) -> dict[str, float]:
    """Return the versions that answer a share of a model's queries, with it."""
    return {version: share for version, share in serving.shares.items() if share}


def without_canaries(serving: Model) -> Model:
    """Return the model without its canaries; shadows stay."""
    return instead(serving, serving, shadows_only=True)


def instead(model: Model, serving: Model, now_us: int = 0, *, shadows_only: bool = False) -> Model:
    """Return the version in the place of the one that serves: with its partitions, and all that runs beside it.

    Args:
        model: that is to serve.
        serving: the record of the one that does.
        now_us: the time, for the history of what served; 0 = not known.
        shadows_only: whether canaries end.
    """
    kept = {v: share for v, share in serving.shares.items() if v != model.version and not (share and shadows_only)}
    return replace(
        following(model, serving, now_us),
        shares=kept,
        partitions=serving.partitions,
        labels=serving.labels,
        standby=serving.standby,
        latest=serving.latest,
    )


def given(serving: Model, found: Model, share: float) -> Model:
    """Return the model with another version beside it, or with another share of it; 0 = a shadow.

    Raises:
        UsageError: it serves already, cannot replace the one that serves, or the shares would leave nothing to that
        one.
    """
    name, version = serving.name, found.version
    if version == serving.version:
        raise UsageError(f"{name} {version} serves already; name another version, or: skysail model use {name} ...")
    if not 0.0 <= share < 1.0:
        raise UsageError(f"a share lies between 0 and 1, not {share:g}")
    check_alike(found, serving)
    shares = {**serving.shares, version: share}
    total = sum(shares.values())
    if total > 1.0 - _ROUNDING:
        each = ", ".join(f"{v} {part:g}" for v, part in shares.items() if part)
        message = f"the canaries of {name} would answer {total:g} of its queries ({each}), and {serving.version} none"
        raise UsageError(f"{message}: lower another share first, or: skysail model use {name} {version}")
    return replace(serving, shares=shares)


def ended(serving: Model, version: str) -> Model:
    """Return the model without a version that ran beside it.

    Raises:
        UsageError: it does not.
    """
    if version not in serving.shares:
        raise UsageError(f"{serving.name} {version} does not run beside {serving.version}: see `skysail model list`")
    return replace(serving, shares={v: share for v, share in serving.shares.items() if v != version})


def check_alike(one: Model, serving: Model) -> None:
    """Refuse a version whose inputs or kind of answer differ from those of the serving version.

    Raises:
        UsageError: it is such.
    """
    for what in ("dtype", "inputs", "shape", "output", "outputs"):
        mine, its = getattr(one, what), getattr(serving, what)
        if mine != its:
            message = f"{one.name} {one.version} has {what} {mine}, and {serving.version}, which serves, {its}"
            raise UsageError(f"{message}: two versions that share queries must agree")


def check_successor(one: Model, serving: Model) -> None:
    """Refuse a version that cannot take the present one's inputs, or gives another kind of answer.

    Raises:
        UsageError: it is such.
    """
    name = one.name
    if not takes_alike(one, serving):
        said = (
            f"{name} {one.version} takes {taken(one)}, and {serving.version}, which serves, {taken(serving)}: today's"
        )
        said += " queries would be answered by default"
    elif (one.output, one.outputs) != (serving.output, serving.outputs):
        said = f"the output of {name} {one.version} is {_answered(one)}, and of {serving.version}, which serves,"
        said += f" {_answered(serving)}: applications and feedback could not use its answers"
    else:
        return
    raise UsageError(f"{said}. Package it under another --name, or let it take over with --force")


def _answered(model: Model) -> str:
    return described(model.outputs, ()) if model.outputs else f"a {model.output}"


def check_unlabelled(one: Model, serving: Model) -> None:
    """Refuse a version whose name is a label: who names it would get the labelled one.

    Raises:
        UsageError: it is such.
    """
    if one.version in serving.labels:
        said = (
            f"{one.version} is a label of {one.name} {serving.labels[one.version]}: package it with another --version"
        )
        raise UsageError(f"{said}, or: skysail model unlabel {one.name} {one.version}")
