"""The prediction cache: what was asked before is not asked again, and what is in flight is asked once."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies import draw
from schemas import topics
from schemas.records import NamedTensors, Outcome, Query, Tensor
from schemas.sizes import MAX_BYTES
from streams.operators.contract import Record
from streams.operators.selection.cache import ENTRY_BYTES
from streams.operators.selection.pending import Pending
from tests.cached import CODEC, NOW, Cached, said
from tests.loops import row

if TYPE_CHECKING:
    from schemas.records import Input


def test_an_input_seen_before_is_answered_without_its_model() -> None:
    """The first query asks, the second has its answer in the same call."""
    cached = Cached("m")
    assert cached.ask("a", row(1.0)) == ["m?a"]
    assert cached.land("a", "m") == ["a=7"]
    assert cached.ask("b", row(1.0)) == ["b=7"]
    assert cached.counted() == (1, 0, 1)


def test_an_output_that_is_known_takes_no_time_whatever_its_model_does() -> None:
    """So `timely` counts on it, where it asks for no other output of that model."""
    cached = Cached("m", policy="timely")
    assert cached.ask("a", row(1.0)) == ["m?a"]
    assert cached.land("a", "m") == ["a=7"]
    assert cached.ask("b", row(2.0)) == ["m?b"]
    assert cached.wait(0.15) == ["b=deadline"]
    assert cached.ask("c", row(3.0)) == ["c=no_model_in_time"]
    assert cached.ask("d", row(1.0)) == ["d=7"]
    assert cached.ask("e", row(2.0)) == ["e=no_model_in_time"]  # that is awaited, and not there


def test_without_a_cache_every_query_is_asked() -> None:
    """Nought bytes switch it off: no figures, no memory."""
    cached = Cached("m", cache_bytes=0)
    assert cached.ask("a", row(1.0)) == ["m?a"]
    cached.land("a", "m")
    assert cached.ask("b", row(1.0)) == ["m?b"]
    assert not [name for name in cached.kernel.statistics() if name.startswith("cache")]


def test_identical_queries_in_flight_share_one_model_query() -> None:
    """Also those of another partition; one output answers them all."""
    cached = Cached("m")
    assert cached.ask("a", row(1.0), partition=0) == ["m?a"]
    assert cached.ask("b", row(1.0), partition=0) == cached.ask("c", row(1.0), partition=3) == []
    assert cached.land("a", "m") == ["a=7", "b=7", "c=7"]
    assert cached.counted() == (0, 2, 1)


@pytest.mark.parametrize(
    "other",
    [
        Tensor("float32", (2, 1), row(1.0).data + row(2.0).data),
        Tensor("int32", (1, 2), row(1.0).data + row(2.0).data),
        Tensor("float32", (1, 2), row(1.0).data + row(3.0).data),
        row(1.0).data + row(2.0).data,
        NamedTensors.named({"a": np.zeros(2, np.float32), "b": np.zeros(2, np.float32)}),
        NamedTensors.named({"a": np.zeros(2, np.float32), "c": np.zeros(2, np.float32)}),
        NamedTensors.named({"a": np.zeros(2, np.float32), "b": np.zeros((2, 1), np.float32)}),
        "text",
        b"text",
    ],
)
def test_inputs_that_differ_in_anything_are_asked(other: Input) -> None:
    """Element type, shape, bytes, and text or raw: all of it is the key."""
    cached = Cached("m")
    named = NamedTensors.named({"a": np.zeros(2, np.float32), "b": np.ones(2, np.float32)})
    seen: tuple[Input, ...] = (Tensor("float32", (1, 2), row(1.0).data + row(2.0).data), "other", b"texts", named)
    for number, given in enumerate(seen):
        cached.ask(f"seen{number}", given)
        cached.land(f"seen{number}", "m")
    assert cached.ask("a", other) == ["m?a"]
    cached.land("a", "m", answer=5)
    assert cached.ask("b", other) == ["b=5"]


def test_a_new_version_never_sees_an_old_answer() -> None:
    """Nor does another package of the same version; going back finds what was there."""
    cached = Cached("m")
    cached.ask("a", row(1.0))
    cached.land("a", "m")
    cached.deploy("m", "2")
    assert cached.ask("b", row(1.0)) == ["m?b"]
    assert cached.land("b", "m", answer=8, version="2") == ["b=8"]
    cached.deploy("m", "2", digest="other")
    assert cached.ask("c", row(1.0)) == ["m?c"]
    cached.deploy("m", "1")
    assert cached.ask("d", row(1.0)) == ["d=7"]


def test_an_old_worker_does_not_answer_for_the_new_version() -> None:
    """While versions change, whoever waits gets what comes, but it is not kept."""
    cached = Cached("m")
    cached.deploy("m", "2")
    cached.ask("a", row(1.0))
    cached.ask("b", row(1.0))
    assert cached.land("a", "m", version="1") == ["a=7", "b=7"]
    assert cached.ask("c", row(1.0)) == ["m?c"]


@pytest.mark.parametrize(("outcome", "reason"), [(Outcome.FAILED, "model_failed"), (Outcome.INVALID, "invalid_input")])
def test_a_failure_is_shared_but_not_kept(outcome: Outcome, reason: str) -> None:
    """The same input at the same time fails alike; the next one is tried."""
    cached = Cached("m")
    cached.ask("a", row(1.0))
    cached.ask("b", row(1.0))
    assert cached.land("a", "m", outcomes=(outcome,)) == [f"a={reason}", f"b={reason}"]
    assert cached.ask("c", row(1.0)) == ["m?c"]


def test_who_waited_for_an_output_that_expired_is_asked_for_itself() -> None:
    """The younger query may still be in time; others that waited now wait for it."""
    cached = Cached("m")
    cached.ask("a", row(1.0))
    cached.wait(0.05)
    cached.ask("b", row(1.0))
    cached.ask("c", row(1.0))
    assert cached.land("a", "m", outcomes=(Outcome.EXPIRED,)) == ["a=expired_in_queue", "m?b"]
    assert cached.land("b", "m") == ["b=7", "c=7"]


def test_a_late_output_still_fills_the_cache() -> None:
    """The deadline was kept without it, the next query has it."""
    cached = Cached("m")
    cached.ask("a", row(1.0))
    assert cached.wait(0.2) == ["a=deadline"]
    assert cached.land("a", "m") == []
    assert cached.ask("b", row(1.0)) == ["b=7"]


def test_an_overdue_model_query_is_sent_again_and_either_output_answers() -> None:
    """Nobody waits for a worker that has gone; if it was only slow, its output is good."""
    cached = Cached("m")
    cached.ask("a", row(1.0))
    cached.wait(0.2)
    assert cached.ask("b", row(1.0)) == ["m?b"]
    assert cached.ask("c", row(1.0)) == []
    assert cached.land("a", "m") == ["b=7", "c=7"]
    assert cached.land("b", "m", answer=9) == []
    assert cached.ask("d", row(1.0)) == ["d=7"]


def test_an_overdue_output_that_failed_leaves_the_younger_one_to_come() -> None:
    """What had expired in the queue says nothing about the query sent after it, however often that happens."""
    cached = Cached("m")
    for query_id in ("a", "b", "c"):
        assert cached.ask(query_id, row(1.0)) == [f"m?{query_id}"]
        cached.wait(0.2)
    cached.ask("d", row(1.0))
    assert cached.land("a", "m", outcomes=(Outcome.EXPIRED,)) == []
    assert cached.land("b", "m", outcomes=(Outcome.EXPIRED,)) == []
    assert cached.land("d", "m") == ["d=7"]


def test_who_was_answered_by_default_is_not_kept_while_a_model_is_silent() -> None:
    """An hour without the model costs no more memory than a second."""
    cached = Cached("m")
    alive = []
    for number in range(3):
        cached.ask(f"a{number}", row(1.0))
        cached.ask(f"b{number}", row(1.0))
        cached.wait(0.2)
        gc.collect()
        alive.append(sum(type(one) is Pending for one in gc.get_objects()))
    assert alive[-1] == alive[1]


def test_an_ensemble_asks_only_the_models_that_are_not_known() -> None:
    """A version that is new to one model costs that model alone a query."""
    cached = Cached("m", "n")
    assert cached.ask("a", row(1.0)) == ["m?a", "n?a"]
    cached.land("a", "m", "n")
    cached.deploy("n", "2")
    assert cached.ask("b", row(1.0)) == ["n?b"]
    assert cached.land("b", "n", version="2") == ["b=7"]


def test_an_ensemble_waits_for_two_queries_and_for_none_of_them_in_vain() -> None:
    """Its models may be in flight for different queries; both may come to nothing."""
    cached = Cached("m", "n")
    cached.ask("a", row(1.0))
    cached.ask("b", row(1.0))
    assert cached.land("a", "m", outcomes=(Outcome.EXPIRED,)) == ["m?b"]
    assert cached.land("a", "n", outcomes=(Outcome.EXPIRED,)) == ["a=expired_in_queue", "n?b"]
    assert cached.land("b", "m", "n") == ["b=7"]


def test_the_least_recently_used_input_is_forgotten_first() -> None:
    """Room for two: what was used again stays."""
    cached = Cached("m", cache_bytes=2 * (ENTRY_BYTES + 4))
    for query_id, value in (("a", 1.0), ("b", 2.0), ("c", 1.0), ("d", 3.0)):
        cached.ask(query_id, row(value))
        cached.land(query_id, "m")
    assert cached.ask("e", row(1.0)) == ["e=7"]
    assert cached.ask("f", row(2.0)) == ["m?f"]
    assert cached.kernel.statistics()["cache_entries"] == 2


def test_who_waits_for_an_entry_that_is_forgotten_is_asked_for_itself() -> None:
    """What is in flight counts, too; nobody loses an answer to a cache that is too small."""
    cached = Cached("m", cache_bytes=ENTRY_BYTES + 4)
    cached.ask("a", row(1.0))
    cached.ask("b", row(1.0))
    assert cached.ask("c", row(2.0)) == ["m?c", "m?b"]
    assert cached.land("a", "m") == ["a=7"]
    assert cached.land("b", "m") == ["b=7"]
    assert cached.land("c", "m") == ["c=7"]


def test_an_input_larger_than_the_cache_is_asked_and_not_kept() -> None:
    """It would drive out everything else."""
    cached = Cached("m", cache_bytes=2 * ENTRY_BYTES)
    cached.ask("a", row(1.0))
    cached.land("a", "m")
    for query_id in ("b", "c"):
        assert cached.ask(query_id, bytes(2 * ENTRY_BYTES)) == [f"m?{query_id}"]
    assert cached.ask("d", row(1.0)) == ["d=7"]


def test_who_waits_for_a_partition_that_goes_is_asked_for_itself() -> None:
    """The output goes to the partition's new owner; queries of the partitions that stay are asked at once."""
    cached = Cached("m")
    cached.ask("a", row(1.0), partition=0)
    cached.ask("b", row(1.0), partition=1)
    cached.kernel.on_partitions({0: None})
    assert cached.kernel.next_deadline() == 0
    assert cached.wait(0) == ["m?b"]
    assert cached.land("b", "m", partition=1) == ["b=7"]


