"""A selection kernel with a prediction cache, and the records to and from it as short words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Model, ModelPredictions, ModelQueries, Outcome, Prediction, Query, Tensor
from streams.operators.contract import Effects, Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings
from tests.loops import row

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Input

CODEC = Codec()
NOW = 1_700_000_000_000_000
MIB = 1 << 20


class Cached:
    """A selection kernel with a cache before models that all are asked, and the records to and from them."""

    def __init__(
        self,
        *models: str,
        cache_bytes: int = MIB,
        admission: bool = False,
        policy: str = "exp4",
        versions: Mapping[str, str] | None = None,
    ) -> None:
        self.now_us = NOW
        self.predictions: list[Prediction] = []
        settings = SelectionSettings(partitions=4, cache_bytes=cache_bytes, admission=admission)
        self.kernel = Selection(CODEC, settings)
        self.kernel.on_partitions(dict.fromkeys(range(4), 0))
        application = Application("digits", models, policy, default_output=-1, slo_ms=100, versions=versions or {})
        self._configure(topics.APPLICATIONS, "digits", CODEC.encode(application))
        for model in models:
            self.deploy(model, "1")
        self._sent = 0
        made = self._query("first", row(-1.0), 0)
        (wanted,) = [effect for effect in made if isinstance(effect, FetchStates)]
        self.kernel.on_states(dict.fromkeys(wanted.keys), NOW)
        self.land("first", *models)

    def deploy(self, model: str, version: str, digest: str = "", shares: Mapping[str, float] | None = None) -> None:
        """Publish a version of a model, with others beside it."""
        deployed = Model(model, version, "function", "", digest, "label", None, (), shares=shares or {}, partitions=1)
        self._configure(topics.MODELS, model, CODEC.encode(deployed))

    def ask(
        self, query_id: str, given: Input, partition: int = 0, version: str | None = None, token: str = ""
    ) -> list[str]:
        """Send a query now; returns the models that are asked by it, or its answer as `=<answer>`."""
        return self._said(self._query(query_id, given, partition, version, token))

    def land(self, query_id: str, *models: str, answer: int = 7, partition: int = 0, **changes: object) -> list[str]:
        """Let models answer; returns who has an answer now, as `<id>=<answer>`, and the models asked anew."""
        effects: Effects = []
        for model in models:
            fields: dict[str, object] = {"version": "1", "outcomes": (Outcome.OK,)} | changes
            batch = ModelPredictions(
                model=model, worker="w", query_ids=(query_id,), answers=Tensor.of(np.array([answer])), scores=None,
                waited_us=(0,), predict_us=1, batch_rows=1, batch_cap=1, queue_rows=0, **fields,  # type: ignore[arg-type]
            )  # fmt: skip
            effects += self.kernel.on_records(
                [Record(topics.MODEL_PREDICTIONS, partition, 0, self.now_us, None, CODEC.encode(batch))], self.now_us
            )
        return self._said(effects)

    def wait(self, seconds: float) -> list[str]:
        """Let time pass; returns what the timer answers."""
        self.now_us += int(seconds * 1e6)
        return self._said(self.kernel.on_timer(self.now_us))

    def counted(self, model: str = "m") -> tuple[int, ...]:
        """Return hits, coalesced and misses, less the first query's."""
        found = self.kernel.statistics()
        results = [int(found.get(f"cache_total{{model={model},result={r}}}", 0)) for r in ("hit", "coalesced", "miss")]
        return (*results[:2], results[2] - 1)

    def _said(self, effects: Effects) -> list[str]:
        answers = (effect for effect in effects if isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS)
        self.predictions += [CODEC.decode(Prediction, answer.value) for answer in answers]
        return said(effects)

    def _query(
        self, query_id: str, given: Input, partition: int, version: str | None = None, token: str = ""
    ) -> Effects:
        value = CODEC.encode(Query(query_id, "digits", given, None, self.now_us, version=version, reply_token=token))
        record = Record(topics.QUERIES, partition, self._sent, self.now_us, None, value)
        self._sent += 1
        return self.kernel.on_records([record], self.now_us)

    def _configure(self, topic: str, name: str, value: bytes) -> None:
        effects = self.kernel.on_records([Record(topic, 0, 0, NOW, name.encode(), value)], NOW)
        assert all(isinstance(effect, FetchStates) for effect in effects)


def said(effects: Effects) -> list[str]:
    """Return what was answered, as `<id>=<answer>` or `<id>=<reason>`, and what was asked, as `<model>?<id>`."""
    found = []
    for effect in effects:
        if isinstance(effect, Emit) and effect.topic == topics.PREDICTIONS:
            prediction = CODEC.decode(Prediction, effect.value)
            found.append(f"{prediction.query_id}={prediction.reason or prediction.answer}")
        elif isinstance(effect, Emit) and effect.topic != topics.SHADOWS:  # what is late answers and asks nothing
            ids = CODEC.decode(ModelQueries, effect.value).query_ids
            found += [f"{effect.topic.split('.')[1]}?{query_id}" for query_id in ids]
    return found
