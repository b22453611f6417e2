"""The schemas that ship: the current one of every record, and every released older one.

`schemas/<Record>.avsc` is current. `schemas/released/<version>/<Record>.avsc` is the schema of that version, and never
changes again. Both are read once, at import.
"""

from __future__ import annotations

import sys
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

from schemas import avsc, records

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDS: tuple[type, ...] = (
    records.Query,
    records.ModelQueries,
    records.ModelPredictions,
    records.Prediction,
    records.Feedback,
    records.KeyedFeedback,
    records.MetricFeedback,
    records.Observation,
    records.Observations,
    records.Measurements,
    records.Application,
    records.Model,
    records.Report,
    records.PolicyState,
    records.Candidate,
    records.Promotion,
    records.Profile,
    records.Plan,
    records.Features,
)

_HERE = Path(__file__).parent


def read_set(folder: Path) -> Mapping[str, avsc.Schema]:
    """Load every `.avsc` file of a folder, by record name."""
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".avsc"))
    return {name.removesuffix(".avsc"): avsc.load((folder / name).read_text("utf-8")) for name in names}


def read_released() -> Mapping[str, Mapping[str, avsc.Schema]]:
    """Load every released set, by version."""
    return {folder.name: read_set(folder) for folder in (_HERE / "released").iterdir() if folder.is_dir()}


CURRENT: Mapping[str, avsc.Schema] = read_set(_HERE)
RELEASED: Mapping[str, Mapping[str, avsc.Schema]] = read_released()


def readable(name: str) -> tuple[avsc.Schema, ...]:
    """Return the allow-list of one record: the current schema and every different released one."""
    candidates = (CURRENT[name], *(release[name] for release in RELEASED.values() if name in release))
    return tuple({schema.fingerprint: schema for schema in reversed(candidates)}.values())


def members(kind: avsc.Enumeration) -> tuple[object, ...]:
    """Return what each symbol stands for: a member of the enumeration of that name in `records`, or just its text.

    Texts are interned, as constants are: compiled writers know a symbol by its identity.
    """
    value_of = getattr(records, kind.name, sys.intern)
    return tuple(value_of(symbol) for symbol in kind.symbols)


def field_names(record: type) -> tuple[str, ...]:
    """Return the fields of a record class, in the order of its constructor."""
    return tuple(signature(record).parameters)