def test_an_input_too_large_for_the_models_query_is_refused_to_all_who_ask() -> None:
    """Who waited for the first is refused as well, and each is answered once."""
    cached = Cached("m", "n", cache_bytes=4 * MAX_BYTES)
    room = MAX_BYTES - len(CODEC.encode(Query("a", "digits", bytes(500_000)))) + 500_000
    poll = [CODEC.encode(Query(name, "digits", bytes(room))) for name in ("a", "b")]
    effects = cached.kernel.on_records([Record(topics.QUERIES, 0, 0, NOW, None, value) for value in poll], NOW)
    assert sorted(said(effects)) == ["a=invalid_input", "b=invalid_input"]
    assert cached.kernel.next_deadline() != 0


def test_a_query_read_again_after_its_partition_came_back_has_its_answer() -> None:
    """What was learnt before the rebalance still holds; nothing waits for outputs that went elsewhere."""
    cached = Cached("m")
    cached.ask("a", row(1.0))
    cached.land("a", "m")
    cached.ask("b", row(2.0))
    cached.kernel.on_partitions({0: 0})
    assert cached.ask("a", row(1.0)) == ["a=7"]
    assert cached.ask("b", row(2.0)) == ["m?b"]


def test_a_canary_never_sees_what_the_other_version_answered_nor_the_other_way_round() -> None:
    """The same draw that sends a query to a version looks it up there."""
    cached, shares = Cached("m"), {"2": 0.5}
    cached.deploy("m", "1", shares=shares)
    stable, more, canary, another = _drawn(shares, "", 2) + _drawn(shares, "2", 2)
    assert cached.ask(stable, row(1.0)) == [f"m?{stable}"]
    assert cached.ask(canary, row(1.0)) == [f"m?{canary}"]
    assert cached.land(stable, "m", answer=7) == [f"{stable}=7"]
    assert cached.land(canary, "m", answer=8, version="2") == [f"{canary}=8"]
    assert cached.ask(more, row(1.0)) == [f"{more}=7"]
    assert cached.ask(another, row(1.0)) == [f"{another}=8"]


