"""A plan on the roles' own kernels, on the broker-free driver: what they decide is decided here.

    client ─ask─▶ Selection, and models inside it ─dispatch─▶ workers and hosts ─reply─▶ Selection ─answer─▶ client

So hosts, inline models, graphs, hedges, cascades, the cache and admission need no model of their own. It costs some
hundred us of CPU a query: `simulator` is for plans that need none of these.
"""

from __future__ import annotations

from array import array
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Model, ModelPredictions, Outcome, Prediction, Query, Status, Tensor
from streams.operators.contract import Predicted
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.role.local import Local, LocalCodec
from streams.testing import START_US, Driver, ModelBehaviour, Pace
from streams.topology import build, host_role, worker_role
from workers.kernel.host.kernel import Host
from workers.kernel.model.worker import ModelWorker
from workers.kernel.schedule.profiles import Profiles
from workers.kernel.schedule.registry import SCHEDULES
from workers.kernel.schedule.residency import Residency
from workers.settings import WorkerSettings
from workers.simulation.replicas import Replicas
from workers.simulation.run import NEVER, Run, column
from workers.simulation.worker import Journal

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.operators.contract import Load, Operator, Predict, Record
    from workers.simulation.plan import HostedModels, RolePlan, SimulatedModel, SimulationPlan

_APPLICATION: Final = "simulated"
_INSIDE_US: Final = 1_000  # a model inside selection that takes less keeps it from everything else
_WHOLE_ROWS: Final = 4_096  # of a host's batches that its schedule sizes
_MORE_S: Final = 5.0  # after the objective of the last query
_CLASSES: Final = ("0", "1")
_INPUTS: Final = 1 << 62
_CONFIGURED: Final = frozenset({topics.MODELS, topics.APPLICATIONS})


def simulate_kernels(plan: SimulationPlan, random: np.random.Generator) -> Run:
    """Return what becomes of a plan's queries; the same plan and seed give the same to the last bit."""
    assert plan.roles is not None, "the plan says what only kernels know"
    return _Roles(plan, plan.roles, random).run()


