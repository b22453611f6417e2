"""What runs beside the version that serves: any number of canaries, each with its share of the queries, and shadows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deploy.errors import UsageError
from workers.inputs.likeness import taken, takes_alike

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Model

# Shares are typed as decimals, and .7 + .2 + .1 is a little less than 1.
_ROUNDING = 1e-9


def canaries(serving: Model) -> dict[str, float]:
    """Return the versions that answer a share of a model's queries, with it."""
    return {version: share for version, share in serving.shares.items() if share}


def without_canaries(serving: Model) -> Model:
    """Return the model with its shadows alone beside it."""
    return shared(serving, serving.shares, shadows_only=True)


def shared(model: Model, shares: Mapping[str, float], *, shadows_only: bool = False) -> Model:
    """Return the version with these beside it, itself left out."""
    kept = {v: share for v, share in shares.items() if v != model.version and not (share and shadows_only)}
    return replace(model, shares=kept)


def given(serving: Model, found: Model, share: float) -> Model:
    """Return the model with another version beside it, or with another share of it; 0 = a shadow.

    Raises:
        UsageError: it serves, cannot stand in for the one that does, or the shares would leave nothing to that one.
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
        raise UsageError(f"{message}: give another one less first, or: skysail model use {name} {version}")
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
    """Refuse what cannot take the serving version's queries, or gives another kind of answer.

    Raises:
        UsageError: it is such.
    """
    for what in ("dtype", "shape", "output"):
        mine, its = getattr(one, what), getattr(serving, what)
        if mine != its:
            message = f"{one.name} {one.version} has {what} {mine}, and {serving.version}, which serves, {its}"
            raise UsageError(f"{message}: two versions that share queries must have the same")


def check_successor(one: Model, serving: Model) -> None:
    """Refuse a version that does not take what the present one takes, or gives another kind of answer.

    Raises:
        UsageError: it is such.
    """
    name = one.name
    if not takes_alike(one, serving):
        said = (
            f"{name} {one.version} takes {taken(one)}, and {serving.version}, which serves, {taken(serving)}: what is"
        )
        said += " asked now would be answered by default"
    elif one.output != serving.output:
        said = f"the output of {name} {one.version} is a {one.output}, and of {serving.version}, which serves, a"
        said += f" {serving.output}: whoever reads its answers, and feedback, would not understand them"
    else:
        return
    raise UsageError(f"{said}. Package it under another --name, or have it take over nevertheless with --force")