def test_a_canary_that_is_deployed_anew_never_sees_what_one_of_its_name_answered() -> None:
    """Its package may be another, which the record of the serving version does not say."""
    cached, shares = Cached("m"), {"2": 0.5}
    cached.deploy("m", "1", shares=shares)
    before, after = _drawn(shares, "2", 2)
    cached.ask(before, row(1.0))
    cached.land(before, "m", answer=8, version="2")
    cached.deploy("m", "1")
    cached.deploy("m", "1", shares=shares)
    assert cached.ask(after, row(1.0)) == [f"m?{after}"]


def test_a_query_that_names_a_version_is_asked() -> None:
    """What is remembered may be another's, and what it brings is not kept for those that name none."""
    cached = Cached("m")
    cached.ask("a", row(1.0))
    cached.land("a", "m")
    assert cached.ask("b", row(1.0), version="2") == ["m?b"]
    assert cached.land("b", "m", answer=8, version="2") == ["b=8"]
    assert cached.ask("c", row(1.0)) == ["c=7"]


def test_a_model_whose_version_the_application_names_is_asked() -> None:
    """As if each of its queries did; other models of the application are remembered."""
    cached = Cached("m", "n", versions={"m": "nightly"})
    cached.ask("a", row(1.0))
    cached.land("a", "m", "n")
    assert cached.ask("b", row(1.0)) == ["m?b"]


