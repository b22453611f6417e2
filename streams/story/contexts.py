"""What is known of a context (user, session, region): its state and its last answers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from schemas.jsonable import to_json
from streams.story.words import document_of, moment, state_line
from streams.topology import state_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.avsc import Json
    from schemas.records import PolicyState, Prediction
    from streams.story.values import Told


class ContextStory(NamedTuple):
    """A context of an application, as it stands.

    Attributes:
        application: whose it is.
        context: its name; None = the application itself is asked about.
        name: of the policy state that decides for it.
        state: that state; None = none is stored, so that queries are decided as new contexts are.
        answers: its last ones, the newest first.
        notes: what is not known, and why, for a person.
    """

    application: str
    context: str | None
    name: str
    state: PolicyState | None
    answers: tuple[Told[Prediction], ...]
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is known of it."""
        return self.state is None and not self.answers


def names(application: str, context: str | None) -> tuple[str, ...]:
    """Return the names under which the state of a context may stand: its own, one that is spread, all contexts'."""
    if context is None:
        return (application,)
    own = (state_name(application, context, is_spread=is_spread) for is_spread in (False, True))
    return (*own, application)


def which(found: Sequence[tuple[str, PolicyState | None]], answers: Sequence[Told[Prediction]]) -> str:
    """Return the name of the state that decides: by the last answer, else the first that is stored."""
    decisions = (one.said.decision for one in answers)
    decided = next((decision.state for decision in decisions if decision is not None), None)
    if decided is not None and decided in dict(found):
        return decided
    return next((name for name, state in found if state is not None), found[0][0])


def lines(story: ContextStory) -> Iterator[str]:
    """Yield what a person reads."""
    who = "the application itself" if story.context is None else f"context {story.context}"
    yield f"context    application {story.application}, {who}"
    if story.state is None:
        yield f"state      {story.name}: none is stored; queries are decided as for a new context"
    else:
        yield f"state      {story.name}, {story.state.policy}: {state_line(story.state)}"
        for other in story.state.others:
            yield f"           beside it {other.policy}, version {other.version}"
    for one in story.answers:
        yield _answer(one.said)
    for note in story.notes:
        yield f"note       {note}"


def _answer(said: Prediction) -> str:
    shown = json.dumps(list(said.best) or to_json(said)["answer"], ensure_ascii=False)
    asked = ", ".join(output.model for output in said.outputs) or "no model"
    why = f" ({said.reason})" if said.reason else ""
    when = moment(said.sent_us or said.received_us)
    return f"answer     {when}  {shown}, {said.status.value}{why}, asked {asked}: skysail story {said.query_id}"


def document(story: ContextStory) -> dict[str, Json]:
    """Return the same as JSON values."""
    return {
        "application": story.application,
        "context": story.context,
        "state": story.name,
        "stored": None if story.state is None else to_json(story.state),
        "answers": [document_of(one) for one in story.answers],
        "notes": list(story.notes),
    }
