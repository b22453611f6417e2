"""One play of a trace's queries: the roles on the driver, at the pace of live polls, and what comes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from schemas.framing import peek_texts
from schemas.records import ModelPredictions, Observations, Prediction
from streams.operators.join.kernel import Joiner
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection
from streams.replay.what_if.outcomes import QueryOutcomes
from streams.testing import Driver, Pace
from streams.topology import build, worker_role
from streams.trace.manifest import TraceError
from workers.kernel.model.worker import ModelWorker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Application, Model
    from streams.operators.contract import Operator, Record
    from streams.replay.as_it_was import RecordedDeployment
    from streams.replay.what_if.recorded_models import RecordedModels

# How often selection and workers poll: a twentieth of the objective, of 100 ms 5 ms. A query and its output wait for a
# poll each. A query's four ways through Kafka take about as long live (1.2 ms each at the median, one broker).
_POLL_US: Final = 10_000
_POLL_PART: Final = 20
# How often joiner and learner poll. Selection reads a state again after 100 ms, so a fifth of that delays no decision
# by much.
_DAY_US = 86_400_000_000
MOST_GAP_US: Final = 31 * _DAY_US  # the roles' timers run all that time
_LEARN_US: Final = 20_000


def poll_us_of(application: Application) -> int:
    """Return how often selection and workers poll for an application (us)."""
    return min(_POLL_US, int(application.slo_ms * 1e3) // _POLL_PART)


class Inputs(NamedTuple):
    """What is known of the queries that are played.

    Attributes:
        numbers: of the queries, by id.
        keys: of their inputs, by number.
        outputs: what models have answered.
        models: that can be asked, by name.
        start_us: when the play begins.
    """

    numbers: Mapping[str, int]
    keys: Sequence[bytes]
    outputs: RecordedModels
    models: Mapping[str, Model]
    start_us: int


class Loop:
    """Selection, workers, joiner and learner around one application.

    Each topic has one partition: in virtual time more change nothing but the size of batches.

    Args:
        application: that answers.
        inputs: what it is asked.
        deployment: whose settings the roles have.
        codec: of the records.
        poll_us: how often selection and workers poll; 0 = at once, and so do joiner and learner.

    Attributes:
        outcome: what came of the queries.
        left_out: 1 = some model was asked whose answer is not recorded, by the query's number.
    """

    def __init__(
        self, application: Application, inputs: Inputs, deployment: RecordedDeployment, codec: Codec, poll_us: int
    ) -> None:
        self._codec = codec
        self._inputs = inputs
        self._application = application
        self.outcome = QueryOutcomes.of(len(inputs.numbers))
        self.left_out = bytearray(len(inputs.numbers))
        names = application.models
        selection = replace(deployment.selection, partitions=1)
        joiner = replace(deployment.joiner, partitions=1)
        operators: dict[str, Callable[[], Operator]] = {
            "selection": lambda: Selection(codec, selection),
            "joiner": lambda: Joiner(codec, joiner),
            "learner": lambda: Learner(codec, joiner.memory_us),
            **{worker_role(name): self._worker(name) for name in names},
        }
        learn_us = _LEARN_US if poll_us else 0
        polls_us = dict.fromkeys(operators, poll_us) | {"joiner": learn_us, "learner": learn_us}
        hears = {topics.PREDICTIONS: self._on_prediction, topics.OBSERVATIONS: self._on_observations}
        if not all(inputs.outputs.knows_all(name, inputs.keys) for name in names):
            hears[topics.MODEL_PREDICTIONS] = self._on_outputs
        self._driver = Driver(
            build(names, 1, dict.fromkeys(names, 1)),
            operators,
            models={name: inputs.outputs.service(name) for name in names},
            pace=Pace(inputs.start_us, polls_us, keeps=False),
            hears=hears,
        )
        for name in names:
            self._driver.produce(
                topics.MODELS, 0, codec.encode(replace(inputs.models[name], partitions=1)), name.encode()
            )
        self._driver.produce(topics.APPLICATIONS, 0, codec.encode(application), application.name.encode())
        self._driver.run(0)

    def take(self, record: Record) -> None:
        """Let time pass until a query or feedback was written, and write it.

        Raises:
            TraceError: that is so long after the one before that somebody's clock was wrong.
        """
        if record.timestamp_us - self._driver.now_us > MOST_GAP_US:
            days = MOST_GAP_US // _DAY_US
            raise TraceError(
                f"offset {record.offset} of {record.topic} is over {days} days later than the one before it"
            )
        self._driver.run_until(record.timestamp_us)
        self._driver.produce(record.topic, 0, record.value, record.key)

    def end(self) -> None:
        """Let all windows end."""
        self._driver.run(self._application.window_s + self._application.slo_ms / 1e3 + 2.0)

    def _worker(self, name: str) -> Callable[[], Operator]:
        model, settings = self._inputs.models[name], WorkerSettings(1)
        return lambda: ModelWorker(self._codec, model, "replay", settings)

    def _on_prediction(self, record: Record) -> None:
        prediction = self._codec.decode(Prediction, record.value)
        self.outcome.predicted(self._inputs.numbers[prediction.query_id], prediction)

    def _on_observations(self, record: Record) -> None:
        for one in self._codec.decode(Observations, record.value).items:
            self.outcome.observed(self._inputs.numbers[one.query_id], one.loss, one.worth)

    def _on_outputs(self, record: Record) -> None:
        """Note the queries that a model was asked whose answer is not recorded."""
        (model,) = peek_texts(record.value, 1)
        _, keys, outputs, _, _ = inputs = self._inputs
        for query_id in self._codec.decode(ModelPredictions, record.value).query_ids:
            number = inputs.numbers.get(query_id)
            if number is not None and not outputs.knows(model, keys[number]):
                self.left_out[number] = 1
