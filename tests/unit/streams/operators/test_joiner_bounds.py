"""The joiner's memory: bounded in bytes, shared fairly, and nothing is given up in silence."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import pytest

from deploy.config.settings import Settings
from deploy.system.roles import WAITING_BYTES, joiner_settings
from schemas import topics
from schemas.framing import may_be_decided
from schemas.records import Application, Decision, Feedback, ModelOutput, Outcome, Prediction, Status
from streams.operators.contract import DeadLetter, Emit, Record, Skip
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.join.shadows import Shadows
from streams.operators.join.shared_buffer import SharedBuffer
from tests.loops import CODEC, model_predictions

MIB = 1 << 20
OUTPUTS = (ModelOutput("good", "1", Outcome.OK, 7, None),)


def joiner(**changes: int) -> Joiner:
    """Return a joiner of one partition that knows the applications `noisy` and `quiet`."""
    found = Joiner(CODEC, JoinerSettings(**{"partitions": 1, "window_us": 60_000_000, "early_us": 5_000_000} | changes))
    for at, name in enumerate(("noisy", "quiet")):
        value = CODEC.encode(Application(name, ("good", "bad")))
        found.on_records([Record(topics.APPLICATIONS, 0, at, 0, name.encode(), value)], 0)
    return found


def prediction(
    query_id: str, offset: int, application: str = "noisy", context: str | None = None, at_us: int = 0
) -> Record:
    """Make the record of a decided prediction."""
    decision = Decision((0,), 0, application, "exp3", ("good", "bad"), (0.5, 0.5))
    value = Prediction(query_id, application, context, decision, Status.COMPLETE, None, 7, 1.0, OUTPUTS, 0, 0, 0, at_us)
    return Record(topics.PREDICTIONS, 0, offset, at_us, None, CODEC.encode(value))


def told(query_id: str, offset: int, label: object = 7, at_us: int = 0, headers: int = 0) -> Record:
    """Make the record of feedback."""
    value = CODEC.encode(Feedback(query_id, label))  # type: ignore[arg-type]
    return Record(topics.FEEDBACK, 0, offset, at_us, None, value, (("x", b"y" * headers),) if headers else ())


def causes(effects: object) -> list[str]:
    """Return the causes of dead letters, and the reasons of what was skipped."""
    assert isinstance(effects, list)
    return [e.cause if isinstance(e, DeadLetter) else e.reason for e in effects if isinstance(e, DeadLetter | Skip)]


def test_one_holder_may_take_half_of_a_room_and_the_next_has_its_share() -> None:
    """Whoever comes late finds room; all of it is free again in the end."""
    room = SharedBuffer(records=90, large_bytes=MIB)
    taken = {name: sum(room.take(name, 100) for _ in range(90)) for name in ("first", "second", "third")}
    assert taken == {"first": 45, "second": 23, "third": 11}
    for name, count in taken.items():
        for _ in range(count):
            room.give_back(name, 100)
    assert (room.used, room.used_large_bytes, room.is_pressed) == (0, 0, False)


def test_an_application_with_large_predictions_takes_no_room_from_others() -> None:
    """Its own are skipped and counted, and feedback on them says so; the other one learns as before."""
    alone = joiner(large_bytes=MIB)
    flood = [prediction(f"n{n}", n, context="x" * 4_000) for n in range(1_000)]
    skipped = alone.on_records(flood, 0)
    kept = 1_000 - len(skipped)
    assert 60 < kept < 100
    assert set(causes(skipped)) == {"over_limit"}
    alone.on_records([prediction("q", 1_000, "quiet", "y" * 1_000)], 0)

    (refused,) = alone.on_records([told("n999", 0)], 1)
    (joined,) = alone.on_records([told("q", 1)], 1)
    assert causes([refused]) == ["over_limit"]
    assert isinstance(joined, Emit)
    assert alone.statistics()["over_limit_total{of=predictions,application=noisy}"] == 1_000 - kept
    assert alone.statistics()["large_bytes{of=predictions}"] < MIB // 4 + 2_048  # half of the room, and the other's

    alone.on_timer(60_000_000)
    assert alone.statistics()["large_bytes{of=predictions}"] == 0
    assert alone.on_records([prediction("again", 1_001, context="x" * 4_000)], 61_000_000) == []


def test_feedback_that_floods_before_its_predictions_is_a_dead_letter_and_known_predictions_learn_on() -> None:
    """Nothing is lost in silence: each is kept, or refused with its cause."""
    alone = joiner(feedback=100)
    alone.on_records([prediction("q", 0, "quiet")], 0)
    effects = alone.on_records([told(f"junk{n}", n) for n in range(1_000)], 0)
    assert causes(effects) == ["over_limit"] * 950
    assert alone.statistics()["over_limit_total{of=feedback,partition=0}"] == 950
    (joined,) = alone.on_records([told("q", 1_000)], 0)
    assert isinstance(joined, Emit)
    assert causes(alone.on_timer(6_000_000)) == ["unmatched"] * 50
    assert alone.on_records([told("later", 1_001)], 7_000_000) == []


def test_500_feedbacks_of_nearly_2_mb_and_as_many_of_half_one_stay_within_64_mib() -> None:
    """What is too large is refused when it is read; of what is large, some waits."""
    alone = joiner()
    values = [b"\xc3\x01" + bytes(8) + b"x" * 1_900_000, CODEC.encode(Feedback("q", "x" * 500_000))]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    found = []
    for value in values:
        for n in range(500):
            mine = bytearray(value)
            mine[12:14] = f"{n:02}"[-2:].encode()
            record = Record(topics.FEEDBACK, 0, n, 0, None, bytes(mine), (("x", b"y" * 10_000),))
            found += causes(alone.on_records([record], 0))
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert grown < 64 * MIB
    assert len(found) + alone.statistics()["feedback_waiting"] >= 600
    assert alone.statistics()["large_bytes{of=feedback}"] <= 16 * MIB


def test_what_waits_takes_less_than_half_a_kib_a_record() -> None:
    """By which the settings' MiB are divided: a prediction of five models in a context, and early feedback."""
    alone, count, arms = joiner(), 10_000, tuple(f"model-{number}" for number in range(5))
    value = CODEC.decode(Prediction, prediction("q", 0).value)

    def waiting(number: int) -> Record:
        decided = Decision((0,), 12_345, f"noisy/user-{number}", "exp3(eta=0.1)", arms, (0.2,) * 5)
        one = value._replace(query_id=f"{number:032x}", context=f"user-{number}", decision=decided)
        return Record(topics.PREDICTIONS, 0, number, 0, None, CODEC.encode(one))

    tracemalloc.start()
    sizes = [tracemalloc.get_traced_memory()[0]]
    for records in (waiting, lambda number: told(f"x{number:031x}", number)):
        for start in range(0, count, 1_000):
            assert alone.on_records([records(number) for number in range(start, start + 1_000)], 0) == []
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    (predictions, feedback) = (after - before for before, after in pairwise(sizes))
    assert 256 < predictions / count < WAITING_BYTES
    assert 256 < feedback / count < WAITING_BYTES


