"""What records about joins have in common, cut from what the codec writes: there is no second schema.

    marks ─▶ Codec.encode ─▶ cut ─▶ pieces ─▶ columns read and write other marks: the same bytes?

A change of a schema changes the pieces by itself. Where columns do not write what the codec writes, they are not used.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from policies import registry
from policies.class_vote import ClassVote
from schemas import framing
from schemas.records import (
    Decision,
    Feedback,
    JoinStatus,
    ModelOutput,
    Observation,
    Observations,
    Outcome,
    Prediction,
    Status,
    TeachingBound,
    Value,
)
from schemas.wire import write_long

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.codec import Codec

# Marks: no other field has them.
_SPAN = 1.2345678e-200
_TEACHER = "a teacher's name"
_LONG, _TEXT = write_long(1), write_long(3)  # branches of a label
_MOST_LONG = 1 << 63
_BEGUN_US, _ENDED_US = 1_234_567_890_123_457, 1_234_567_890_654_000


class JoinForms(NamedTuple):
    """Framings of the records that columns read and write."""

    prediction: bytes
    feedback: bytes
    one: bytes  # observation
    several: bytes


class Example(NamedTuple):
    """A prediction, its feedback, and what comes of them."""

    prediction: Prediction
    feedback: Feedback
    observation: Observation


def join_forms(codec: Codec) -> JoinForms:
    """Return the framings of a codec's records."""
    one = example(1, None).observation
    records = example(1, None)[:2]
    return JoinForms(*[framed(codec.encode(record)) for record in (*records, one, Observations((one, one)))])


def framed(value: bytes) -> bytes:
    """Return what stands before a record."""
    return value[: framing.SINGLE_OBJECT_BYTES if value[0] else framing.CONFLUENT_BYTES]


class Tails(NamedTuple):
    """What stands behind the times of an application's observations; if they are bounded, up to the teacher's name."""

    plain: bytes
    before: bytes  # a span
    behind: bytes  # it
    after: bytes | None  # the name of the teacher; None = they are not bounded


def tails_of(codec: Codec, forget_us: int, most: int = 0, most_context: int = 0) -> Tails:
    """Return what stands behind the times of an observation.

    Args:
        codec: that writes it.
        forget_us: of its application.
        most: lessons of one teacher, as a `TeachingBound` has them.
        most_context: and of one context.
    """
    bound = TeachingBound(_TEACHER, most, most_context) if most or most_context else None
    seen = example(1, None).observation._replace(forget_us=forget_us, bound=bound)
    tail, spanned = [
        codec.encode(seen._replace(span=span)).rpartition(write_long(_ENDED_US))[2] for span in (None, _SPAN)
    ]
    before, _, behind = spanned.partition(struct.pack("<d", _SPAN))
    if bound is None:
        return Tails(tail, before, behind, None)
    name = text_of(_TEACHER)
    return Tails(tail.partition(name)[0], before, *behind.partition(name)[::2])


def text_of(text: str) -> bytes:
    """Return a text as records have it."""
    written = text.encode(errors="surrogatepass")
    return write_long(len(written)) + written


def written_labels(classes: Iterable[str]) -> frozenset[bytes]:
    """Return the labels that name these classes, as feedback has them: texts, and whole numbers where they are such."""
    found = set()
    for name in classes:
        found.add(_TEXT + text_of(name))
        if name.removeprefix("-").isdecimal() and str(int(name)) == name and abs(int(name)) < _MOST_LONG:
            found.add(_LONG + write_long(int(name)))
    return frozenset(found)


def are_cut(codec: Codec) -> bool:
    """Tell whether another span, and another teacher, stand where `tails_of` says."""
    seen, times = example(1, None).observation._replace(span=0.5, forget_us=77), write_long(_ENDED_US)
    tails, bounded = tails_of(codec, 77), tails_of(codec, 77, 5, 6)
    spanned = times + tails.before + struct.pack("<d", 0.5) + tails.behind
    named = times + bounded.plain + text_of("web") + (bounded.after or b"")
    with_name = seen._replace(span=None, bound=TeachingBound("web", 5, 6))
    return codec.encode(seen).endswith(spanned) and codec.encode(with_name).endswith(named)


def example(answer: Value, context: str | None, name: str = "q\N{LATIN SMALL LETTER E WITH ACUTE}") -> Example:
    """Return records of marks, of a query that one of three models has answered.

    Args:
        answer: of the model; the label says otherwise.
        context: of the query.
        name: its id.
    """
    decision = Decision((1,), 300, "state", "single(arm=1)", ("a", "b", "c"), (0.25, 0.5, 0.25))
    output = ModelOutput("b", "7", Outcome.OK, answer)
    times = (1, 2, 3, _BEGUN_US)
    told = f"{answer}!" if isinstance(answer, str) else -77
    return Example(
        Prediction(name, "app", context, decision, Status.COMPLETE, None, answer, 0.5, (output,), *times, "token"),
        Feedback(name, told, None, 9),
        Observation(
            name, "app", context, decision, (None, 1.0, None), 1.0, told, JoinStatus.JOINED, _BEGUN_US, _ENDED_US
        ),
    )


def voted(answers: tuple[int | str, ...], name: str = "q") -> Example:
    """Return the same of a query to all models, whose policy learns from what they have answered; all were wrong."""
    one, policy = example(answers[0], None, name), registry.spec(ClassVote())
    arms = tuple([f"model {number}" for number in range(len(answers))])
    shares = (1.0,) * len(arms)
    decision = Decision(tuple(range(len(arms))), 300, "state", policy, arms, shares)
    outputs = tuple([ModelOutput(arm, "7", Outcome.OK, given) for arm, given in zip(arms, answers, strict=True)])
    return Example(
        one.prediction._replace(decision=decision, outputs=outputs),
        one.feedback,
        one.observation._replace(decision=decision, losses=shares, answers=answers),
    )


ENDED_US: Final = _ENDED_US
EXAMPLES: Final = (
    example(3, None),
    example("text", "user \N{SNOWMAN}"),
    example(-(2**40), "u"),
    voted(("one", "two", "one")),
    voted((7, -(2**40), 7)),
)
