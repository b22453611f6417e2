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
    Value,
)
from schemas.wire import write_long

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.codec import Codec

# Marks: no other field has them.
_SPAN = 1.2345678e-200
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


def tails_of(codec: Codec, forget_us: int) -> tuple[bytes, bytes, bytes]:
    """Return what stands behind the times of an observation: without a span of errors, before one, and behind it.

    Args:
        codec: that writes it.
        forget_us: of its application.
    """
    seen = example(1, None).observation._replace(forget_us=forget_us)
    tail, spanned = [
        codec.encode(seen._replace(span=span)).rpartition(write_long(_ENDED_US))[2] for span in (None, _SPAN)
    ]
    before, _, behind = spanned.partition(struct.pack("<d", _SPAN))
    return tail, before, behind


def written_labels(classes: Iterable[str]) -> frozenset[bytes]:
    """Return the labels that name these classes, as feedback has them: texts, and whole numbers where they are such."""
    found = set()
    for name in classes:
        text = name.encode(errors="surrogatepass")
        found.add(_TEXT + write_long(len(text)) + text)
        if name.removeprefix("-").isdecimal() and str(int(name)) == name and abs(int(name)) < _MOST_LONG:
            found.add(_LONG + write_long(int(name)))
    return frozenset(found)


def are_cut(codec: Codec) -> bool:
    """Tell whether another span stands where `tails_of` says."""
    seen = example(1, None).observation._replace(span=0.5, forget_us=77)
    _, before, behind = tails_of(codec, 77)
    return codec.encode(seen).endswith(write_long(_ENDED_US) + before + struct.pack("<d", 0.5) + behind)


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
