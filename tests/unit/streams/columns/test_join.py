"""Joins over columns are what the joiner's kernel makes of the same records, alone."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import Codec
from schemas.definitions import CURRENT
from schemas.records import Feedback, Observation
from streams.operators.contract import DeadLetter
from streams.operators.join.kernel import Joiner, JoinerSettings
from tests.loops import CODEC
from tests.unit.streams.columns import worlds
from tests.unit.streams.columns.worlds import World, outcome, unpacked

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.columns.join import ColumnJoiner

join = pytest.importorskip("streams.columns.join", reason="Skysail has been installed without a compiler")

SETTINGS = JoinerSettings(2, window_us=20_000_000, early_us=3_000_000)


def pair(settings: JoinerSettings = SETTINGS) -> tuple[Joiner, ColumnJoiner]:
    """Return a joiner, and one over columns."""
    columns = join.columns_for_joiner(Joiner(CODEC, settings), CODEC, unpacked)
    assert columns is not None
    return Joiner(CODEC, settings), columns


def counted(statistics: Mapping[str, float]) -> dict[str, float]:
    """Return statistics without those about columns."""
    return {name: value for name, value in statistics.items() if "columns_total" not in name}


def lived(world: World, alone: Joiner, columns: ColumnJoiner, polls: int, most: int) -> None:
    """Let both take the same polls, and compare them after each."""
    for kernel in (alone, columns):
        kernel.on_partitions({0: 0, 1: 2})
        kernel.on_records(world.configuration(), world.now_us)
    for _ in range(polls):
        runs = world.poll(most)
        fetched = world.fetched(runs)
        expected = alone.on_records([record for run in runs for record in run], world.now_us)
        assert outcome(columns.on_records(fetched, world.now_us)) == outcome(expected)
        assert counted(columns.statistics()) == alone.statistics()
        if world.is_odd() and world.random.random() < 0.2:
            restarted(world, alone, columns)
        world.now_us += world.random.choice((0, 1_000, 900_000, 900_000, 4_000_000, 30_000_000))
        unread = {("predictions", 0): 5} if world.is_odd() else {}
        assert outcome(columns.on_timer(world.now_us, unread)) == outcome(alone.on_timer(world.now_us, unread))
        assert (columns.needs(), counted(columns.statistics())) == (alone.needs(), alone.statistics())
    for _ in range(40):  # nothing is left
        world.now_us += 30_000_000
        assert outcome(columns.on_timer(world.now_us)) == outcome(alone.on_timer(world.now_us))
    assert counted(columns.statistics()) == alone.statistics()


def restarted(world: World, alone: Joiner, columns: ColumnJoiner) -> None:
    """Let both begin anew with a partition; some of what is to be read has been read, or joined."""
    start = world.offsets["predictions", 0] + world.random.choice((-2, 0, 2))
    for kernel in (alone, columns):
        kernel.on_partitions({0: None})
        kernel.on_partitions({0: start})
    if world.is_odd():
        records = world.observed()
        for kernel in (alone, columns):
            assert kernel.on_records(records, world.now_us) == []


@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.02, 0.3, 0.9]),
    st.sampled_from([0.0, 0.5]),
    st.sampled_from([4, 30, 200]),
)
def test_columns_and_what_they_leave_are_what_the_kernel_makes_alone(
    seed: int, odd: float, ahead: float, most: int
) -> None:
    """The same records by partition, in order; the same completions, dead letters and counts."""
    lived(World(Random(seed), odd, ahead), *pair(), polls=6, most=most)


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2]), st.sampled_from([0.0, 0.5]))
def test_without_room_the_same_are_turned_away(seed: int, odd: float, ahead: float) -> None:
    """Applications share it, record by record."""
    small = JoinerSettings(2, 20_000_000, 3_000_000, predictions=30, feedback=10, shadows=10, large_bytes=4_000)
    lived(World(Random(seed), odd, ahead), *pair(small), polls=6, most=60)


@pytest.mark.parametrize("ahead", [0.0, 1.0])
def test_common_records_go_by_columns(ahead: float) -> None:
    """Nearly all of them, in whichever order they are read; else the other laws would hold of nothing."""
    world, (alone, columns) = World(Random(1), 0.0, ahead), pair()
    lived(world, alone, columns, polls=20, most=200)
    found = columns.statistics()
    taken = sum(value for name, value in found.items() if name.startswith("columns_total"))
    joined = sum(value for name, value in found.items() if name.startswith("joined_total"))
    assert joined > 1_000
    assert not [name for name in found if name.startswith("not_columns_total")]
    # What is told twice in one chunk leaves it to the kernel.
    assert taken > 0.95 * (joined + sum(map(len, world.asked.values())))


def test_what_came_first_and_goes_to_the_kernel_sets_no_position_back() -> None:
    """Feedback is behind, or not, by what was read last of it."""
    world, (_, columns) = World(Random(3), 0.0), pair()
    columns.on_records(world.configuration(), world.now_us)
    predictions, told = world.predictions(0, 40), world.told(0, 40)
    numbers = {one.query_id for one in world.asked[0] if one.application == "numbers"}
    for at, record in enumerate(told):
        said = CODEC.decode(Feedback, record.value)
        if said.query_id in numbers:
            told[at] = record._replace(value=CODEC.encode(said._replace(label="text")))
    effects = columns.on_records(world.fetched([told, predictions]), world.now_us)
    assert [one.cause for one in effects if isinstance(one, DeadLetter)] == ["invalid_feedback"] * len(numbers)
    assert len(numbers) > 1
    assert columns._joiner.partition(0).feedback_lag.position == 40


def test_a_flipped_bit_gives_the_same_dead_letters() -> None:
    """A batch whose checksum is right may hold anything."""
    world = World(Random(2), 0.0)
    predictions, told = world.predictions(0, 8), world.told(0, 8)
    for run in (predictions, told):
        for at in (1, len(run) - 1):
            value = run[at].value
            assert value is not None
            for byte in range(len(value)):
                spoilt = value[:byte] + bytes([value[byte] ^ 1 << (byte * 5 + at) % 8]) + value[byte + 1 :]
                changed = [*run[:at], run[at]._replace(value=spoilt), *run[at + 1 :]]
                runs = [changed, told] if run is predictions else [predictions, changed]
                alone, columns = pair()
                for kernel in (alone, columns):
                    kernel.on_records(world.configuration(), world.now_us)
                expected = alone.on_records([*runs[0], *runs[1]], world.now_us)
                assert outcome(columns.on_records(world.fetched(runs), world.now_us)) == outcome(expected)
                world.now_us += 1_000


def test_with_the_framing_of_a_registry_columns_hold_the_same_laws() -> None:
    """Framings are cut from what the codec writes."""
    codec = Codec({name: at for at, name in enumerate(CURRENT)})
    assert join.columns_for_joiner(Joiner(codec, SETTINGS), codec, unpacked) is not None


def test_where_records_are_written_otherwise_there_are_no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a change of a schema that columns do not know of."""
    encode = Codec.encode

    def changed(self: Codec, record: object) -> bytes:
        value = encode(self, record)
        return value[:10] + b"\0" + value[10:] if isinstance(record, Observation) else value

    monkeypatch.setattr(Codec, "encode", changed)
    assert join.columns_for_joiner(Joiner(CODEC, SETTINGS), CODEC, unpacked) is None


def test_a_batch_with_a_wrong_checksum_is_unpacked_as_ever() -> None:
    """Who unpacks says what becomes of it."""
    world, (_, columns) = World(Random(3), 0.0), pair()
    data = bytearray(worlds.batch_of(world.predictions(0, 3)))
    data[-1] ^= 1
    with pytest.raises(Exception, match="checksum"):
        columns.on_records([worlds.Batch("predictions", 0, 0, 3, bytes(data))], world.now_us)
