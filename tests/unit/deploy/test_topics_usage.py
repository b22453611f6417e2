"""What `skysail topics usage` shows: sizes and times as people read them."""

from __future__ import annotations

import pytest

from deploy.cli.topics import kept, size


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"), (999, "999 B"), (1_000, "1.0 KiB"), (52_429, "51.2 KiB"), (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"), (3 << 40, "3,072.0 GiB"),
    ],
)  # fmt: skip
def test_small_topics_are_told_from_empty_ones(count: int, shown: str) -> None:
    """In the unit that fits."""
    assert size(count) == shown


def test_an_hour_is_not_a_part_of_a_day() -> None:
    """Figures of models are kept for an hour."""
    assert [kept(days) for days in (1 / 24, 0.5, 1.0, 30.0, None)] == ["1 h", "12 h", "1 d", "30 d", "for good"]
