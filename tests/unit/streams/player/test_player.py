"""Playing a trace, in virtual time: when queries leave, when feedback follows, what is counted."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from schemas.codec import Codec
from schemas.records import Feedback, Prediction, Query, Status
from streams.operators.contract import Record
from streams.player.player import LEAD_US, Play, Player
from streams.runtime.errors import BrokerUnavailableError
from streams.trace.times import LogTimes
from tests.virtual import START_US, VirtualClock, in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streams.player.score import Score

CODEC = Codec()
SECOND = 1_000_000
THEN_US = 1_700_000_000_000_000
BEGIN_US = START_US + LEAD_US


class FakeDeployment:
    """Answers each query after `took_us` with what `answer` makes of it; notes what came, and when."""

    def __init__(self, took_us: int, **answer: Any) -> None:
        self.took_us = took_us
        self.answer = answer
        self.queries: list[tuple[int, Query]] = []
        self.feedback: list[tuple[int, Feedback, str | None]] = []
        self.listener: Callable[[Sequence[Record]], None] = lambda _: None
        self.copies = 1
        self.is_away = False

    async def send(self, queries: Iterable[Query]) -> None:
        """Take queries."""
        if self.is_away:
            raise BrokerUnavailableError("away")
        for query in queries:
            self.queries.append((_now_us(), query))
            for _ in range(self.copies):
                asyncio.get_running_loop().call_later(self.took_us / 1e6, self._answer, query)

    async def send_feedback(self, feedback: Iterable[tuple[Any, str | None]]) -> None:
        """Take feedback."""
        self.feedback += [(_now_us(), one, context) for one, context in feedback]

    def subscribe(self, listener: Callable[[Sequence[Record]], None]) -> Callable[[], None]:
        """Tell one listener of answers."""
        self.listener = listener
        return lambda: None

    def _answer(self, query: Query) -> None:
        given = {"status": Status.COMPLETE, "reason": None, "deadline_us": query.sent_us + SECOND, **self.answer}
        one = prediction(query.query_id, sent_us=query.sent_us, reply_token=query.reply_token, **given)
        self.listener(
            [Record("predictions", 0, 0, 0, b"", CODEC.encode(one)), Record("predictions", 0, 1, 0, b"", b"?")]
        )


def _now_us() -> int:
    return VirtualClock().now_us()


def prediction(query_id: str, **more: Any) -> Prediction:
    """Return an answer."""
    plain = {"status": Status.COMPLETE, "reason": None, "sent_us": 0, "deadline_us": 0}
    fixed = {"application": "digits", "context": None, "decision": None, "answer": 1, "confidence": 1.0, "outputs": ()}
    return Prediction(query_id=query_id, **fixed, **{**plain, "received_us": 0, "answered_us": 0, **more})


def asked(at_s: float, query_id: str, **more: Any) -> Record:
    """Return a query of the trace."""
    query = Query(query_id, "digits", "text", reply_token="theirs", **more)
    return Record("queries", 0, 0, THEN_US + int(at_s * SECOND), b"", CODEC.encode(query))


def answered(at_s: float, query_id: str) -> Record:
    """Return an answer of the trace."""
    return Record("predictions", 0, 0, THEN_US + int(at_s * SECOND), b"", CODEC.encode(prediction(query_id)))


def told(at_s: float, query_id: str) -> Record:
    """Return feedback of the trace."""
    return Record("feedback", 0, 0, THEN_US + int(at_s * SECOND), b"", CODEC.encode(Feedback(query_id, 7)))


async def play(deployment: FakeDeployment, records: Sequence[Record], **how: Any) -> Score:
    """Play records; the clock is virtual."""
    player = Player(deployment, CODEC, records, Play(**{"speed": 1.0, "token": "ours", **how}), _now_us)
    return await player.run(asyncio.Event())


@in_virtual_time
async def test_queries_leave_at_their_times_divided_by_the_speed() -> None:
    """A slow answer does not hold up the next query."""
    deployment = FakeDeployment(took_us=90 * SECOND)
    await play(deployment, [asked(0, "a"), asked(10, "b"), asked(40, "c")], speed=20.0, drain_s=200)
    assert [query.sent_us - BEGIN_US for _, query in deployment.queries] == [0, SECOND // 2, 2 * SECOND]
    assert all(0 <= at_us - query.sent_us <= 1_000 for at_us, query in deployment.queries)


@in_virtual_time
async def test_a_clock_that_was_set_back_does_not_change_the_order() -> None:
    """A query leaves no earlier than the one before it."""
    deployment = FakeDeployment(took_us=1)
    await play(deployment, [asked(0, "a"), asked(5, "b"), asked(3, "c")])
    assert [query.query_id for _, query in deployment.queries] == ["a", "b", "c"]
    assert deployment.queries[2][1].sent_us == deployment.queries[1][1].sent_us


@in_virtual_time
async def test_feedback_follows_the_answer_after_its_recorded_delay() -> None:
    """Counted from the answer that came now, however late; its context is the query's."""
    deployment = FakeDeployment(took_us=3 * SECOND)
    score = await play(deployment, [asked(0, "a", context="ann"), answered(0.5, "a"), told(10.5, "a")], speed=10.0)
    ((at_us, feedback, context),) = deployment.feedback
    assert at_us == pytest.approx(BEGIN_US + 3 * SECOND + SECOND, abs=10_000)
    assert (feedback.query_id, feedback.label, context) == ("a", 7, "ann")
    assert score.feedback == 1