def test_two_clients_that_use_one_id_at_once_have_their_own_answers_remembered() -> None:
    """Each output is kept under the input that it answers."""
    cached = Cached("m")
    assert cached.ask("id", row(1.0), token="one") == ["m?id"]
    assert cached.ask("id", row(2.0), token="other") == ["m?id@2"]
    assert cached.land("id", "m", answer=1) == ["id=1"]
    assert cached.land("id@2", "m", answer=2) == ["id=2"]
    assert cached.ask("a", row(2.0)) == ["a=2"]
    assert cached.ask("b", row(1.0)) == ["b=1"]


def test_an_id_that_is_used_again_does_not_take_the_output_that_came_too_late_for_the_first() -> None:
    """The first has been answered by default; what its model says at last is about another input."""
    cached = Cached("m", "other")
    assert cached.ask("id", row(1.0), token="one") == ["m?id", "other?id"]
    assert cached.wait(0.2) == ["id=deadline"]
    assert cached.ask("id", row(2.0), token="other") == ["m?id@2", "other?id@2"]
    assert cached.land("id", "m", "other", answer=1) == []
    assert cached.land("id@2", "m", "other", answer=2) == ["id=2"]
    assert cached.ask("a", row(2.0)) == ["a=2"]
    assert cached.ask("b", row(1.0)) == ["b=1"]


def _drawn(shares: dict[str, float], version: str, count: int) -> list[str]:
    """Return ids of queries that are drawn for a version."""
    ids = (f"q{number}" for number in range(100))
    return [query_id for query_id in ids if draw.version(query_id, shares) == version][:count]
