"""Features that a query does not bring: looked up, waited for while its deadline allows, else imputed and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Features, ModelQueries, Source, Status, Tensor
from streams.operators.configuration import check
from streams.operators.selection.features.table import MEAN_OF, MOST_MEANS, FeatureTable
from streams.testing import Crash
from tests.loops import CODEC, Loop, digits

if TYPE_CHECKING:
    from streams.testing import Fault
    from streams.testing.models import Lookup

USERS = Source("users", 2)
REDIS = Source("users", 2, store="redis")
SLO_US = 100_000


def asking(*sources: Source, look_up: Lookup | None = None, faults: tuple[Fault, ...] = (), **changes: object) -> Loop:
    """Return a loop whose queries take features from these sources."""
    application = digits(models=("good",), policy="single", sources=sources, **changes)
    return Loop({"good": lambda _: 7}, application, faults, features=look_up)


def answering(took_us: int, *values: float) -> Lookup:
    """Return a store that has these features under every key."""
    return lambda _: (CODEC.encode(Features(values)) if values else None, took_us)


def seen(loop: Loop, query_id: str) -> tuple[tuple[float, ...], tuple[str, ...]]:
    """Return the features by which a query was decided, and what was imputed."""
    prediction = loop.answer(query_id)
    assert prediction.decision is not None
    return prediction.decision.features, prediction.imputed


def took_us(loop: Loop, query_id: str) -> int:
    """Return how long an answer took."""
    prediction = loop.answer(query_id)
    return prediction.answered_us - prediction.received_us


def test_features_of_the_topic_stand_before_the_querys_own() -> None:
    """In the order of the sources, each by its own field."""
    loop = asking(USERS, Source("pages", 1, "input"))
    loop.know("users", "ann", 0.5, 1.5)
    loop.know("pages", "home", 9.0)
    asked = loop.query(context="ann", input="home", features=(3.0,))
    loop.driver.run(0.2)
    assert seen(loop, asked) == ((0.5, 1.5, 9.0, 3.0), ())


def test_a_query_waits_for_features_that_are_on_their_way() -> None:
    """Its store takes 20 ms, and half of its time is 45 ms."""
    loop = asking(REDIS, look_up=answering(20_000, 1.0, 2.0))
    asked = loop.query(context="ann")
    loop.driver.run(0.2)
    assert seen(loop, asked) == ((1.0, 2.0), ())
    assert took_us(loop, asked) == 20_000


def test_a_record_of_the_topic_is_waited_for_too() -> None:
    """Another program computes it for this query."""
    loop = asking(Source("users", 1, "query_id"))
    asked = loop.query("mine")
    loop.driver.run(0.01)
    loop.know("users", "mine", 4.0)
    loop.driver.run(0.2)
    assert (seen(loop, asked), took_us(loop, asked)) == (((4.0,), ()), 10_000)


def test_late_features_are_imputed_by_their_running_mean() -> None:
    """The mean is of the queries before; the answer says whose features were late."""
    late: set[str] = set()
    known = {"users/ann": (1.0, 2.0), "users/bob": (3.0, 4.0)}
    loop = asking(
        REDIS, look_up=lambda key: None if key in late else (CODEC.encode(Features(known.get(key, (0.0, 0.0)))), 1_000)
    )
    for name in ("ann", "bob"):
        loop.query(context=name)
    loop.driver.run(0.2)
    late.add("users/eve")
    asked = loop.query(context="eve")
    loop.driver.run(0.2)
    assert seen(loop, asked) == ((2.0, 3.0), ("users",))
    assert took_us(loop, asked) == (SLO_US - 5_000) // 2
    assert loop.answer(asked).status is Status.COMPLETE


def test_observations_say_what_was_imputed() -> None:
    """So whoever evaluates can tell real features from imputed ones."""
    loop = asking(REDIS, look_up=lambda key: answering(1_000, 1.0, 2.0)(key) if key == "users/ann" else None)
    for name in ("ann", "eve"):
        loop.feedback(loop.query(context=name), 7)
        loop.driver.run(0.5)
    loop.driver.run(5)
    assert {seen.context: seen.imputed for _, seen in loop.observations()} == {"ann": (), "eve": ("users",)}


def test_before_anything_was_seen_zeros_are_imputed() -> None:
    """As a policy takes features that are missing."""
    loop = asking(Source("users", 2, wait=0.0))
    asked = loop.query(context="ann")
    loop.driver.run(0.2)
    assert (seen(loop, asked), took_us(loop, asked)) == (((0.0, 0.0), ("users",)), 0)


def test_a_query_without_the_field_waits_for_nothing() -> None:
    """Nobody can look up what has no key."""
    loop = asking(REDIS, look_up=answering(1_000, 1.0, 2.0))
    asked = loop.query()
    loop.driver.run(0.2)
    assert (seen(loop, asked)[1], took_us(loop, asked)) == (("users",), 0)


def test_what_the_store_does_not_have_is_imputed_at_once() -> None:
    """An answer that says so is an answer."""
    loop = asking(REDIS, look_up=answering(2_000))
    asked = loop.query(context="ann")
    loop.driver.run(0.2)
    assert (seen(loop, asked)[1], took_us(loop, asked)) == (("users",), 2_000)


def test_a_store_that_is_down_costs_a_second_of_waiting_and_then_nothing() -> None:
    """It is still asked, and believed when it is back."""
    down = True

    def look_up(key: str) -> tuple[bytes | None, int] | None:
        return None if down else answering(1_000, 1.0, 2.0)(key)

    loop = asking(REDIS, look_up=look_up)
    first = loop.query(context="a")
    loop.driver.run(1.1)
    second = loop.query(context="b")
    loop.driver.run(1.1)
    down = False
    third = loop.query(context="c")
    loop.driver.run(0.1)
    fourth = loop.query(context="d")
    loop.driver.run(0.2)
    assert [took_us(loop, asked) for asked in (first, second, third, fourth)] == [47_500, 0, 0, 1_000]
    assert [seen(loop, asked)[1] for asked in (third, fourth)] == [("users",), ()]


def test_a_store_that_was_asked_nothing_for_long_is_waited_for_again() -> None:
    """One lost answer would otherwise have the next query imputed, however much later it comes."""
    loop = asking(REDIS, look_up=lambda key: None if key == "users/a" else answering(1_000, 1.0, 2.0)(key))
    first = loop.query(context="a")
    loop.driver.run(10.1)
    second = loop.query(context="b")
    loop.driver.run(0.2)
    assert [took_us(loop, asked) for asked in (first, second)] == [47_500, 1_000]
    assert seen(loop, second)[1] == ()


def test_a_query_that_waits_holds_up_no_other() -> None:
    """One whose features are known is answered before it."""
    loop = asking(REDIS, look_up=lambda key: None if key == "users/eve" else answering(1_000, 1.0, 2.0)(key))
    loop.query(context="ann")
    loop.driver.run(0.1)
    slow, fast = loop.query(context="eve"), loop.query(context="ann")
    loop.driver.run(0.2)
    assert (took_us(loop, slow), took_us(loop, fast)) == (47_500, 0)


def test_features_are_read_once_a_second_and_used_meanwhile() -> None:
    """A stale value is used once more while it is read again."""
    reads: list[str] = []
    value = [1.0]

    def look_up(key: str) -> tuple[bytes | None, int]:
        reads.append(key)
        return CODEC.encode(Features(tuple(value))), 1_000

    loop = asking(Source("users", 1, store="redis"), look_up=look_up)
    loop.query(context="ann")
    loop.driver.run(0.5)
    loop.query(context="ann")
    loop.driver.run(0.6)
    value[0] = 2.0
    stale, fresh = loop.query(context="ann"), None
    loop.driver.run(0.1)
    fresh = loop.query(context="ann")
    loop.driver.run(0.1)
    assert [seen(loop, asked)[0] for asked in (stale, fresh)] == [(1.0,), (2.0,)]
    assert len(reads) == 2


def test_models_are_asked_about_the_features_where_the_input_is_an_empty_row() -> None:
    """So a model needs nothing that its client would have to fetch."""
    loop = asking(USERS)
    loop.know("users", "ann", 0.5, 1.5)
    loop.query(context="ann", input=Tensor.of(np.array([], np.float64)), features=(3.0,))
    loop.driver.run(0.2)
    (record,) = loop.driver.read(topics.model_queries("good"))
    inputs = CODEC.decode(ModelQueries, record.value).inputs
    assert isinstance(inputs, Tensor)
    assert inputs.numpy().tolist() == [[0.5, 1.5, 3.0]]


def test_a_process_that_starts_takes_the_means_of_the_topic() -> None:
    """What others have seen is there from its first query on."""
    loop = asking(REDIS, look_up=answering(1_000, 4.0, 2.0), faults=(Crash(500_000, "selection"),))
    loop.query(context="ann")
    loop.driver.run(0.6)
    asked = loop.query()
    loop.driver.run(0.2)
    assert seen(loop, asked) == ((4.0, 2.0), ("users",))


def test_a_crash_while_queries_wait_loses_none() -> None:
    """They are read again, and wait again."""
    loop = asking(REDIS, look_up=answering(30_000, 1.0, 2.0), faults=(Crash(10_000, "selection"),))
    asked = loop.query(context="ann")
    loop.driver.run(0.3)
    assert seen(loop, asked) == ((1.0, 2.0), ())


def test_features_that_are_not_features_are_refused_and_change_nothing() -> None:
    """A record that is none, or has too many numbers, cannot end the role."""
    loop = asking(USERS)
    loop.know("users", "ann", 0.5, 1.5)
    loop.know("users", "ann", *(0.0,) * 257)
    loop.driver.produce(topics.FEATURES, 0, b"junk", b"users/ann")
    asked = loop.query(context="ann")
    loop.driver.run(0.2)
    assert seen(loop, asked) == ((0.5, 1.5), ())


def test_features_of_another_width_count_as_missing() -> None:
    """A policy's regressions would read others in their places."""
    loop = asking(USERS)
    loop.know("users", "ann", 0.5)
    asked = loop.query(context="ann")
    loop.driver.run(0.2)
    assert seen(loop, asked) == ((0.0, 0.0), ("users",))


