"""A story in words: lines for a person, and a document for scripts."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from policies import registry
from policies.errors import PolicyError
from schemas.jsonable import to_json
from schemas.records import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.avsc import Json
    from schemas.records import Feedback, Observation, PlaceFeedback, PolicyState, Prediction, Query, Step
    from streams.story.values import DeadRecord, ModelLeg, StateChange, Story, Told

_ID_CHARACTERS = 60  # of a row's id that a person reads


def lines(story: Story) -> Iterator[str]:
    """Yield what a person reads, in the order in which it happened."""
    answer = story.answers[0].said if story.answers else None
    yield from _asked(story, answer)
    if answer is not None:
        yield from _decided(answer)
    start_us = _start_us(story, answer)
    for leg in story.legs:
        yield _leg(leg, start_us)
    if answer is not None:
        yield from _stages(answer)
        yield from _answered(answer, start_us)
    yield from _taught(story, start_us)
    for letter in story.dead:
        yield _dead(letter)
    for note in story.notes:
        yield f"note       {note}"


def document(story: Story) -> dict[str, Json]:
    """Return the same as JSON values: records as they stand, times in microseconds since the epoch."""
    return {
        "query_id": story.query_id,
        "queries": [document_of(one) for one in story.queries],
        "answers": [document_of(one) for one in story.answers],
        "legs": [_leg_document(leg) for leg in story.legs],
        "late": [leg.model for leg in story.late],
        "feedback": [document_of(one) for one in story.feedback],
        "observations": [document_of(one) for one in story.observations],
        "change": _change_document(story.change),
        "dead_letters": [{**_place(one), **one.said._asdict()} for one in story.dead],
        "notes": list(story.notes),
    }


def moment(time_us: int) -> str:
    """Return a time for a person: UTC, to the millisecond."""
    try:
        return datetime.fromtimestamp(time_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (ValueError, OverflowError, OSError):  # a client may send any time
        return f"{time_us} us"


def _start_us(story: Story, answer: Prediction | None) -> int:
    """Return when the query was asked: other times are told from then on."""
    if answer is not None:
        return answer.sent_us or answer.received_us
    return next((one.said.sent_us or one.time_us for one in story.queries), 0)


def _asked(story: Story, answer: Prediction | None) -> Iterator[str]:
    yield f"query      {story.query_id}"
    asked: Query | Prediction | None = answer or next((one.said for one in story.queries), None)
    if asked is None:
        return
    context = "no context" if asked.context is None else f"context {asked.context}"
    yield f"asked      {moment(_start_us(story, answer))}, application {asked.application}, {context}"
    for one in story.queries[:1]:
        yield f"           {_wishes(one.said)}; record {_where(one)}"
    if answer is not None and answer.sent_us:
        read, due = _ms(answer.received_us - answer.sent_us), _ms(answer.deadline_us - answer.sent_us)
        yield f"           read by selection after {read}, due after {due}"


def _wishes(query: Query) -> str:
    said = [f"input {type(query.input).__name__.lower()}"]
    said += [f"objective {query.slo_ms:g} ms"] if query.slo_ms is not None else []
    said += [f"version {query.version}"] if query.version else []
    said += [f"priority {query.priority}"] if query.priority else []
    return ", ".join(said)


def _decided(answer: Prediction) -> Iterator[str]:
    decision = answer.decision
    if decision is None:
        yield f"decided    nothing: {answer.reason or answer.message or 'no model was to be asked'}"
        return
    yield f"decided    by {decision.policy}, state {decision.state}, version {decision.state_version}"
    for arm, (name, share) in enumerate(zip(decision.arms, decision.propensities, strict=False)):
        yield f"           {name}: probability {share:.4g}{', asked' if arm in decision.chosen else ''}"
    for step in answer.steps:
        yield f"           {_step(step, decision.arms, answer)}"


def _step(step: Step, arms: Sequence[str], answer: Prediction) -> str:
    named = ", ".join(arms[arm] for arm in step.arms if arm < len(arms))
    after = _ms(step.at_us - (answer.sent_us or answer.received_us))
    why = f"confidence {step.confidence:.2f}, threshold {step.threshold:.2f}" if step.kind != "hedge" else "took long"
    return f"{step.kind} to {named} after {after}: {step.outcome} ({why}, probability {step.probability:.3g})"


def _leg(leg: ModelLeg, start_us: int) -> str:
    name = f"{leg.model} {leg.version}".strip() + (" (shadow)" if leg.is_shadow else "")
    said = [f"asked after {_ms(leg.asked_us - start_us)}"] if leg.asked_us is not None else []
    said += [f"{_ms(leg.on_way_us)} on its way"] if leg.on_way_us is not None else []
    if leg.batch is not None:
        rows = f"{leg.batch.rows} of {leg.batch.cap} rows{f', {leg.batch.released}' if leg.batch.released else ''}"
        said += [f"waited {_ms(leg.batch.waited_us)}", f"predicted {_ms(leg.batch.predict_us)} (batch of {rows})"]
    said += [_fate(leg)]
    said += [f"row {leg.row_id[:_ID_CHARACTERS]}"] if "/" in leg.row_id else []
    return f"model      {name}: {', '.join(said)}"


def _fate(leg: ModelLeg) -> str:
    outcome = "" if leg.outcome is Outcome.OK else f"{leg.outcome.value}{f' ({leg.message})' if leg.message else ''}, "
    if leg.written_us is None:
        return "LATE: nothing has come of it" if leg.is_late else f"{outcome}in time; no record of its times"
    if leg.is_late:
        return f"{outcome}LATE by {_ms(-(leg.spare_us or 0))} after the answer"
    if leg.spare_us is None:
        return f"{outcome}out at {moment(leg.written_us)}"
    return f"{outcome}{_ms(leg.spare_us)} later it was answered"


def _stages(answer: Prediction) -> Iterator[str]:
    for row in answer.stages:
        about = f" item {row.item}" if row.before >= 0 else ""
        late = f", {row.left_out} left out" if row.left_out else ""
        became = f"{row.model} {row.version}, {row.outcome.value} after {_ms(row.took_us)}{late}"
        yield f"stage      {row.stage}{about}: {became}"


def _answered(answer: Prediction, start_us: int) -> Iterator[str]:
    shown = json.dumps(list(answer.best) or to_json(answer)["answer"], ensure_ascii=False)
    why = f" ({answer.reason}{f': {answer.message}' if answer.message else ''})" if answer.reason else ""
    left = answer.deadline_us - answer.answered_us
    when = (
        f"after {_ms(answer.answered_us - start_us)}, {_ms(abs(left))} {'before' if left >= 0 else 'after'} it was due"
    )
    yield f"answered   {shown}, {answer.status.value}{why}, confidence {answer.confidence:.2f}, {when}"
    for output in answer.outputs:
        said = json.dumps(to_json(output)["answer"], ensure_ascii=False)
        decoded = ", decoded" if output.reconstructed else ""
        yield f"           {output.model} {output.version}: {output.outcome.value} {said}{decoded}"
    for source in answer.imputed:
        yield f"           features of {source} had not come: their mean stood in"


def _taught(story: Story, start_us: int) -> Iterator[str]:
    for told in story.feedback:
        places = [f"place {one.item or one.position}: {_said(one)}" for one in told.said.places]
        what = ", ".join(places) or _said(told.said)
        what += "" if told.said.weight is None else f" of weight {told.said.weight:g}"
        yield f"feedback   {what}, after {_ms((told.said.sent_us or told.time_us) - start_us)}; record {_where(told)}"
    for seen in story.observations[:1]:
        yield from _observed(seen)
    if story.change is not None:
        yield from _changed(story.change)
    if story.answers and not story.feedback:
        yield "feedback   none so far"
    if story.feedback and not story.observations:
        yield "observed   nothing: it was not joined, see the dead letters"


def _said(one: Feedback | PlaceFeedback) -> str:
    return f"loss {one.loss}" if one.label is None else f"label {json.dumps(to_json(one)['label'])}"


def _observed(seen: Told[Observation]) -> Iterator[str]:
    said = seen.said
    loss = "not known" if said.loss is None else f"{said.loss:.4g}"
    arms = [f"{arm} {cost:.4g}" for arm, cost in zip(said.decision.arms, said.losses, strict=False) if cost is not None]
    how = "by feedback" if said.status.value == "joined" else "by default: the window ended without feedback"
    yield f"loss       {loss} {how}; of models: {', '.join(arms) or 'not known'}; record {_where(seen)}"
    if said.worth is not None and said.loss is not None:
        part = "" if said.weight is None else f"; it teaches as {said.weight:.4g} of a whole lesson"
        yield f"           it cost {said.loss * said.worth:.4g}, where a loss of 1 costs {said.worth:.4g}{part}"
    for one in said.places:
        yield f"           place {one.position}, of candidate {one.place}, teaches as looked at by {one.examined:.0%}"


def _changed(change: StateChange) -> Iterator[str]:
    yield f"taught     state {change.name}, {change.folded:,} observations folded"
    if change.refused:
        yield f"           it taught nothing: {change.refused}"
    for word, state in (("decided by", change.decided), ("before", change.before), ("after", change.after)):
        if state is not None:
            yield f"           {word}: {state_line(state)}"


def state_line(state: PolicyState) -> str:
    """Return a policy state for a person: its version, weights and first numbers."""
    weights = weights_of(state)
    named = ", ".join(f"{arm} {weight:.4g}" for arm, weight in weights.items())
    few = ", ".join(f"{value:.6g}" for value in state.values[:8]) + (", ..." if len(state.values) > 8 else "")
    return f"version {state.version}{f', weights {named}' if weights else ''}, values [{few}]"


def weights_of(state: PolicyState) -> dict[str, float]:
    """Return how much each arm's answer counts by a state; none where its policy is not known here."""
    try:
        policy = registry.parse(state.policy)
        found = policy.weights(state.values, len(state.arms))
    except (PolicyError, ArithmeticError, IndexError, ValueError):
        return {}
    return dict(zip(state.arms, found, strict=False))