class _Roles:
    """One run: the roles of a deployment, and what has come of each query."""

    def __init__(self, plan: SimulationPlan, roles: RolePlan, random: np.random.Generator) -> None:
        self._plan, self._roles = plan, roles
        of_legs, of_inputs, *of_models = random.spawn(2 + len(plan.models))
        span_us = plan.legs.span_us
        self._legs = plan.legs.shifted(int(of_legs.integers(span_us)) if span_us else 0)
        self._codec = LocalCodec(Codec())
        count = len(plan.arrivals_us)
        self._inputs: list[int] = of_inputs.integers(roles.inputs or _INPUTS, size=count).tolist()
        self._received_us, self._answered_us, self._outputs, self._asked = (array("q", [0]) * count for _ in range(4))
        self._latency_us = array("q", [NEVER]) * count
        self._places = {model.name: place for place, model in enumerate(plan.models)}
        self._journals = [Journal(count) for _ in plan.models]
        self._expired = [bytearray(count) for _ in plan.models]
        self._driver = self._made(of_models)

    def run(self) -> Run:
        """Let everything happen."""
        plan, driver = self._plan, self._driver
        self._configure()
        for number, at_us in enumerate(plan.arrivals_us.tolist()):
            driver.run_until(START_US + at_us)
            row = Tensor.of(np.array([self._inputs[number]]))
            query = Query(f"q{number}", _APPLICATION, row, None, START_US + at_us)
            driver.produce(topics.QUERIES, 0, self._codec.encode(query))
        driver.run(plan.application.slo_us / 1e6 + _MORE_S)
        return Run(
            plan=plan,
            ended_us=driver.now_us - START_US,
            received_us=column(self._received_us),
            drawn=None,
            answered_us=column(self._answered_us),
            latency_us=column(self._latency_us),
            outputs=column(self._outputs),
            asked=column(self._asked),
            expired=tuple(np.frombuffer(its, np.uint8).astype(bool) for its in self._expired),
            journals=tuple(self._journals),
        )

    def _made(self, of_models: list[np.random.Generator]) -> Driver:
        roles, models = self._roles, self._plan.models
        hosted = {name for host in roles.hosts for name in host.models}
        alone = [model for model in models if model.name not in hosted | roles.inline]
        operators: dict[str, Callable[[], Operator]] = {"selection": self._selection}
        operators |= {worker_role(model.name): partial(self._workers, model) for model in alone}
        operators |= {host_role(host.pool): partial(self._host, host) for host in roles.hosts}
        return Driver(
            build(
                self._places,
                1,
                {model.name: model.topic_partitions for model in models},
                hosts={host.pool: host.models for host in roles.hosts},
            ),
            operators,
            models={model.name: self._behaviour(model, its) for model, its in zip(models, of_models, strict=True)},
            pace=Pace(polls_us={"selection": self._plan.poll_us}, keeps=False),
            hears={topics.PREDICTIONS: self._on_answer, topics.MODEL_PREDICTIONS: self._on_batch},
            leg=self._leg,
        )

    def _leg(self, topic: str, sent_us: int) -> int:
        if topic in _CONFIGURED:
            return 0
        legs = self._legs
        leg = {topics.QUERIES: legs.ask, topics.MODEL_PREDICTIONS: legs.reply, topics.PREDICTIONS: legs.answer}
        return leg.get(topic, legs.dispatch).delay_us(sent_us - START_US)

    def _selection(self) -> Operator:
        roles, inline = self._roles, [model for model in self._plan.models if model.name in self._roles.inline]
        settings = SelectionSettings(
            1,
            margin_us=self._plan.application.margin_us,
            cache_bytes=roles.cache_bytes,
            admission=roles.admission,
            inside=frozenset(topics.model_queries(model.name) for model in inline),
        )
        kernel = Selection(self._codec, settings)
        if not inline:
            return kernel
        workers = {
            model.name: ModelWorker(self._codec, self._record(model), "selection", _settings(model, is_inside=True))
            for model in inline
        }
        return Local(kernel, workers, self._codec, writes_behind=True)

    def _workers(self, model: SimulatedModel) -> Operator:
        return Replicas(
            partial(ModelWorker, self._codec, self._record(model), settings=_settings(model)), model.owners()
        )

    def _host(self, host: HostedModels) -> Host:
        is_sized = host.controller == "clockwork"
        schedule = SCHEDULES.get(host.controller, SCHEDULES["fifo"])(Profiles(), host.lanes)
        settings = WorkerSettings(
            1,
            "fixed" if is_sized else host.controller,
            {"rows": float(_WHOLE_ROWS)} if is_sized else None,
        )
        residency = Residency(host.memory_bytes, demand=schedule.demand)
        belongs = frozenset(host.models).__contains__
        return Host(self._codec, host.pool, settings, belongs, schedule, residency, host.lanes, host.pool)

    def _record(self, model: SimulatedModel) -> Model:
        is_text = model.name in self._roles.answers
        return Model(
            model.name,
            "1",
            "function",
            "",
            "",
            "label" if is_text else "scores",
            "int64",
            (1,),
            () if is_text else _CLASSES,
            partitions=model.topic_partitions,
            bytes=self._roles.loads.get(model.name, (0, 0))[1],
        )

    def _behaviour(self, model: SimulatedModel, random: np.random.Generator) -> ModelBehaviour:
        of_times, of_answers = random.spawn(2)
        draw, load_us = model.service.sampler(of_times), self._roles.loads.get(model.name, (0, 0))[0]
        more_us = self._legs.call_us + self._legs.turnaround_us
        texts = self._roles.answers.get(model.name, ())

        def predict(batch: Predict) -> tuple[Predicted, int]:
            return _answers(len(batch.rows), texts, of_answers), draw(len(batch.rows)) + more_us

        is_blocking = model.name in self._roles.inline and draw(1) < _INSIDE_US
        return ModelBehaviour(predict, partial(_loaded, load_us), is_blocking)

    def _configure(self) -> None:
        plan, roles = self._plan, self._roles
        for model in plan.models:
            record = self._codec.encode(self._record(model))
            for key in (topics.model_version(model.name, "1"), model.name):
                self._driver.produce(topics.MODELS, 0, record, key.encode())
        application = Application(
            _APPLICATION,
            roles.asked or tuple(self._places),
            plan.application.policy,
            plan.application.parameters,
            slo_ms=plan.application.slo_us / 1e3,
            hedge=roles.hedge,
            stages=roles.stages,
        )
        self._driver.produce(topics.APPLICATIONS, 0, self._codec.encode(application), _APPLICATION.encode())
        self._driver.run(0)

    def _on_answer(self, record: Record) -> None:
        prediction = self._codec.decode(Prediction, record.value)
        number = int(prediction.query_id[1:])
        self._received_us[number] = prediction.received_us - START_US
        self._answered_us[number] = prediction.answered_us - START_US
        self._latency_us[number] = self._driver.now_us - prediction.sent_us
        usable = sum(output.outcome is Outcome.OK for output in prediction.outputs)
        usable += sum(output.outcome is Outcome.OK for output in prediction.stages)
        self._outputs[number] = 0 if prediction.status is Status.DEFAULT else max(1, usable)
        self._asked[number] = self._outputs[number] + (prediction.status is not Status.COMPLETE)

    def _on_batch(self, record: Record) -> None:
        batch = self._codec.decode(ModelPredictions, record.value)
        place = self._places[batch.model]
        journal, expired = self._journals[place], self._expired[place]
        if batch.predict_us and Outcome.OK in batch.outcomes:
            journal.started_us.append(record.timestamp_us - START_US - batch.predict_us)
            journal.took_us.append(batch.predict_us)
            journal.rows.append(batch.batch_rows)
            journal.cap.append(batch.batch_cap)
            journal.queued.append(batch.queue_rows)
        for row, outcome, waited_us in zip(batch.query_ids, batch.outcomes, batch.waited_us, strict=True):
            number = int(row[1:].partition("/")[0])
            if outcome is Outcome.OK:
                journal.waited_us[number] = waited_us
            else:
                expired[number] = 1


def _settings(model: SimulatedModel, *, is_inside: bool = False) -> WorkerSettings:
    return WorkerSettings(
        1, model.controller, model.parameters or None, model.objective_us, model.queue_rows, is_inside=is_inside
    )


def _loaded(load_us: int, _load: Load) -> tuple[str | None, int]:
    return None, load_us


def _answers(rows: int, texts: tuple[str, ...], random: np.random.Generator) -> Predicted:
    """Return texts as they are drawn, or one of two classes, as sure as it happens."""
    fine = (Outcome.OK,) * rows
    if texts:
        return Predicted(fine, tuple([texts[at] for at in random.integers(len(texts), size=rows).tolist()]))
    sure = random.uniform(0.5, 1.0, rows)
    return Predicted(fine, np.zeros(rows, np.int64), np.stack([sure, 1.0 - sure], axis=1))
