"""Backfill of a running deployment: its log is read, a model computes what it has missed, lessons are learnt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from deploy.errors import DeployError
from deploy.state import catalog
from deploy.state.learning_progress import PATIENCE_S, await_learnt
from deploy.state.messages import records
from deploy.state.packages import loaded
from deploy.state.topics import partition_counts
from policies.errors import PolicyError
from schemas import topics
from schemas.errors import DecodeError
from schemas.framing import peek_id
from schemas.inputs import asked_about
from schemas.records import Application, Observations, Outcome, Query, Tensor
from streams.operators.learn.backfill import Backfill
from streams.topology import state_partition
from workers.executors.predictor import predictor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Input
    from streams.operators.contract import Predicted

_ROWS: Final = 256  # of a batch


class Backfilled(NamedTuple):
    """What came of a backfill.

    Attributes:
        taught: lessons written.
        without_input: labels whose queries are gone.
        left: labels left for the next run.
        unlearnt: records of the log that the learner has not learnt, since it does not run.
    """

    taught: int
    without_input: int
    left: int
    unlearnt: int


def _nobody(_left: int) -> None:
    """Hear how much is to be learnt."""


def backfill(
    settings: Settings,
    codec: Codec,
    application: str,
    package: Path,
    tell: Callable[[int], None] = _nobody,
    patience_s: float = PATIENCE_S,
) -> Backfilled:
    """Teach a model of an application what was observed before it came; returns when that stands in the states.

    Args:
        settings: of the deployment.
        codec: of its records.
        application: whose policy's state answers, and which names the model already.
        package: of the model.
        tell: is called with how many records the learner has still to learn.
        patience_s: how long the learner may get no further.

    Raises:
        PackageError: the folder is no package, or cannot be loaded.
        DeployError: there is no such application, its state does not answer, or it does not name the model.
    """
    deployed, running = loaded(settings, package)
    model, predict = deployed.name, predictor(running)
    found = catalog.read(settings, codec, Application).get(application)
    if found is None:
        raise DeployError(f"there is no application {application}; see `skysail app list`")
    try:
        plan = Backfill(found, model)
    except PolicyError as error:
        raise DeployError(str(error)) from error
    for record in records(settings, topics.OBSERVATIONS):
        try:
            seen = codec.decode(Observations, record.value).items if record.value else ()
        except DecodeError:
            continue  # a dead letter of the learner
        for one in seen:
            plan.take(one)
    missed = len(plan.missed)
    for batch in _batches(settings, codec, plan):
        catalog.write_to(settings, _lessons(settings, codec, plan, predict, batch))
    unlearnt = await_learnt(settings, partition_counts(settings)[topics.OBSERVATIONS], tell, patience_s)
    return Backfilled(missed - len(plan.missed), len(plan.missed), plan.left, unlearnt)


def _batches(settings: Settings, codec: Codec, plan: Backfill) -> Iterator[list[tuple[str, Input]]]:
    """Yield ids and inputs of the queries that are missed; a query that was asked twice counts once."""
    rows: dict[str, Input] = {}
    for record in records(settings, topics.QUERIES):
        try:
            if record.value is None or (name := peek_id(record.value)) not in plan.missed:
                continue
            query = codec.decode(Query, record.value)
        except DecodeError:
            continue  # a dead letter of selection
        if query.candidates is None:
            rows[name] = asked_about(query.input, plan.missed[name].decision.features)
        if len(rows) >= _ROWS:
            yield [*rows.items()]
            rows = {}
    if rows:
        yield [*rows.items()]


def _lessons(
    settings: Settings,
    codec: Codec,
    plan: Backfill,
    predict: Callable[[Sequence[Input]], Predicted],
    batch: Sequence[tuple[str, Input]],
) -> Iterator[tuple[str, int, str, bytes]]:
    """Yield the lessons of a batch: topic, partition, key and value; rows that the model cannot take have none."""
    predicted = predict([given for _, given in batch])
    if predicted.scores is None:
        return
    for (query_id, _), outcome, scores in zip(batch, predicted.outcomes, predicted.scores, strict=True):
        if outcome is Outcome.OK and query_id in plan.missed:
            lesson = plan.lesson(query_id, Tensor.of(scores))
            state = lesson.decision.state
            yield topics.OBSERVATIONS, state_partition(state, settings.partitions), state, codec.encode(lesson)
