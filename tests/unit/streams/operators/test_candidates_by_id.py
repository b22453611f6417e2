"""Candidates that are ids: their features are looked up, what is late of them is imputed, and the answer names them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies import registry
from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Features, Query, Source, Status, Tensor
from streams.operators.configuration import check, check_ranking
from streams.operators.contract import Record, StateKey
from streams.operators.learn.fold import fold
from streams.operators.selection.kernel import Selection, SelectionSettings
from tests.loops import CODEC, START_US, Loop, digits, row
from tests.unit.streams.operators.test_answering import ITEMS, asked, computed, rated

if TYPE_CHECKING:
    from schemas.records import Application
    from streams.testing.models import Lookup

WINDOW_US = 130_000_000
FILMS = Source("films", 2, "candidate", "redis")
KNOWN = {f"films/{name}": tuple(row) for name, row in zip("abcd", ITEMS.numpy().tolist(), strict=True)}
SURE = {"features": 2.0, "low": 1.0, "high": 5.0, "gamma": 0.0}


def by_id(*sources: Source, **changes: object) -> Application:
    """Make the application under test, which looks the features of its candidates up."""
    return rated(**({"sources": sources or (FILMS,), "parameters": SURE} | changes))


def stored(key: str) -> tuple[bytes | None, int]:
    """Return what the store has of a film, after 1 ms."""
    return (CODEC.encode(Features(KNOWN[key])) if key in KNOWN else None), 1_000


def ranking(look_up: Lookup = stored, application: Application | None = None) -> Loop:
    """Return a loop in which ann likes films whose first number is high."""
    loop = Loop({"items": computed}, application or by_id(), features=look_up)
    for value in (-1.0, 0.0, 1.0, 0.5, -0.5) * 8:
        asked(loop, "ann", value, 3.0 + value)
    return loop


def ranked(loop: Loop, *ids: str, top: int = 3, **changes: object) -> str:
    """Ask for the best of some films, and wait for the answer."""
    query_id = loop.query(context="ann", candidates=ids, top=top, **changes)
    loop.driver.run(0.2)
    return query_id


def test_the_best_of_ids_are_named_in_the_answer() -> None:
    """The answer has places, `best` the ids, `first` the probability of each, and nothing was imputed."""
    loop = ranking()
    found = loop.answer(ranked(loop, "a", "b", "c", "d"))
    assert found.status is Status.COMPLETE
    assert found.best == ("b", "c", "d")
    assert isinstance(found.answer, Tensor)
    assert found.answer.numpy().tolist() == [1, 2, 3]
    assert found.ranked is not None
    assert (found.ranked.ids, found.ranked.place, found.ranked.imputed) == (("a", "b", "c", "d"), 1, ())
    assert found.first == (0.0, 1.0, 0.0, 0.0)
    assert found.imputed == ()
    assert found.answered_us - found.received_us == 1_000


def test_ids_and_the_rows_that_are_looked_up_for_them_are_ranked_alike() -> None:
    """An id stands for its features, and for nothing else."""
    loop = ranking()
    ranked(loop, "a", "b", "c", "d")  # reads the latest state
    rows = Tensor.of(ITEMS.numpy().astype(np.float64))
    ids, row_id = ranked(loop, "a", "b", "c", "d"), loop.query(context="ann", candidates=rows, top=3)
    loop.driver.run(0.2)
    one, two = loop.answer(ids), loop.answer(row_id)
    assert (one.answer, one.confidence, one.first, one.outputs) == (
        two.answer,
        two.confidence,
        two.first,
        two.outputs,
    )
    assert two.ranked is None


def test_feedback_teaches_by_the_features_that_were_looked_up() -> None:
    """The observation has them and the id that stood first; states are the fold of the log."""
    loop = ranking()
    query_id = ranked(loop, "a", "b", "c")
    loop.feedback(query_id, 1.0)
    loop.driver.run(0.5)
    seen = loop.observations()[-1][1]
    assert seen.ranked is not None
    assert (seen.ranked.ids[seen.ranked.place], seen.ranked.rows) == ("b", None)
    assert seen.scores == (Tensor.of(np.array(KNOWN["films/b"])),)
    for name, state in fold(loop.observations(), WINDOW_US).items():
        assert loop.driver.store.states[StateKey(0, name)] == state


def test_what_is_not_known_of_an_id_is_imputed_by_the_mean_and_named() -> None:
    """The store has nothing of it: it stands where an average film does, and does not hold up the answer."""
    loop = ranking()
    found = loop.answer(ranked(loop, "a", "b", "nothing"))
    assert found.ranked is not None
    assert (found.imputed, found.ranked.imputed) == (("films",), ("nothing",))
    assert found.ranked.rows is not None
    assert found.ranked.rows.numpy()[2].tolist() == [0.5, 0.5]  # of a and b
    assert found.best == ("b", "nothing", "a")


@pytest.mark.parametrize("value", [b"nonsense", CODEC.encode(Features(())), CODEC.encode(Features((1.0,) * 257))])
def test_what_the_store_has_that_is_no_features_is_as_nothing(value: bytes) -> None:
    """It is imputed at once, and not asked for again with each query."""
    reads: list[str] = []

    def look_up(key: str) -> tuple[bytes | None, int]:
        reads.append(key)
        return (value, 1_000) if key == "films/c" else stored(key)

    loop = ranking(look_up)
    for _ in range(3):
        found = loop.answer(ranked(loop, "a", "b", "c"))
        assert found.ranked is not None
        assert (found.ranked.imputed, found.answered_us - found.received_us <= 1_000) == (("c",), True)
    assert reads.count("films/c") == 1


def test_late_features_are_imputed_when_the_wait_is_over() -> None:
    """The others are there: the answer comes after half of the time, and says of which ids some are means."""
    loop = ranking(lambda key: None if key in ("films/c", "films/d") else stored(key))
    found = loop.answer(ranked(loop, "a", "b", "c", "d"))
    assert found.ranked is not None
    assert (found.status, found.ranked.imputed) == (Status.COMPLETE, ("c", "d"))
    assert found.answered_us - found.received_us == (100_000 - 5_000) // 2


def test_several_sources_stand_beside_each_other_in_their_order() -> None:
    """One in the topic, one in Redis; each has its own mean, and an id is named once."""
    sources = Source("kind", 1, "candidate", wait=0.0), Source("price", 1, "candidate", "redis")
    loop = ranking(lambda key: (CODEC.encode(Features((9.0,))) if key == "price/a" else None, 1_000), by_id(*sources))
    loop.know("kind", "b", 4.0)
    found = loop.answer(ranked(loop, "a", "b", "c", top=1))
    assert found.ranked is not None
    assert found.ranked.rows is not None
    assert found.ranked.rows.numpy().tolist() == [[4.0, 9.0], [4.0, 9.0], [4.0, 9.0]]
    assert (found.imputed, found.ranked.imputed) == (("kind", "price"), ("a", "b", "c"))


def test_candidates_features_are_no_features_of_the_query() -> None:
    """Another source has those; and a query without candidates looks nothing up of theirs."""
    loop = ranking(application=by_id(FILMS, Source("users", 1)))
    loop.know("users", "ann", 0.5)
    loop.driver.run(0.1)
    plain = loop.answer(asked(loop, "ann", 1.0))
    assert plain.decision is not None
    assert (plain.decision.features, plain.imputed) == ((0.5,), ())
    found = loop.answer(ranked(loop, "a", "b"))
    assert found.decision is not None
    assert (found.decision.features, found.best) == ((0.5,), ("b", "a"))


@pytest.mark.parametrize(
    ("served", "message"),
    [
        (
            rated(),
            "no source of features whose key is candidate: give it one under `sources`, or send rows of 2 features",
        ),
        (rated(policy="single", parameters={}), "single does not rank candidates"),
    ],
)
def test_ids_that_nothing_is_looked_up_for_are_answered_by_default(served: Application, message: str) -> None:
    """The message says what is missing."""
    loop = Loop({"items": computed}, served)
    found = loop.answer(ranked(loop, "a", "b"))
    assert (found.status, found.reason) == (Status.DEFAULT, "not_ranked")
    assert message in found.message


@pytest.mark.parametrize("ids", [("a", "a"), ("",), ("x" * 129,), tuple(map(str, range(4_097))), ()])
def test_ids_that_are_none_are_dead_letters(ids: tuple[str, ...]) -> None:
    """Twice the same, empty, too long, too many, and none at all."""
    loop = Loop({"items": computed}, by_id(), features=stored)
    loop.query(candidates=ids)
    loop.driver.run(0.2)
    assert [cause for cause, _ in loop.dead("queries")] == ["invalid"]


def test_a_query_counts_once_for_a_mean_however_many_candidates_it_has() -> None:
    """With their mean; numbers at both ends of a double do no harm."""
    values = {"films/a": (1e308, 0.0), "films/b": (1e308, 2.0)}
    loop = ranking(lambda key: (CODEC.encode(Features(values[key])), 1_000) if key in values else (None, 1_000))
    found = loop.answer(ranked(loop, "a", "b", "c"))
    assert found.ranked is not None
    assert found.ranked.rows is not None
    assert found.ranked.rows.numpy()[2].tolist() == [1e100, 1.0]
    written = [CODEC.decode(Features, record.value) for record in loop.driver.read(topics.FEATURES)]
    assert [mean.weight for mean in written] == [1]


def test_a_waiting_query_counts_for_all_that_it_looks_up() -> None:
    """Whoever sends hundreds of ids that no store answers has no more room than others."""
    loop = Loop({"items": computed}, by_id(), features=lambda _: None)
    loop.query(context="ann", candidates=tuple(f"film-{number}" for number in range(256)))
    loop.driver.run(0.001)
    assert loop.driver.operator("selection").statistics()["held{application=digits}"] >= 106  # KiB, measured
    loop.driver.run(0.3)
    assert loop.driver.operator("selection").statistics()["held{application=digits}"] == 0


def test_short_ids_count_for_what_they_take_in_memory() -> None:
    """Of a record of 1 KB whose query waits for its state: 256 texts of 58 bytes."""
    served, query = by_id(), Query("q", "digits", row(), "ann", START_US, candidates=tuple(map(str, range(256))))
    kernel = Selection(CODEC, SelectionSettings(1))
    for topic, record in ((topics.APPLICATIONS, replace(served, sources=())), (topics.QUERIES, query)):
        kernel.on_records([Record(topic, 0, 0, START_US, b"digits", CODEC.encode(record))], START_US)
    assert kernel.statistics()["parked"] == 1
    assert kernel.statistics()["held{application=digits}"] >= 256 * 58 // 1024


@pytest.mark.parametrize(
    ("application", "fault"),
    [
        (digits(policy="exp3", sources=(FILMS,)), "exp3 does not rank candidates: leave out the source films"),
        (by_id(Source("films", 3, "candidate")), "ranks candidates by 2 features, and the source films has 3"),
        (digits(policy="two_speed", sources=(FILMS,)), "items of its models by their ids: leave out"),
    ],
)
def test_sources_that_the_policy_cannot_rank_by_are_refused(application: Application, fault: str) -> None:
    """Where they are configured, with what to change."""
    check(application)
    with pytest.raises(PolicyError, match=fault):
        check_ranking(application, registry.policy_of(application))


def test_ids_that_make_an_answer_too_large_are_answered_by_default() -> None:
    """With their features, and again as those of which nothing is known; those who ask after it are answered."""
    loop = Loop({"items": computed}, by_id(Source("films", 8, "candidate"), parameters=SURE | {"features": 8.0}))
    many = ranked(loop, *(f"{number:060}" for number in range(4_096)))
    few = ranked(loop, *(f"{number:060}" for number in range(400)))
    found = loop.answer(many)
    assert (found.status, found.reason, found.decision, found.ranked) == (Status.DEFAULT, "not_ranked", None, None)
    assert found.message.startswith("4096 candidates of 8 features are too many")
    assert loop.answer(few).status is Status.COMPLETE


def test_candidates_have_a_bound_of_features_of_their_own() -> None:
    """256 for each, beside the query's 256."""
    check(digits(sources=(Source("users", 256), Source("films", 256, "candidate"))))
    with pytest.raises(DecodeError, match="features for a candidate"):
        check(digits(sources=(FILMS, Source("pages", 255, "candidate"))))


def test_thousands_of_ids_are_ranked_where_their_features_are_few() -> None:
    """A record holds 32,768 numbers of them: more are not ranked, and the message says so."""
    names = tuple(f"film-{number}" for number in range(4_096))
    features = {f"films/{name}": (number / 4_096, 0.5) for number, name in enumerate(names)}

    def look_up(key: str) -> tuple[bytes | None, int]:
        return CODEC.encode(Features(features.get(key, (0.0, 0.5)))), 1_000

    loop = ranking(look_up)
    found = loop.answer(ranked(loop, *names, top=2))
    assert found.best == ("film-4095", "film-4094")
    assert sum(found.first) == pytest.approx(1.0)
    wide = Loop({"items": computed}, wide_films(), features=look_up)
    refused = wide.answer(ranked(wide, *names[:513], top=2))
    assert (refused.status, refused.reason) == (Status.DEFAULT, "not_ranked")
    assert "513 candidates of 64 features are too many" in refused.message


def wide_films() -> Application:
    """Make the application with 64 features of each film."""
    return rated(sources=(FILMS._replace(width=64),), parameters={**SURE, "features": 64.0})