def test_a_revoked_partition_takes_its_waiting_queries_with_it() -> None:
    """Nothing is held for it, and its answers are its new owner's."""
    loop = asking(REDIS, look_up=lambda _: None)
    loop.query(context="ann")
    loop.driver.run(0.001)
    selection = loop.driver.operator("selection").kernel  # type: ignore[attr-defined]
    assert selection.statistics()["features_waiting"] == 1
    selection.on_partitions({0: None})
    figures = selection.statistics()
    assert (figures.get("features_waiting", 0.0), figures["held{application=digits}"]) == (0.0, 0.0)
    assert selection.needs().deadline_us is None


def test_the_table_is_bounded_in_bytes() -> None:
    """The source that takes most loses the keys that it used longest ago."""
    table = FeatureTable(10_000)
    table.put("small/a", Features((1.0,)), 0)
    for number in range(1_000):
        table.put(f"large/{number}", Features((1.0,) * 10), 0)
    assert table.size <= 10_000
    assert table.find("small", ["small/a"])[0] is not None
    assert table.find("large", ["large/0"])[0] is None
    assert table.find("large", ["large/999"])[0] is not None


def test_keys_of_which_nothing_is_known_do_not_drive_out_what_is_known() -> None:
    """Somebody asks about whatever comes to mind, thousands of times."""
    table = FeatureTable(10_000)
    for name in "abc":
        table.put(f"users/{name}", Features((1.0,)), 1)
    for number in range(1_000):
        table.put(f"users/nobody-{number}", None, 2)
    assert table.size <= 10_000
    assert [table.find("users", [f"users/{name}"])[0] for name in "abc"] == [((1.0,), 1)] * 3
    table.put("users/a", None, 3)
    table.put("users/nobody-999", Features((2.0,)), 4)
    assert table.find("users", ["users/a"])[0] == (None, 3)
    assert table.find("users", ["users/nobody-999"])[0] == ((2.0,), 4)


