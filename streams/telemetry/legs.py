"""From what the log says about a query to its legs.

sent ─ queue ─▶ received ─ select ─▶ asked ─ wait ─▶ begins ─ predict ─▶ ends ─ return ─▶ answered ─ join ─▶ observed
                                                     └── its batch, a trace of its own, linked both ways
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.records import JoinStatus, Outcome, Status
from streams.story.legs import legs as questions_of
from streams.telemetry.context import leg_id
from streams.telemetry.values import (
    COUNT,
    DESTINATION,
    ERROR,
    GROUP,
    MESSAGE_ID,
    OFFSET,
    OPERATION,
    OPERATION_TYPE,
    PARTITION,
    SYSTEM,
    LegContext,
    TimedLeg,
)
from streams.topology import worker_role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from schemas.records import Observation
    from streams.story.gathering import Gathering
    from streams.story.values import ModelLeg, Told
    from streams.telemetry.values import SampledQuery

SELECTION: Final = "selection"
MOST: Final = 64  # questions of one query that are shown


class LegWriter:
    """Writes the legs of queries.

    Args:
        real: returns a topic's or group's name on the broker.
    """

    def __init__(self, real: Callable[[str], str]) -> None:
        self._real = real

    def of(self, query: SampledQuery, found: Gathering) -> Iterator[TimedLeg]:
        """Yield the legs of an answered query, and the batches that have predicted it, each linked to its row.

        Args:
            query: that is sampled.
            found: what the log says about it.
        """
        said = query.said
        answer = next((one for one in found.answers if one.place == query.place), None)
        asked = [leg for leg in questions_of(found, answer) if not leg.is_shadow][:MOST]
        began_us = min(said.sent_us or said.received_us, said.received_us)
        asked_us = min((leg.asked_us for leg in asked if leg.asked_us is not None), default=said.answered_us)
        # Records tell whole milliseconds.
        asked_us = min(max(asked_us, said.received_us), said.answered_us)
        yield self._whole(query, began_us)
        yield self._part(query, "queue", topics.QUERIES, "receive", began_us, said.received_us, GROUP)
        yield self._part(query, "select", topics.QUERIES, "process", said.received_us, asked_us)
        for leg in asked:
            yield from self._asked(query, leg, asked_us)

    def joined(self, query: SampledQuery, seen: Told[Observation]) -> TimedLeg:
        """Return the leg from an answer to its observation."""
        at = LegContext(query.at.trace_id, leg_id(query.at.leg_id, "join"))
        begun_us, observation = query.said.answered_us, seen.said
        more: dict[str, str | int | float | bool] = {"skysail.join.status": observation.status.value}
        if observation.loss is not None and observation.status is JoinStatus.JOINED:
            more["skysail.loss"] = observation.loss
        attributes = self._attributes("join", topics.OBSERVATIONS, "process", query) | more
        attributes |= {PARTITION: str(seen.place.partition), OFFSET: seen.place.offset}
        name = f"join {self._real(topics.OBSERVATIONS)}"
        end_us = max(begun_us, seen.time_us)
        return TimedLeg(name, at, query.at.leg_id, "joiner", "", begun_us, end_us, attributes)

    def _whole(self, query: SampledQuery, began_us: int) -> TimedLeg:
        said, is_default = query.said, query.said.status is Status.DEFAULT
        fault = (said.reason or said.status.value) if is_default else ""
        attributes = self._attributes("answer", topics.QUERIES, "process", query) | {
            "skysail.application": said.application,
            "skysail.status": said.status.value,
            "skysail.confidence": said.confidence,
            "skysail.objective_us": said.deadline_us - began_us,
            "skysail.is_late": said.answered_us > said.deadline_us,
            **({"skysail.reason": said.reason} if said.reason else {}),
            **({"skysail.policy": said.decision.policy} if said.decision is not None else {}),
            **({ERROR: fault} if fault else {}),
        }
        name, end_us = f"answer {self._real(topics.QUERIES)}", max(began_us, said.answered_us)
        return TimedLeg(
            name, query.at, query.context.parent_id, SELECTION, "", began_us, end_us, attributes, "consumer", (), fault
        )

    def _part(
        self, query: SampledQuery, leg: str, topic: str, kind: str, begin_us: int, end_us: int, group: str = ""
    ) -> TimedLeg:
        at = LegContext(query.at.trace_id, leg_id(query.at.leg_id, leg))
        attributes = self._attributes(leg, topic, kind, query) | ({group: self._real(SELECTION)} if group else {})
        name = f"{leg} {self._real(topic)}"
        return TimedLeg(name, at, query.at.leg_id, SELECTION, "", begin_us, max(begin_us, end_us), attributes)

    def _asked(self, query: SampledQuery, leg: ModelLeg, asked_us: int) -> Iterator[TimedLeg]:
        """Yield the legs of one question to a model, with its batch, as far as the log has them."""
        batch = leg.batch
        if batch is None or not batch.begun_us:  # answered inside selection, or refused, or nothing has come
            return
        topic, parent = topics.model_queries(leg.model), query.at
        role, instance = worker_role(leg.model), leg.worker
        key = (leg.model, leg.row_id, leg.step)
        wait, predict, back = (
            LegContext(parent.trace_id, leg_id(parent.leg_id, name, *key)) for name in ("wait", "predict", "return")
        )
        ran_id = leg_id(leg.worker, leg.model, batch.begun_us)
        ran = LegContext(ran_id << 64 | leg_id(ran_id), ran_id)
        begun_us, done_us = batch.begun_us, batch.begun_us + batch.predict_us
        about: dict[str, str | int | float | bool] = {
            "skysail.model": leg.model,
            "skysail.version": leg.version,
            "skysail.step": leg.step,
        }
        fault = "" if leg.outcome is Outcome.OK else leg.outcome.value
        faulty = about | ({ERROR: fault} if fault else {})
        waited = about | {"skysail.waited_at_worker_us": batch.waited_us}
        name, since_us = self._real(topic), asked_us if leg.asked_us is None else max(asked_us, leg.asked_us)
        yield TimedLeg(
            f"wait {name}", wait, parent.leg_id, role, instance, min(since_us, begun_us), begun_us,
            self._attributes("wait", topic, "receive", query) | waited,
        )  # fmt: skip
        yield TimedLeg(
            f"predict {name}", predict, parent.leg_id, role, instance, begun_us, done_us,
            self._attributes("predict", topic, "process", query) | faulty, "internal", (ran,), fault,
        )  # fmt: skip
        end_us = max(done_us, leg.written_us or 0) if leg.is_late else max(done_us, query.said.answered_us)
        yield TimedLeg(
            f"return {self._real(topics.MODEL_PREDICTIONS)}", back, parent.leg_id, SELECTION, "", done_us, end_us,
            self._attributes("return", topics.MODEL_PREDICTIONS, "receive", query)
            | about | {"skysail.is_late": leg.is_late},
        )  # fmt: skip
        yield TimedLeg(
            f"batch {name}", ran, 0, role, instance, begun_us, done_us,
            self._attributes("batch", topic, "process")
            | {COUNT: batch.rows, "skysail.model": leg.model, "skysail.version": leg.version,
               "skysail.batch.cap": batch.cap, "skysail.batch.released": batch.released},
            "consumer", (predict,),
        )  # fmt: skip

    def _attributes(
        self, operation: str, topic: str, kind: str, query: SampledQuery | None = None
    ) -> dict[str, str | int | float | bool]:
        found: dict[str, str | int | float | bool] = {
            SYSTEM: "kafka",
            OPERATION: operation,
            OPERATION_TYPE: kind,
            DESTINATION: self._real(topic),
        }
        if query is not None:
            found[MESSAGE_ID] = query.said.query_id
            if topic in {topics.QUERIES, topics.MODEL_PREDICTIONS}:  # on the circle, all are of one number
                found[PARTITION] = str(query.place.partition)
        return found