@pytest.mark.parametrize(
    ("given", "predictions", "feedback"),
    [({}, 3_000_320, 401_408), ({"waiting_mib": 8, "early_mib": 1}, 16_384, 2_048)],
)
def test_how_much_may_wait_is_set_in_mib(given: dict[str, int], predictions: int, feedback: int) -> None:
    """Half a KiB for each; by default three million predictions wait."""
    settings = joiner_settings(Settings.model_validate({"joiner": given}))
    assert (settings.predictions, settings.feedback) == (predictions, feedback)


def test_of_early_feedback_no_foreign_headers_are_kept() -> None:
    """They are whatever somebody sent; key and value are what a dead letter needs."""
    alone = joiner()
    alone.on_records([told("later", 0, headers=10_000)], 0)
    (letter,) = alone.on_timer(6_000_000)
    assert isinstance(letter, DeadLetter)
    assert (letter.record.headers, letter.record.value) == ((), told("later", 0).value)


def test_feedback_that_is_none_is_refused_when_it_is_read() -> None:
    """The prediction that comes afterwards is not to blame, and waits."""
    alone = joiner()
    broken = told("q", 0)
    assert broken.value is not None
    effects = alone.on_records([broken._replace(value=broken.value[:-1]), prediction("q", 0)], 0)
    assert causes(effects) == ["truncated"]
    (joined,) = alone.on_records([told("q", 1)], 0)
    assert isinstance(joined, Emit)


@pytest.mark.parametrize("context", [None, "user", "ü" * 5_000])
@pytest.mark.parametrize("query_id", ["q", "q" * 64, "ü" * 300])
def test_a_prediction_without_a_decision_does_not_wait(context: str | None, query_id: str) -> None:
    """There is nothing to learn from it, whenever its feedback comes."""
    alone = joiner()
    decided = CODEC.decode(Prediction, prediction(query_id, 0, context=context[:1_000] if context else None).value)
    value = CODEC.encode(decided._replace(decision=None))
    assert may_be_decided(CODEC.encode(decided), query_id, "noisy")
    assert not may_be_decided(value, query_id, "noisy")
    early = told(query_id, 0)
    effects = [] if len(query_id) > 64 else alone.on_records([early], 0)
    effects += alone.on_records([Record(topics.PREDICTIONS, 0, 0, 0, None, value)], 0)
    effects += alone.on_records([told(query_id, 1)], 0)

    expected = ["no_decision", "nothing_to_learn", "nothing_to_learn"]
    assert causes(effects) == (expected if len(query_id) <= 64 else expected[:2])
    assert alone.statistics()["predictions_waiting"] == 0
    assert alone.next_deadline() is None or alone.on_timer(6_000_000) == []


