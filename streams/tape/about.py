"""What a kernel is made of, as a tape says it in its first chunk: enough to make another one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from schemas.codec import Codec
    from schemas.records import Model
    from streams.operators.join.kernel import JoinerSettings
    from streams.operators.selection.kernel import SelectionSettings


def about_joiner(settings: JoinerSettings) -> dict[str, Any]:
    """Say what a joiner is made of."""
    return {"role": "joiner", "settings": asdict(settings)}


def about_learner(memory_us: int, capacity: int, capacity_bytes: int) -> dict[str, Any]:
    """Say what a learner is made of."""
    settings = {"window_us": memory_us, "capacity": capacity, "capacity_bytes": capacity_bytes}
    return {"role": "learner", "settings": settings}


def about_selection(settings: SelectionSettings) -> dict[str, Any]:
    """Say what selection is made of."""
    return {"role": "selection", "settings": asdict(settings) | {"inside": sorted(settings.inside)}}


def about_inside(
    models: Iterable[Model],
    codec: Codec,
    instance: str,
    settings: Mapping[str, Any],
    *,
    places: float,
    writes_behind: bool,
    is_columnar: bool,
) -> dict[str, Any]:
    """Say which models run inside selection, and how: `settings` are those of their workers."""
    return {
        "models": [codec.encode(model).hex() for model in models],
        "instance": instance,
        "worker": dict(settings),
        "places": places,
        "writes_behind": writes_behind,
        "is_columnar": is_columnar,
    }
