"""Counters of a kernel: cheap to add to on the hot path, rendered once a second."""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

# A name, then label names and values by turns: ("answers_total", "application", "digits", "status", "default").
Key: TypeAlias = tuple[str, ...]


class Counters(Counter[Key]):
    """Counts by name and labels."""

    def rendered(self) -> dict[str, float]:
        """Return `name{label=value,...} -> count`, the form that reports carry."""
        return {render(key): float(count) for key, count in self.items()}


def render(key: Key) -> str:
    """Write a key as `name{label=value,...}`; a name without labels stands alone."""
    labels = ",".join(f"{name}={value}" for name, value in zip(key[1::2], key[2::2], strict=True))
    return f"{key[0]}{{{labels}}}" if labels else key[0]
