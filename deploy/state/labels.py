"""Labels of versions, and which versions of a model stay loaded beside the one that serves. Pure.

label    ─▶ one version, which stays loaded for as long as it has the label
standby  ─▶ versions that stay loaded: those that were named, or the ones added last
neither  ─▶ unloaded, unless it serves or has a share of the queries
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from deploy.errors import UsageError
from schemas.errors import SchemaError
from schemas.topics import check_name
from workers.kernel.model.routing import CANARY, SHADOW, STABLE, STANDBY

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from schemas.records import Model

ALL: Final = (1 << 31) - 1  # as `Model.latest`: however many versions there are
_TAKEN: Final = (STABLE, CANARY, SHADOW, STANDBY)


def labelled(serving: Model, known: Collection[str], version: str, label: str) -> Model:
    """Return the model with a label on a version; it leaves the version that had it.

    Args:
        serving: the version that serves, with all that runs beside it.
        known: its versions.
        version: that gets the label.
        label: lower-case letters, digits and dashes.

    Raises:
        UsageError: this can be no label, or there is no such version.
    """
    check_label(label, known)
    if version not in known:
        raise UsageError(f"there is no version {version} of {serving.name}; there are: {', '.join(known)}")
    return replace(serving, labels={**serving.labels, label: version})


def check_label(label: str, known: Collection[str]) -> None:
    """Refuse a label that a query could take for something else.

    Raises:
        UsageError: it is such.
    """
    try:
        check_name(label, "label")
    except SchemaError as error:
        raise UsageError(str(error)) from error
    if label in _TAKEN:
        raise UsageError(f"{label} says what a version is for, and cannot be given: use another label")
    if label in known:
        raise UsageError(f"{label} is a version of this model: use another label")


def unlabelled(serving: Model, label: str) -> Model:
    """Return the model without a label.

    Raises:
        UsageError: no version has it.
    """
    if label not in serving.labels:
        there = ", ".join(f"{name} ({version})" for name, version in serving.labels.items()) or "none"
        raise UsageError(f"no version of {serving.name} has the label {label}; labels: {there}")
    return replace(serving, labels={name: version for name, version in serving.labels.items() if name != label})


def keeping(serving: Model, known: Sequence[str], named: Sequence[str] = (), latest: int = 0) -> Model:
    """Return the model with these versions standing by, and no others.

    Args:
        serving: the version that serves, with all that runs beside it.
        known: its versions, in the order of addition.
        named: that are to stand by.
        latest: so many of the versions added last are, instead; 0 = those that are named.

    Raises:
        UsageError: there is no such version.
    """
    unknown = [version for version in named if version not in known]
    if unknown:
        raise UsageError(f"there is no version {unknown[0]} of {serving.name}; there are: {', '.join(known)}")
    return standing(replace(serving, standby=tuple(named), latest=latest), known)


def standing(model: Model, known: Sequence[str]) -> Model:
    """Return the model with the versions added last standing by, if it keeps those."""
    return replace(model, standby=tuple(known[-model.latest :])) if model.latest else model


def loaded(serving: Model) -> set[str]:
    """Return the versions of a model that are to be loaded."""
    return {serving.version, *serving.shares, *serving.standby, *serving.labels.values()}


def labels_of(serving: Model, version: str) -> list[str]:
    """Return the labels of a version."""
    return sorted(label for label, labelled in serving.labels.items() if labelled == version)