def test_a_mean_is_written_now_and_then() -> None:
    """After 1, 10 and 100 queries, and then once for a thousand."""
    table = FeatureTable(10_000)
    written = [number for number in range(1, 3 * MEAN_OF) if table.learn("users", (1.0,)) is not None]
    assert written == [1, 10, 100, MEAN_OF, 2 * MEAN_OF]


def test_a_mean_of_more_queries_is_adopted() -> None:
    """And one of fewer is not."""
    table, source = FeatureTable(10_000), Source("users", 1)
    table.learn("users", (1.0,))
    table.put("users", Features((5.0,), 1), 0)
    assert table.mean(source) == (1.0,)
    table.put("users", Features((5.0,), 50), 0)
    assert table.mean(source) == (5.0,)


def test_a_mean_stays_finite_whatever_is_written() -> None:
    """Numbers at both ends of a double, and weights that nobody means."""
    table, source = FeatureTable(10_000), Source("users", 1)
    table.put("users", Features((-1e308,), -7), 0)
    for _ in range(3):
        table.learn("users", (1e308,))
    assert abs(table.mean(source)[0]) <= 1e100
    table.put("users", Features((1e308,), 1 << 62), 0)
    table.learn("users", (-1e308,))
    assert abs(table.mean(source)[0]) <= 1e100


