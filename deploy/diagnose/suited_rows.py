"""Whether the rows of a topic are such as the models take, by their packages: before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas.records import Query
from workers import manifest
from workers.inputs.validation import validate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deploy.diagnose.mapped_topics import MappedRecord
    from streams.operators.contract import Record


def unsuited(
    folders: Mapping[str, Path], models: Sequence[str], mapped: Sequence[MappedRecord]
) -> list[tuple[Record, str]]:
    """Return the records whose queries a model would refuse, and why; one that several refuse has the first's reason.

    Args:
        folders: of packages, by model; one that is not here says nothing.
        models: that are asked.
        mapped: what the records became; feedback asks nobody.
    """
    asked = [(each.record, each.made.input) for each in mapped if isinstance(each.made, Query)]
    found: dict[int, str] = {}
    for name in models:
        if name not in folders or not folders[name].is_dir():
            continue
        signature = manifest.read(folders[name]).input
        if signature.by_reference:  # its rows may be addresses, which are fetched where it runs
            continue
        for place, message in validate(signature, [given for _, given in asked]).messages.items():
            found.setdefault(place, f"model {name} {message}")
    return [(asked[place][0], found[place]) for place in sorted(found)]