def test_ids_too_long_to_wait_are_refused() -> None:
    """Ids stay in lists of times for a while; a UUID has 36 bytes."""
    alone = joiner()
    found = alone.on_records([prediction("q" * 600, 0), told("p" * 600, 0)], 0)
    assert causes(found) == ["over_limit", "over_limit"]


def test_feedback_with_an_id_too_long_is_told_so_whether_it_comes_first_or_not() -> None:
    """Nobody has too large a share of the room; a shorter id is what helps."""
    alone = joiner()
    found = alone.on_records([prediction("q" * 600, 0), told("q" * 600, 0), told("p" * 600, 1)], 0)
    refused = [effect for effect in found if isinstance(effect, DeadLetter)]
    assert [effect.cause for effect in refused] == ["over_limit", "over_limit"]
    for effect in refused:
        assert effect.message == "its query id has more than 512 bytes, and such do not wait: ask with shorter ones"


def test_what_one_model_answers_too_late_takes_no_room_from_another() -> None:
    """Its own first outputs are forgotten, and counted."""
    kept = Shadows(SharedBuffer(1_000, 100_000))
    kept.keep(model_predictions("quiet", {"q": 7}), lambda _: False, 0, is_late=True)
    for number in range(100):
        kept.keep(model_predictions("noisy", {f"n{number}": "x" * 5_000}), lambda _: False, 0, is_late=True)
    assert len(kept.get("q")) == len(kept.get("n99")) == 1
    assert kept.get("n0") == ()
    assert kept.forgotten == 101 - len(kept)
    assert kept.large_bytes <= 50_000
    for number in range(100):
        kept.pop(f"n{number}")
    assert (len(kept), kept.large_bytes) == (1, 0)


def test_partitions_that_are_taken_away_give_their_room_back() -> None:
    """Whether others stay or not."""
    alone = joiner(partitions=2, predictions=4)
    alone.on_partitions({0: 0, 1: 0})
    records = [prediction("a", 0), prediction("b", 0)._replace(partition=1), prediction("c", 1)._replace(partition=1)]
    assert causes(alone.on_records(records, 0)) == ["over_limit"]
    alone.on_partitions({1: None})
    assert alone.on_records([prediction("d", 1)], 0) == []
    alone.on_partitions({0: None})
    assert alone.room.used == 0


FEEDBACK = {(topics.FEEDBACK, 0): 1}


def test_a_window_stays_open_for_feedback_that_is_still_unread() -> None:
    """It was written in time; when it has been read, what is left ends."""
    alone = joiner()
    alone.on_records([prediction("a", 0, at_us=1), prediction("b", 1, at_us=1)], 1)
    assert alone.on_timer(62_000_000, FEEDBACK) == []
    assert alone.next_deadline() == 63_000_000
    (joined,) = alone.on_records([told("a", 0, at_us=30_000_000)], 64_000_000)
    assert isinstance(joined, Emit)
    assert causes(alone.on_timer(65_000_000)) == ["no_feedback"]


def test_a_window_ends_once_feedback_has_been_read_beyond_it_and_one_window_later_at_the_latest() -> None:
    """Feedback that cannot be read must not keep everything for ever."""
    alone = joiner()
    alone.on_records([prediction("a", 0, at_us=1), prediction("b", 1, at_us=30_000_000)], 31_000_000)
    alone.on_records([told("other", 0)], 68_000_000)
    assert alone.on_timer(70_000_000, FEEDBACK) == []
    alone.on_records([told("another", 1)], 71_000_000)
    assert causes(alone.on_timer(72_000_000, FEEDBACK)) == ["no_feedback"]
    assert causes(alone.on_timer(151_000_000, FEEDBACK)) == ["unmatched", "unmatched", "no_feedback"]


def test_feedback_with_a_time_to_come_ends_no_window() -> None:
    """Clients stamp their records: one clock that is ahead must not make the feedback of all others late."""
    alone = joiner()
    alone.on_records([prediction("a", 0, at_us=1)], 1)
    alone.on_records([told("other", 0, at_us=90_000_000)], 61_000_000)
    assert alone.on_timer(62_000_000, {(topics.FEEDBACK, 0): 1_000}) == []


def test_after_a_restart_late_feedback_is_a_dead_letter_and_a_copy_is_skipped() -> None:
    """Predictions that were complete tell by their time which of the two it is."""
    alone = joiner()
    alone.on_partitions({0: 1})
    alone.on_records([prediction("q", 0, at_us=1)], 70_000_000)
    effects = alone.on_records([told("q", 0, at_us=59_000_000), told("q", 1, at_us=62_000_000)], 71_000_000)
    assert causes(effects) == ["duplicate_feedback", "late"]