def test_means_of_names_that_anybody_writes_are_bounded() -> None:
    """A source that is in use has its mean all the same."""
    table, source = FeatureTable(10_000), Source("users", 1)
    for number in range(MOST_MEANS + 1):
        table.put(f"name-{number}", Features((1.0,), 1), 0)
    last = MOST_MEANS - 1
    assert table.mean(Source(f"name-{last}", 1)) == (1.0,)
    assert table.mean(Source(f"name-{last + 1}", 1)) == (0.0,)
    table.learn("users", (3.0,))
    assert table.mean(source) == (3.0,)


@pytest.mark.parametrize(
    ("sources", "fault"),
    [
        ((Source("Users", 2),), "lower-case"),
        ((Source("users", 2, "version"),), "context, input, query_id"),
        ((Source("users", 2, store="disk"),), "topic, redis"),
        ((Source("users", 0),), "at least 1"),
        ((Source("users", 2, wait=1.5),), "share in"),
        ((USERS, USERS), "one name"),
        ((Source("users", 200), Source("pages", 57)), "256"),
    ],
)
def test_impossible_sources_are_refused(sources: tuple[Source, ...], fault: str) -> None:
    """Where they are configured, with the reason."""
    with pytest.raises(DecodeError, match=fault):
        check(digits(sources=sources))


def test_keys_that_no_store_answers_are_forgotten_after_a_second() -> None:
    """Nobody waits while the store is down, so nothing else would bound them."""
    loop = asking(Source("texts", 1, "input", "redis", wait=0.0), look_up=lambda _: None)
    for number in range(50):
        loop.query(input=str(number))
        loop.driver.run(0.1)
    asked = loop.driver.operator("selection").kernel._features._asked  # type: ignore[attr-defined]
    assert 5 <= len(asked) <= 11
    loop.driver.run(5)
    loop.query(input="later")
    loop.driver.run(0.01)
    assert list(asked) == ["texts/later"]


def test_a_long_key_is_named_by_its_hash_wherever_it_is_kept() -> None:
    """A text that a client sends may have half a megabyte; what is stored under it is found all the same."""
    text = "é" * 100_000
    loop = asking(Source("texts", 1, "input", "redis"), look_up=lambda key: stored_under(key, text))
    asked = loop.query(input=text)
    loop.driver.run(0.2)
    assert seen(loop, asked) == ((7.0,), ())
    assert len(topics.feature_key("texts", text)) == len("texts/") + 128
    assert topics.feature_key("texts", "x" * 256) == "texts/" + "x" * 256
    assert len({topics.feature_key("texts", "x" * length) for length in range(250, 300)}) == 50


def stored_under(key: str, text: str) -> tuple[bytes | None, int]:
    """Return what the store has, under the name that writers use."""
    return (CODEC.encode(Features((7.0,))) if key == topics.feature_key("texts", text) else None), 1_000
