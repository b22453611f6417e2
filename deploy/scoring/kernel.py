"""An application's rows through the kernel of selection itself, without a topic: for policies that ask several models.

rows ─▶ queries ─▶ Selection ─▶ models' queries ─▶ packages ─▶ Selection ─▶ predictions ─▶ rows

Its time stands still, so no answer is late. A new kernel takes each run of rows: it remembers no id of an earlier one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from deploy.scoring.scored import Scored, plain
from schemas import topics
from schemas.errors import SchemaError
from schemas.records import ModelPredictions, ModelQueries, Outcome, Prediction, Query, Tensor, dense_of
from streams.operators.configuration import MAX_SLO_MS
from streams.operators.contract import DeadLetter, Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from workers.inputs.columns import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deploy.scoring.askers import StateReader
    from deploy.scoring.inputs import AskedRows
    from deploy.scoring.models import PackagedModels
    from schemas.codec import Codec
    from schemas.records import Application, Model
    from streams.operators.contract import Effect

_ROWS: Final = 4_096  # of a kernel: what waits in it is bounded
_MISSING: Final = "not_answered"
_MODELS: Final = topics.model_queries("").removesuffix(".queries")


class KernelAsker:
    """Answers an application's rows as its deployment would, however long its models take.

    Args:
        codec: of the deployment.
        models: that there are.
        application: as it is deployed.
        partitions: of the deployment.
        states: has the policy's.
        now_us: the time.
    """

    def __init__(
        self,
        codec: Codec,
        models: PackagedModels,
        application: Application,
        partitions: int,
        states: StateReader,
        now_us: int,
    ) -> None:
        self._codec, self._models, self._states = codec, models, states
        self._partitions, self._now_us = partitions, now_us
        patient = replace(application, slo_ms=MAX_SLO_MS, max_slo_ms=MAX_SLO_MS, hedge=0.0, mapping="", parity="")
        self._application = patient
        asked: list[Model] = [models.serving[name] for name in dict.fromkeys(application.asks)]
        self._known = [
            Record(topics.APPLICATIONS, 0, 0, now_us, patient.name.encode(), codec.encode(patient)),
            *[Record(topics.MODELS, 0, 0, now_us, model.name.encode(), codec.encode(model)) for model in asked],
        ]

    def answers(self, asked: AskedRows) -> Scored:
        """Return what the kernel answers to each row."""
        scored = Scored.unanswered(len(asked.ids), self._application.default_output)
        left = [row for row in range(len(asked.ids)) if row not in asked.faults]
        while left:
            run: dict[str, int] = {}
            later: list[int] = []
            for row in left:  # rows of one id are queries of their own: each in another run
                if len(run) < _ROWS and asked.ids[row] not in run:
                    run[asked.ids[row]] = row
                else:
                    later.append(row)
            self._run(asked, run, scored)
            left = later
        return scored

    def _run(self, asked: AskedRows, run: dict[str, int], scored: Scored) -> None:
        kernel = Selection(self._codec, SelectionSettings(self._partitions, places=16 * _ROWS))
        self._perform(kernel, kernel.on_records(self._known, self._now_us), scored, run)
        records = self._queries(asked, run, scored)
        self._perform(kernel, kernel.on_records(records, self._now_us), scored, run)
        for row in run.values():  # the kernel has said nothing: a fault of ours, told and not hidden
            scored.refuse({row: "the kernel gave no answer"}, self._application.default_output)
            scored.reason[row] = _MISSING

    def _queries(self, asked: AskedRows, run: dict[str, int], scored: Scored) -> list[Record]:
        """Return the rows of a run as records; one that is too large for a record has its default."""
        records: list[Record] = []
        for query_id, row in [*run.items()]:
            context = None if asked.contexts is None else asked.contexts[row]
            features = () if asked.features is None else asked.features[row]
            given = asked.inputs[row]
            query = Query(query_id, self._application.name, given, context, self._now_us, features=features)
            try:
                value = self._codec.encode(query)
            except SchemaError as error:
                scored.refuse({run.pop(query_id): str(error)}, self._application.default_output)
                continue
            records.append(Record(topics.QUERIES, 0, row, self._now_us, _key(query_id), value))
        return records

    def _perform(self, kernel: Selection, effects: Iterable[Effect], scored: Scored, run: dict[str, int]) -> None:
        """Perform what the kernel wants until it wants nothing more."""
        left = [*effects]
        while left:
            now, left = left, []
            for effect in now:
                if isinstance(effect, FetchStates):
                    left += kernel.on_states(self._states.read(effect.keys), self._now_us)
                elif isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS:
                    self._take(self._codec.decode(Prediction, effect.value), scored, run)
                elif isinstance(effect, Emit) and effect.topic.startswith(_MODELS):
                    records = self._asked(effect)
                    left += kernel.on_records(records, self._now_us)
                elif isinstance(effect, DeadLetter):
                    row = run.pop((effect.record.key or b"").decode(errors="surrogatepass"), None)
                    if row is not None:
                        scored.refuse({row: effect.message}, self._application.default_output)

    def _asked(self, effect: Emit) -> list[Record]:
        """Have a model answer what it is asked."""
        queries = self._codec.decode(ModelQueries, effect.value)
        name = topics.asked_model(effect.topic)
        column = Column(queries.inputs)
        version = self._models.version(name, queries.version)
        groups: dict[str, list[int]] = {}
        for place, query_id in enumerate(queries.query_ids):
            its = version or self._models.drawn(name, queries.version, query_id)
            groups.setdefault(its, []).append(place)
        return [self._answered(queries, name, its, places, column) for its, places in groups.items()]

    def _answered(self, queries: ModelQueries, name: str, version: str, places: list[int], column: Column) -> Record:
        found = self._models.loaded(name, version).predict([column[place] for place in places])
        answers, scores = found.answers, found.scores
        batch = ModelPredictions(
            name, version, "score", tuple([queries.query_ids[place] for place in places]), found.outcomes,
            answers if isinstance(answers, tuple) else dense_of(np.asarray(answers)),
            None if scores is None else Tensor.of(np.asarray(scores)),
            (0,) * len(places), 0, len(places), len(places), 0, "cap",
            tuple([found.messages.get(row, "") for row in range(len(places))]) if found.messages else (),
            steps=(queries.step,) * len(places) if queries.step else (),
        )  # fmt: skip
        value = self._codec.encode(batch)
        return Record(topics.MODEL_PREDICTIONS, queries.reply_partition, 0, self._now_us, None, value)

    def _take(self, found: Prediction, scored: Scored, run: dict[str, int]) -> None:
        """Write a prediction into its row."""
        row = run.pop(found.query_id, None)
        if row is None:
            return
        decision, asked = found.decision, [each for each in found.outputs if each.outcome is not Outcome.OVERLOADED]
        shares: Sequence[float] = () if decision is None else decision.propensities
        alone = decision.chosen[0] if decision is not None and len(decision.chosen) == 1 else None
        cells: tuple[Any, ...] = (
            plain(found.answer),
            found.confidence,
            found.status.value,
            found.reason,
            found.message or None,
            _joined([each.model for each in asked]),
            _joined([each.version for each in asked]),
            None if alone is None else shares[alone],
            None if decision is None else decision.state_version,
        )
        for mine, cell in zip(scored.columns, cells, strict=True):
            mine[row] = cell


def _key(query_id: str) -> bytes:
    return query_id.encode(errors="surrogatepass")


def _joined(names: Sequence[str]) -> str | None:
    return ",".join(names) or None