def _dead(letter: Told[DeadRecord]) -> str:
    said = letter.said
    return (
        f"dead       {said.topic}: {said.cause}{f', {said.message}' if said.message else ''}; record {_where(letter)}"
    )


def _where(told: Told[object]) -> str:
    topic, partition, offset = told.place
    return f"{topic}-{partition}@{offset}"


def _ms(time_us: int) -> str:
    return f"{time_us / 1000:,.1f} ms"


def _place(told: Told[object]) -> dict[str, Json]:
    topic, partition, offset = told.place
    return {"record": {"topic": topic, "partition": partition, "offset": offset, "time_us": told.time_us}}


def document_of(told: Told[object]) -> dict[str, Json]:
    """Return a record as JSON values, with where it stands."""
    return {**_place(told), **to_json(told.said)}


def _leg_document(leg: ModelLeg) -> dict[str, Json]:
    found = leg._asdict()
    batch = None if leg.batch is None else leg.batch._asdict()
    answer = None if leg.answer is None else json.loads(json.dumps(leg.answer, default=str))
    return {**found, "outcome": leg.outcome.value, "answer": answer, "batch": batch}


def _change_document(change: StateChange | None) -> Json:
    if change is None:
        return None
    named = {"decided": change.decided, "before": change.before, "after": change.after}
    states = {word: None if state is None else to_json(state) for word, state in named.items()}
    return {"state": change.name, "folded": change.folded, "refused": change.refused, **states}
