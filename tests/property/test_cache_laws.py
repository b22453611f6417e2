"""Laws of the prediction cache, whatever comes in whatever order."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Outcome
from streams.operators.selection.cache import ENTRY_BYTES
from tests.cached import Cached
from tests.loops import row

KEYS = 3
PARTITIONS = 2
MODELS = ("m", "n")
ENTRY = ENTRY_BYTES + len(row().data)

asks = st.tuples(st.just("ask"), st.integers(0, KEYS - 1), st.integers(0, PARTITIONS - 1))
lands = st.tuples(st.just("land"), st.integers(0, 9), st.sampled_from([Outcome.OK, Outcome.OK, Outcome.EXPIRED]))
waits = st.tuples(st.just("wait"), st.sampled_from([0.001, 0.03, 0.2]), st.none())
revokes = st.tuples(st.just("revoke"), st.integers(0, PARTITIONS - 1), st.none())


class World:
    """Two models whose outputs come in any order, and everything that was said."""

    def __init__(self, room: int) -> None:
        self.cached = Cached(*MODELS, cache_bytes=room * ENTRY)
        self.keys: dict[str, int] = {}
        self.partitions: dict[str, int] = {}
        self.asked: list[tuple[str, str]] = []
        self.answers: Counter[str] = Counter()

    def hear(self, words: list[str]) -> None:
        """Remember who is asked, check what is answered."""
        for word in words:
            if "?" in word:
                model, query_id = word.split("?")
                self.asked.append((model, query_id))
                continue
            query_id, answer = word.split("=")
            self.answers[query_id] += 1
            assert answer in {str(self.keys[query_id]), "deadline", "expired_in_queue"}

    def ask(self, key: int, partition: int) -> None:
        """Send a query."""
        query_id = f"q{len(self.keys)}"
        self.keys[query_id], self.partitions[query_id] = key, partition
        self.hear(self.cached.ask(query_id, row(float(key)), partition))

    def land(self, index: int, outcome: Outcome) -> None:
        """Let one of the outputs come."""
        if self.asked:
            model, query_id = self.asked.pop(index % len(self.asked))
            key, partition = self.keys[query_id], self.partitions[query_id]
            self.hear(self.cached.land(query_id, model, answer=key, partition=partition, outcomes=(outcome,)))

    def wait(self, seconds: float, _: None) -> None:
        """Let time pass."""
        self.hear(self.cached.wait(seconds))

    def revoke(self, partition: int, _: None) -> None:
        """Lose a partition: its queries are another's, and so are the outputs for them."""
        self.cached.kernel.on_partitions({partition: None})
        gone = {query_id for query_id, where in self.partitions.items() if where == partition}
        self.asked = [(model, query_id) for model, query_id in self.asked if query_id not in gone]
        self.answers |= Counter(dict.fromkeys(gone, 1))


@pytest.mark.parametrize("room", [1, 3, 100])
@given(steps=st.lists(st.one_of(asks, asks, lands, lands, waits, revokes), max_size=40))
def test_every_query_has_one_answer_and_it_is_that_of_its_own_input(
    room: int, steps: list[tuple[str, object, object]]
) -> None:
    """Outputs late, expired or lost, partitions gone, a cache of one entry: nobody is forgotten or told another's."""
    world = World(room)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
    world.wait(1.0, None)
    assert world.answers == Counter(dict.fromkeys(world.keys, 1))
    assert world.cached.kernel.statistics()["cache_bytes"] <= room * ENTRY


@given(steps=st.lists(st.one_of(asks, lands), max_size=40))
def test_what_has_room_is_asked_once_for_each_model(steps: list[tuple[str, object, object]]) -> None:
    """While nothing expires, a key costs one query of each model, however the outputs come."""
    world = World(100)
    counted: Counter[tuple[str, int]] = Counter()
    for name, *arguments in steps:
        before = len(world.asked)
        if name == "ask":
            world.ask(*arguments)  # type: ignore[arg-type]  # a key and a partition
            counted.update((model, world.keys[query_id]) for model, query_id in world.asked[before:])
        else:
            world.land(arguments[0], Outcome.OK)  # type: ignore[arg-type]  # an index
    assert set(counted.values()) <= {1}