@in_virtual_time
async def test_feedback_that_was_due_before_the_answer_waits_for_it() -> None:
    """It was recorded without its answer: the delay counts from the query."""
    deployment = FakeDeployment(took_us=5 * SECOND)
    await play(deployment, [asked(0, "a"), told(1, "a")])
    assert deployment.feedback[0][0] == pytest.approx(BEGIN_US + 6 * SECOND, abs=10_000)


@in_virtual_time
async def test_feedback_without_an_answer_is_not_sent() -> None:
    """It is counted, as the query is that got none; the player does not wait for ever."""
    deployment = FakeDeployment(took_us=1)
    deployment.copies = 0
    score = await play(deployment, [asked(0, "a"), told(1, "a"), told(1, "unheard-of")], drain_s=2)
    assert deployment.feedback == []
    said = score.summary()
    assert (said["sent"], said["lost"], said["without_answer"], said["left_out"]) == (1, 1, 1, 1)


@in_virtual_time
@pytest.mark.parametrize("copies", [1, 0])
async def test_a_query_that_was_asked_twice_is_sent_twice_and_owed_one_answer(copies: int) -> None:
    """As a client asks again that has seen no answer; its feedback follows the first answer."""
    deployment = FakeDeployment(took_us=1)
    deployment.copies = copies
    score = await play(deployment, [asked(0, "a"), asked(1, "a"), told(2, "a"), asked(3, "b")], drain_s=2)
    said = score.summary()
    assert (said["sent"], said["repeated"], len(deployment.queries)) == (3, 1, 3)
    assert (said["answered"], said["lost"], said["feedback"]) == ((2, 0, 1) if copies else (0, 2, 0))
    assert said["share_in_time"] == copies


@in_virtual_time
async def test_ids_are_kept_or_made_new_and_feedback_follows_them() -> None:
    """The same run gives the same ids; another run others."""
    seen = []
    for run in (None, "one", "one", "two"):
        deployment = FakeDeployment(took_us=1)
        await play(deployment, [asked(0, "a"), answered(0, "a"), told(1, "a")], run=run)
        assert deployment.feedback[0][1].query_id == deployment.queries[0][1].query_id
        assert deployment.queries[0][1].reply_token == "ours"
        seen.append(deployment.queries[0][1].query_id)
    assert seen[0] == "a"
    assert seen[1] == seen[2]
    assert len(set(seen)) == 3


@in_virtual_time
async def test_what_came_is_counted() -> None:
    """A default output is no answer in time, nor is one behind its deadline; a second answer is one too many."""
    records = [asked(at, f"q-{at}") for at in range(10)]
    deployment = FakeDeployment(took_us=50_000)
    said = (await play(deployment, records)).summary()
    assert (said["sent"], said["answered"], said["share_in_time"], said["doubled"]) == (10, 10, 1.0, 0)
    assert said["p50_ms"] == pytest.approx(50, rel=0.03)
    said = (await play(FakeDeployment(1, status=Status.DEFAULT, reason="deadline"), records)).summary()
    assert (said["share_in_time"], said["reasons"]) == (0.0, {"deadline": 10})
    assert (await play(FakeDeployment(50_000), records, slo_us=49_000)).in_time == 0
    deployment = FakeDeployment(1)
    deployment.copies = 2
    assert (await play(deployment, records)).doubled == 10


@in_virtual_time
async def test_what_is_no_query_is_left_out() -> None:
    """As what Kafka does not take is refused."""
    broken = asked(1, "b")._replace(value=b"?")
    deployment = FakeDeployment(1)
    assert (await play(deployment, [asked(0, "a"), broken])).left_out == 1
    deployment.is_away = True
    assert (await play(deployment, [asked(0, "a")], drain_s=1)).refused == 1
    assert (await play(deployment, [])).sent == 0


def test_quantiles_are_right_to_one_percent() -> None:
    """In constant memory, over six orders of magnitude."""
    times = LogTimes()
    for time_us in range(1, 100_001):
        times.add(time_us)
    assert times.quantile_ms(0.5) == pytest.approx(50.0, rel=0.01)
    assert times.quantile_ms(0.99) == pytest.approx(99.0, rel=0.01)
    assert times.quantile_ms(1.0) == pytest.approx(100.0, rel=0.01)
    assert LogTimes().quantile_ms(0.5) is None
