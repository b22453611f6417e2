"""Laws of arrays that a package brings: whatever they hold, compiled code refuses them or stays within them.

That it stays within is seen by `make sanitize`, which runs these under the address sanitizer.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workers.runtimes.stages import texts
from workers.runtimes.trees import IS_COMPILED

if IS_COMPILED:
    from workers.runtimes.descent import Descent

pytestmark = pytest.mark.skipif(
    not (IS_COMPILED and texts.IS_COMPILED), reason="the extensions were not built: no C compiler at installation"
)
PLACES = st.integers(-1, 6) | st.sampled_from([2**31 - 2, 2**31, 2**62, -(2**31)])
NUMBERS = st.floats(width=32) | st.sampled_from([np.inf, np.nan, 0.5])
NODES = st.lists(st.tuples(PLACES, NUMBERS, PLACES, st.integers(0, 255), NUMBERS), min_size=1, max_size=6)


@settings(max_examples=300)
@given(NODES, st.lists(PLACES, max_size=4), st.integers(-1, 40), st.integers(0, 3), st.integers(0, 20), st.data())
def test_trees_of_any_arrays_are_refused_or_gone_down(
    nodes: list[tuple[int, float, int, int, float]],
    roots: list[int],
    depth: int,
    stages: int,
    rows: int,
    data: st.DataObject,
) -> None:
    """Children and roots outside, circles, leaves with thresholds; rows of any numbers."""
    feature, threshold, left, missing, leaves = zip(*nodes, strict=True)
    with suppress(ValueError):
        trees = Descent(
            np.array(roots, np.intp),
            np.array(feature, np.intp),
            np.array(threshold, np.float64),
            np.array(left, np.intp),
            np.array(missing, np.uint8),
            np.array(leaves, np.float64)[:, None],
            depth,
            stages,
        )
        width = min(trees.features, 9)
        row = data.draw(st.lists(NUMBERS, min_size=width, max_size=width))
        trees.add(np.array([row] * rows, np.float32).reshape(rows, width), np.zeros((rows, trees.outputs)))


SLOTS = st.sampled_from([0, 1, 2, 3, 1 << 32, (1 << 32) + 1, (7 << 32) + 2, 2**64 - 1]) | st.integers(0, 2**64 - 1)


@settings(max_examples=300)
@given(
    st.lists(SLOTS, max_size=8), st.lists(st.integers(0, 5), max_size=4), st.binary(max_size=6), st.text(max_size=20)
)
def test_a_vocabulary_of_any_arrays_is_refused_or_searched(
    slots: list[int], ends: list[int], written: bytes, text: str
) -> None:
    """Slots and ends that lead elsewhere, and no room for the search to end."""
    with suppress(ValueError):
        terms = texts.grams.Terms(
            np.array(slots, np.uint64), np.array(ends, np.uint32), np.frombuffer(written, np.uint8)
        )
        counting = texts.grams.Grams(
            1, False, None, 1, 1, 3, terms, terms, terms.count, False, False, texts.logs, None, 2, 1.0
        )
        counting.row(text + written.decode(errors="replace"))


@given(
    st.integers(0, 2),
    st.integers(-1, 3),
    st.tuples(st.integers(0, 65), st.integers(0, 65)),
    st.text(st.characters(), max_size=40),
    st.integers(1, 5),
)
def test_texts_of_any_characters_are_counted_by_any_lengths(
    analyzer: int, shortest: int, lengths: tuple[int, int], text: str, features: int
) -> None:
    """Halves of surrogates, zeros, n-grams of 64; each length that no n-gram has is refused."""
    with suppress(ValueError):
        counting = texts.grams.Grams(
            analyzer, True, None, shortest, *lengths, None, None, features, False, False, texts.logs, None, 1, 0.5
        )
        row = counting.row(text)
        assert len(row) % 12 == 0
        assert len(row) // 12 <= features
