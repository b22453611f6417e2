"""What answers say of times that cannot be right, and of objectives that are cut."""

from __future__ import annotations

import pytest

from schemas import topics
from schemas.records import Prediction, Query, Status
from streams.operators.contract import Emit, Record
from streams.operators.selection.kernel import MAX_SKEW_US, Selection, SelectionSettings
from tests.loops import CODEC, Loop, digits, row, version

NOW_US = 1_700_000_000_000_000
SECOND_US = 1_000_000
DAY_US = 86_400 * SECOND_US


def selection() -> Selection:
    """Return a selection that asks one model within 100 ms, at most 2 s."""
    kernel = Selection(CODEC, SelectionSettings(1))
    application = digits(models=("good",), policy="single", slo_ms=100.0, max_slo_ms=2_000.0)
    kernel.on_records(
        [
            Record(topics.MODELS, 0, 0, NOW_US, b"good", CODEC.encode(version("good"))),
            Record(topics.APPLICATIONS, 0, 0, NOW_US, b"digits", CODEC.encode(application)),
        ],
        NOW_US,
    )
    kernel.on_partitions({0: 0})
    return kernel


def asked(
    kernel: Selection, sent_us: int, record_us: int = NOW_US, number: int = 0, **fields: object
) -> list[Prediction]:
    """Ask a query now; returns what is answered at once."""
    query = Query(f"q{number}", "digits", row(), sent_us=sent_us, **fields)  # type: ignore[arg-type]
    record = Record(topics.QUERIES, 0, number, record_us, b"k", CODEC.encode(query))
    return [
        CODEC.decode(Prediction, effect.value)
        for effect in kernel.on_records([record], NOW_US)
        if isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS
    ]


@pytest.mark.parametrize(
    ("sent_us", "record_us", "message"),
    [
        (NOW_US - 3 * SECOND_US, NOW_US, "sent 3.0 s ago by its sender's clock"),
        (NOW_US - 150_000, NOW_US, "sent 150 ms ago by its sender's clock"),
        (NOW_US - 60 * SECOND_US, NOW_US, "sent 60 s ago by its sender's clock"),
        (NOW_US - 3_600 * SECOND_US, NOW_US, "sent 60 min ago by its sender's clock"),
        (1, NOW_US, "sent 19,676 days ago by its sender's clock"),
        (0, NOW_US - 5 * SECOND_US, "sent 5.0 s ago by its record's time"),
        (0, 0, "its record has no time: set sent_us, or have the producer stamp its records"),
        (0, -1_000, "its record has no time: set sent_us, or have the producer stamp its records"),
    ],
)
def test_a_query_that_expired_before_it_came_says_when_it_was_sent(sent_us: int, record_us: int, message: str) -> None:
    """The answer is the default, so its sender reads why."""
    (answer,) = asked(selection(), sent_us, record_us)
    assert (answer.status, answer.reason, answer.message) == (Status.DEFAULT, "expired", message)


def answered(**changes: object) -> Prediction:
    """Return the answer of a loop to one query."""
    loop = Loop({"good": lambda _: 7}, digits(models=("good",), policy="single", slo_ms=100.0, max_slo_ms=2_000.0))
    ahead_us = changes.pop("ahead_us", 0)
    assert isinstance(ahead_us, int)
    query_id = loop.query(**({"sent_us": loop.driver.now_us + ahead_us} | changes))
    loop.driver.run(0.5)
    return loop.answer(query_id)


@pytest.mark.parametrize(
    ("ahead_us", "message"),
    [
        (500_000, ""),
        (3 * SECOND_US, "sent 3.0 s in the future by its sender's clock"),
        (MAX_SKEW_US + 1, "sent 5.0 s in the future by its sender's clock"),
        (DAY_US, "sent 1,440 min in the future by its sender's clock"),
    ],
)
def test_a_sender_that_is_ahead_is_told_beside_its_answer(ahead_us: int, message: str) -> None:
    """Half a second is what clocks may differ by."""
    answer = answered(ahead_us=ahead_us)
    assert (answer.status, answer.answer, answer.message) == (Status.COMPLETE, 7, message)


@pytest.mark.parametrize(
    ("slo_ms", "message"),
    [
        (50.0, ""),
        (2_000.0, ""),
        (20_000.0, "asked for 20 s, the application allows 2.0 s (max_slo_ms)"),
        (2_500.0, "asked for 2.5 s, the application allows 2.0 s (max_slo_ms)"),
        (1e300, "asked for 11,574 days, the application allows 2.0 s (max_slo_ms)"),
    ],
)
def test_an_objective_that_is_cut_is_told_beside_its_answer(slo_ms: float, message: str) -> None:
    """What the application allows is what it has."""
    answer = answered(slo_ms=slo_ms)
    assert answer.status is Status.COMPLETE
    assert answer.message == message
    assert answer.deadline_us - answer.sent_us == min(slo_ms, 2_000.0) * 1_000


def test_an_application_whose_queries_nearly_all_expire_on_arrival_is_reported_while_they_do() -> None:
    """With the age of the last one; some that are in time among them change nothing, and many do."""
    kernel, gauge = selection(), "expired_sent_ago_us{application=digits}"
    for number in range(40):
        assert (gauge in kernel.statistics()) is (number >= 25)
        asked(kernel, NOW_US - 3 * SECOND_US, number=number)
    assert kernel.statistics()[gauge] == 3 * SECOND_US
    asked(kernel, NOW_US, number=40)
    assert gauge in kernel.statistics()
    for number in range(41, 60):
        asked(kernel, NOW_US, number=number)
    assert gauge not in kernel.statistics()
