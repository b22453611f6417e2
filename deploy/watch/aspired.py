"""What is to be published for the versions of a model that a folder holds. Pure.

The versions that the folder holds now are the whole list: it replaces the one before, as in TensorFlow Serving.

    aspired ─┬─ the highest, if it is new, or if the one that serves is none of them ─▶ serves
             └─ the others ─▶ stand by;  versions that are not aspired ─▶ are unloaded

A version that was gone back from is not new: it stays where an operator has put it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from deploy.errors import UsageError
from deploy.state.history import following
from deploy.state.traffic_split import check_successor, check_unlabelled, instead

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Model


class AspirePolicy(NamedTuple):
    """Which versions of a folder are aspired.

    Attributes:
        latest: so many of the highest; 0 = all.
        named: these, whatever `latest` says; none = as `latest` says.
        force: let a version serve although its inputs or outputs differ from those of the version that serves.
    """

    latest: int = 1
    named: tuple[str, ...] = ()
    force: bool = False

    def chosen(self, models: Sequence[Model]) -> Sequence[Model]:
        """Return the aspired ones of versions in order."""
        if self.named:
            return [model for model in models if model.version in self.named]
        return models[-self.latest :]


class Aspired(NamedTuple):
    """What becomes of a model.

    Attributes:
        serving: its record as it is to be published; None = nothing is, of a model that is new.
        news: versions that were not known, in order.
        before: the version that served; empty = the model is new.
        refused: why versions cannot be had, by version.
    """

    serving: Model | None
    news: tuple[Model, ...]
    before: str
    refused: dict[str, str]


def aspired(
    found: Sequence[Model], listed: Sequence[Model], serving: Model | None, policy: AspirePolicy, now_us: int = 0
) -> Aspired:
    """Return what becomes of a model; if none of its versions is aspired, what runs goes on.

    Args:
        found: its versions in the folder.
        listed: its known versions.
        serving: the record of the one that serves; None = the model is new.
        policy: which are aspired.
        now_us: the time; 0 = not known.
    """
    known = {model.version: model for model in listed}
    before = "" if serving is None else serving.version
    fit, refused = _fit(found, known, serving)
    while chosen := policy.chosen(fit):
        served = _served(chosen, known, serving)
        if policy.force or not (reason := _mismatch(served, serving)):
            news = tuple(model for model in chosen if _is_new(model, known))
            return Aspired(_published(served, chosen, serving, now_us), news, before, refused)
        refused[served.version] = reason
        fit.remove(served)
    return Aspired(serving, (), before, refused)


def _fit(
    found: Sequence[Model], known: Mapping[str, Model], serving: Model | None
) -> tuple[list[Model], dict[str, str]]:
    """Return the versions that may run, in order, and why others may not.

    A version that is another package by now is what it was: it may be loaded.
    """
    fit: list[Model] = []
    refused: dict[str, str] = {}
    for model in in_order(found):
        same = known.get(model.version, model)
        if reason := _refusal(model, same, serving, fit):
            refused[model.version] = reason
        if not reason or same.digest != model.digest:
            fit.append(same if reason else model)
    return fit, refused


def in_order(models: Sequence[Model]) -> list[Model]:
    """Return versions from the lowest to the highest: numbers in them count as numbers, so 10 is above 9."""
    return sorted(models, key=lambda model: _natural(model.version))


def _natural(version: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d+)", version)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts if part]


def _is_new(model: Model, known: Mapping[str, Model]) -> bool:
    """Tell whether a version is not known, or not at this place."""
    return model.version not in known or known[model.version].path != model.path


def _refusal(model: Model, same: Model, serving: Model | None, others: Sequence[Model]) -> str:
    """Say why a package cannot be a version: another one is, or its version is a label."""
    if same.digest != model.digest:
        return f"{model.name} {model.version} is another package already, {same.path}; package it as another version"
    if any(model.version == other.version for other in others):
        return f"another package in the folder is {model.name} {model.version}, too: leave one of them"
    if serving is not None:
        try:
            check_unlabelled(model, serving)
        except UsageError as error:
            return str(error)
    return ""


def _served(chosen: Sequence[Model], known: Mapping[str, Model], serving: Model | None) -> Model:
    """Return the version that is to serve."""
    highest = chosen[-1]
    if serving is None or highest.version not in known:
        return highest
    return next((model for model in chosen if model.version == serving.version), highest)


def _mismatch(served: Model, serving: Model | None) -> str:
    """Say why a version cannot follow the one that serves."""
    if serving is None or served.version == serving.version:
        return ""
    try:
        check_successor(served, serving)
    except UsageError as error:
        return str(error)
    return ""


def _published(served: Model, chosen: Sequence[Model], serving: Model | None, now_us: int) -> Model:
    """Return the record to publish: all chosen versions are loaded; canaries end where another version serves."""
    if serving is None:
        served = following(served, None, now_us)
    else:
        served = instead(served, serving, now_us, shadows_only=served.version != serving.version)
    return replace(served, standby=tuple(model.version for model in chosen), latest=0)
