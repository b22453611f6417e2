"""Ids that Skysail draws: they say when, as RFC 9562 writes it, and what is drawn by them stays even."""

from __future__ import annotations

import random
import uuid
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.draw import uniform
from schemas.ids import DRAWN_BITS, drawn_us, query_id
from streams.topology import partition_of

DRAWN = st.integers(0, (1 << DRAWN_BITS) - 1)
TIMES = st.integers(0, ((1 << 48) - 1) * 1000 + 999)
COUNT = 20_000
# A sum of squares over so many equal cells, each seen as often as chance has it: beyond it once in a million.
CHI_SQUARE_99 = 181.0  # of 99 degrees of freedom


@given(now_us=TIMES, drawn=DRAWN)
def test_an_id_is_a_uuid_of_version_7_with_its_time_before_it(now_us: int, drawn: int) -> None:
    """The library for UUIDs agrees on version and variant; 48 bits are the time, the others what was drawn."""
    made = uuid.UUID(hex=query_id(now_us, drawn))
    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert made.int >> 80 == now_us // 1000
    assert (made.int >> 64 & 0xFFF) << 62 | made.int & (1 << 62) - 1 == drawn
    assert drawn_us(made.hex) == drawn_us(str(made)) == now_us // 1000 * 1000


@given(first=TIMES, second=TIMES, drawn=st.tuples(DRAWN, DRAWN))
def test_ids_stand_in_the_order_of_their_milliseconds(first: int, second: int, drawn: tuple[int, int]) -> None:
    """As texts, whatever was drawn."""
    if first // 1000 < second // 1000:
        assert query_id(first, drawn[0]) < query_id(second, drawn[1])


def test_the_published_example() -> None:
    """RFC 9562, A.6: 2022-02-22 14:22:22 -05:00."""
    drawn = 0xCC3 << 62 | 0x18C4DC0C0C07398F
    assert query_id(0x017F22E279B0 * 1000, drawn) == "017f22e279b07cc398c4dc0c0c07398f"
    assert drawn_us("017F22E2-79B0-7CC3-98C4-DC0C0C07398F") == 1_645_557_742_000_000


@pytest.mark.parametrize(
    "name", ["", "q1", "7" * 32, "69b2c050c1ce4210b625749e24f8d93a", "017f22e279b07cc3g8c4dc0c0c07398f", "é" * 32]
)
def test_other_ids_say_no_time(name: str) -> None:
    """Those of clients, and of version 4; `7777...` has no variant of a UUID."""
    assert drawn_us(name) is None


@pytest.mark.parametrize("use", ["select", "version"])
@pytest.mark.parametrize("step_us", [0, 1_000, 1_000_000], ids=["one-ms", "a-thousand-a-second", "one-a-second"])
def test_draws_by_ids_of_one_moment_are_even(use: str, step_us: int) -> None:
    """The draw is a hash of the whole id: ids whose first half is the same, or counts, draw as evenly as any."""
    draws = random.Random(1)
    ids = [query_id(1_700_000_000_000_000 + at * step_us, draws.getrandbits(DRAWN_BITS)) for at in range(COUNT)]
    assert unevenness(Counter(int(100 * uniform(name, use)) for name in ids), 100) < CHI_SQUARE_99
    assert unevenness(Counter(partition_of(name.encode(), 100) for name in ids), 100) < CHI_SQUARE_99


def test_the_test_of_evenness_sees_what_is_uneven() -> None:
    """A draw by the time alone, which ids of one moment share."""
    draws = random.Random(1)
    ids = [query_id(1_700_000_000_000_000, draws.getrandbits(DRAWN_BITS)) for _ in range(COUNT)]
    assert unevenness(Counter(int(100 * uniform(name[:16])) for name in ids), 100) > CHI_SQUARE_99


def unevenness(counts: Counter[int], cells: int) -> float:
    """Return chi-square against cells that are equally likely."""
    expected = counts.total() / cells
    return sum((counts[cell] - expected) ** 2 / expected for cell in range(cells))
