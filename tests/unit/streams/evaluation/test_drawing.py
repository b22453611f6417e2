"""Pictures of pages, small enough for a repository."""

from __future__ import annotations

import io

from PIL import Image

from streams.evaluation.drawing import COLOURS, panels, png


def drawn() -> bytes:
    """Return two panels with many lines."""
    figure, axes = panels(2)
    for each in axes:
        for number, colour in enumerate(COLOURS):
            each.plot([number + place**0.5 for place in range(200)], color=colour, label=str(number))
        each.legend()
    return png(figure)


def test_a_picture_is_small_and_the_same_each_time() -> None:
    """Its colours stay apart, and it is as large as a screen shows it."""
    first = drawn()
    assert first == drawn()
    assert len(first) < 60_000
    picture = Image.open(io.BytesIO(first))
    assert picture.size == (1290, 435)
    found = {colour for _, colour in picture.convert("RGB").getcolors(1_000)}
    wanted = [bytes.fromhex(colour[1:]) for colour in COLOURS]
    assert all(min(sum(abs(a - b) for a, b in zip(one, each, strict=True)) for each in found) < 12 for one in wanted)
