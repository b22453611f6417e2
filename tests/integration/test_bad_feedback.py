"""Bad feedback and bad predictions: each has its documented outcome, and the joiner's partition moves on.

One deployment serves the whole module: one partition on the circle of data, windows of a second, and early feedback
waits eight.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pytest
import pytest_asyncio

from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Feedback,
    JoinStatus,
    ModelOutput,
    Observation,
    Observations,
    Outcome,
    Prediction,
    Query,
    Status,
    Tensor,
)
from tests.deployments import PATIENT_MS, Dead, Deployed, Toy, deployed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from schemas.records import Value

pytestmark = pytest.mark.asyncio(loop_scope="module")

WINDOW_S = 1
EARLY_S = 8  # a report of what came too early arrives meanwhile, on a busy machine, too
SINGLE = {"models": ["parity"], "policy": "single", "slo_ms": PATIENT_MS, "default_output": -1}
APPLICATIONS = {
    "sums": SINGLE,
    "brief": {**SINGLE, "window_s": WINDOW_S},
    "assumed": {**SINGLE, "window_s": WINDOW_S, "default_loss": 0.5},
    "graded": {**SINGLE, "loss": "given"},
    "measured": {**SINGLE, "loss": "squared"},
    "priced": {**SINGLE, "loss": {"cost": {0: {1: 3}, 1: {0: 5}}, "unit": "EUR"}, "max_weight": 4},
    "own": {**SINGLE, "loss": "tests.toys:apart", "span": 10},
}
TWO = Tensor.of(np.array([1, 1], np.float32))
CODEC = Codec()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def there(
    kafka: Broker, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Deployed]:
    """Serve the parity of two numbers under several kinds of loss and window."""
    prefix, folder = f"bad-feedback-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("bad-feedback")
    toys = {"parity": Toy("tests.toys:parity", np.zeros((2, 2), np.float32))}
    more = {"partitions": 1, "joiner": {"early_s": EARLY_S}}
    async with deployed(kafka, redis_server.url, prefix, folder, toys, APPLICATIONS, **more) as deployment:
        yield deployment


async def neighbours_learn(there: Deployed) -> None:
    """Feedback around the bad one is joined at once."""
    prediction = await there.client.predict("sums", TWO)
    await there.client.feedback(prediction, label=0)
    found = await joined(there, prediction.query_id)
    assert (found.losses, found.loss, found.status) == ((0.0,), 0.0, JoinStatus.JOINED)


async def joined(there: Deployed, query_id: str) -> Observation:
    """Wait for the observation of a query."""
    found = await there.watch.until(lambda: observations(there, query_id), f"no observation of {query_id}")
    return found[0]


def observations(there: Deployed, query_id: str) -> list[Observation]:
    """Return what was observed about a query."""
    log = there.watch.decoded(Observations, topics.OBSERVATIONS)
    return [seen for several in log for seen in several.items if seen.query_id == query_id]


async def dead(there: Deployed, topic: str, value: bytes) -> Dead:
    """Wait for the dead letter with these bytes."""
    found = await there.watch.until(lambda: [d for d in there.watch.dead(topic) if d.value == value], "no dead letter")
    assert len(found) == 1
    return found[0]


async def test_feedback_for_a_query_nobody_asked_is_a_dead_letter(there: Deployed) -> None:
    """It waits for its prediction as long as the settings say, then it is `unmatched`; it holds up nobody meanwhile."""
    there.put_record(topics.FEEDBACK, Feedback("never-asked", 1), key=b"\xff")
    await neighbours_learn(there)
    letter = await dead(there, topics.FEEDBACK, CODEC.encode(Feedback("never-asked", 1)))
    assert (letter.cause, letter.key, letter.headers["group"]) == ("unmatched", b"\xff", "joiner")
    await there.watch.all_committed("joiner", topics.FEEDBACK)


async def test_the_second_feedback_is_skipped_and_counted(there: Deployed) -> None:
    """What was said first is learnt, once; the next two are counted in the reports."""
    prediction = await there.client.predict("sums", TWO)
    for label in (0, 1, 1):
        await there.client.feedback(prediction, label=label)
    assert (await joined(there, prediction.query_id)).loss == 0.0
    await there.watch.until(lambda: there.watch.counter("joiner", "skipped_total{reason=duplicate_feedback}") == 2)
    await neighbours_learn(there)
    assert len(observations(there, prediction.query_id)) == 1
    await there.watch.all_committed("joiner", topics.FEEDBACK)


async def test_feedback_before_its_prediction_waits_for_it(there: Deployed) -> None:
    """Some truths are known before the answer; a second one before it is a duplicate."""
    skipped = there.watch.counter("joiner", "skipped_total{reason=duplicate_feedback}")
    for label in (0, 0, 1):
        there.put_record(topics.FEEDBACK, Feedback("foretold", label))
    await there.watch.until(
        lambda: there.watch.counter("joiner", "skipped_total{reason=duplicate_feedback}") > skipped,
        "the second one is counted while the first one waits",
    )
    there.put_record(topics.QUERIES, Query("foretold", "sums", TWO))
    assert (await joined(there, "foretold")).loss == 0.0
    await neighbours_learn(there)


async def test_wrong_feedback_before_its_prediction_does_not_shorten_the_window(there: Deployed) -> None:
    """It is a dead letter as soon as it can be judged; the right one is joined after the time of early ones is over."""
    wrong, unknown = Feedback("misforetold", "odd"), Feedback("never-asked-either", 1)
    there.put_record(topics.FEEDBACK, wrong)
    there.put_record(topics.FEEDBACK, unknown)
    there.put_record(topics.QUERIES, Query("misforetold", "sums", TWO))
    assert (await dead(there, topics.FEEDBACK, CODEC.encode(wrong))).cause == "invalid_feedback"
    assert (await dead(there, topics.FEEDBACK, CODEC.encode(unknown))).cause == "unmatched"
    there.put_record(topics.FEEDBACK, Feedback("misforetold", 0))
    assert (await joined(there, "misforetold")).loss == 0.0


async def test_a_label_that_is_no_class_and_a_weight_too_large_teach_nothing(there: Deployed) -> None:
    """The right one follows; its observation says the part of the worst mistake, its worth and its weight."""
    prediction = await there.client.predict("priced", TWO)  # the answer is 0
    for wrong, cause in ((Feedback("", 7), "unknown_label"), (Feedback("", 1, weight=5.0), "invalid_feedback")):
        told = wrong._replace(query_id=prediction.query_id)
        there.put_record(topics.FEEDBACK, told, key=prediction.query_id.encode())
        assert (await dead(there, topics.FEEDBACK, CODEC.encode(told))).cause == cause
    await there.client.feedback(prediction, label=1, weight=2.0)
    found = await joined(there, prediction.query_id)
    assert (found.losses, found.worth, found.weight) == ((1.0,), 5.0, 0.5)
    cost = "cost_total{application=priced}"
    await there.watch.until(lambda: there.watch.counter("learner", cost) == 2.5, "the learner counts what it cost")


async def test_a_loss_of_ones_own_judges(there: Deployed) -> None:
    """It is imported by every role that follows applications; what it refuses is a dead letter."""
    prediction = await there.client.predict("own", TWO)
    text = Feedback(prediction.query_id, "seven")
    there.put_record(topics.FEEDBACK, text, key=prediction.query_id.encode())
    assert (await dead(there, topics.FEEDBACK, CODEC.encode(text))).cause == "invalid_feedback"
    await there.client.feedback(prediction, label=4)
    found = await joined(there, prediction.query_id)
    assert (found.losses, found.worth, found.span) == ((0.4,), 10.0, 10.0)


async def test_feedback_after_the_window_is_a_dead_letter(there: Deployed) -> None:
    """Without feedback nothing is learnt; what comes later is `late`, key and bytes as they were."""
    prediction = await there.client.predict("brief", TWO, context="ann")
    unjoined = "unjoined_total{application=brief}"
    await there.watch.until(lambda: there.watch.counter("joiner", unjoined) == 1, "the window ends")
    late = Feedback(prediction.query_id, 0)
    there.put_record(topics.FEEDBACK, late, key=b"ann")
    letter = await dead(there, topics.FEEDBACK, CODEC.encode(late))
    assert (letter.cause, letter.key) == ("late", b"ann")
    assert observations(there, prediction.query_id) == []
    await neighbours_learn(there)
    await there.watch.all_committed("joiner", topics.FEEDBACK)


async def test_without_feedback_the_default_loss_is_learnt(there: Deployed) -> None:
    """An application may say what silence means; feedback after that changes nothing."""
    prediction = await there.client.predict("assumed", TWO)
    found = await joined(there, prediction.query_id)
    assert (found.losses, found.status) == ((0.5,), JoinStatus.DEFAULT)
    late = Feedback(prediction.query_id, 0)
    there.put_record(topics.FEEDBACK, late)
    assert (await dead(there, topics.FEEDBACK, CODEC.encode(late))).cause == "late"
    assert len(observations(there, prediction.query_id)) == 1


@pytest.mark.parametrize(
    ("application", "label", "loss"),
    [
        ("sums", "even", None),
        ("sums", TWO, None),
        ("sums", None, None),
        ("sums", None, 1.5),
        ("sums", None, -0.1),
        ("graded", 0, None),
        ("measured", "zero", None),
        ("sums", "x" * 524_000, None),
    ],
    ids=["text", "tensor", "nothing", "above-1", "below-0", "label-for-a-loss", "text-for-a-number", "vast"],
)
async def test_feedback_of_the_wrong_type_leaves_room_for_the_right_one(
    there: Deployed, application: str, label: Value | None, loss: float | None
) -> None:
    """It is a dead letter; the prediction waits on, and the next feedback is joined."""
    prediction = await there.client.predict(application, TWO)
    wrong = Feedback(prediction.query_id, label, loss)
    there.put_record(topics.FEEDBACK, wrong)
    assert (await dead(there, topics.FEEDBACK, CODEC.encode(wrong))).cause == "invalid_feedback"
    await neighbours_learn(there)
    there.put_record(topics.FEEDBACK, Feedback(prediction.query_id, None, 0.25))
    assert (await joined(there, prediction.query_id)).loss == 0.25
    await there.watch.all_committed("joiner", topics.FEEDBACK)


@pytest.mark.parametrize("topic", [topics.FEEDBACK, topics.PREDICTIONS])
async def test_bytes_without_a_query_id_are_dead_letters(there: Deployed, topic: str) -> None:
    """What the joiner cannot tell whose it is."""
    # Of a prediction its first fields are read at first, of feedback all of it.
    cut = "unknown_schema" if topic == topics.FEEDBACK else "truncated"
    bad = [("unknown_schema", b"garbage"), (cut, b"\xc3\x01" + b"\xff" * 8), ("empty", b""), ("empty", None)]
    there.put(topic, *[value for _, value in bad], key=b"\xff")
    await neighbours_learn(there)
    await there.watch.until(lambda: len([d for d in there.watch.dead(topic) if d.key == b"\xff"]) >= len(bad))
    letters = [letter for letter in there.watch.dead(topic) if letter.cause != "unmatched" and letter.key == b"\xff"]
    assert [(letter.cause, letter.value) for letter in letters] == [(cause, value or b"") for cause, value in bad]
    await there.watch.all_committed("joiner", topics.FEEDBACK)


async def test_predictions_that_are_none_are_dead_at_the_end_of_their_window(there: Deployed) -> None:
    """The id of a waiting prediction is all the joiner looks at; what is wrong with the rest comes out at the end."""
    output = ModelOutput("parity", "1", Outcome.OK, 1)
    forged = Prediction("forged", "brief", None, None, Status.COMPLETE, None, 1, 1.0, (output,), 0, 0, 0, 0)
    value = CODEC.encode(forged)
    bad = {value[:-3]: "truncated", value + b"\x00": "trailing", b"\x00\x00\x00\x00\x63" + value[10:]: "unknown_schema"}
    for number, (text, _) in enumerate(bad.items()):
        there.put(topics.PREDICTIONS, text.replace(b"forged", b"forge%d" % number))
    await neighbours_learn(there)
    await there.watch.until(lambda: len(_causes(there)) >= len(bad), "dead letters")
    assert _causes(there) == sorted(bad.values())


def _causes(there: Deployed) -> list[str]:
    return sorted(letter.cause for letter in there.watch.dead(topics.PREDICTIONS) if b"forge" in (letter.value or b""))


async def test_the_partitions_have_moved_on(there: Deployed) -> None:
    """Nothing of the short windows is left over, and every process is the one that was started."""
    await there.watch.all_committed("joiner", topics.FEEDBACK)
    await there.watch.all_committed("learner", topics.OBSERVATIONS)
    assert {child.restarts for child in there.system.status()} == {0}
