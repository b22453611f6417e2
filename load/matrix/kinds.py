"""Applications that are asked; what asking and telling each is as a record: Skysail's own, or JSON of others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from schemas import topics
from schemas.codec import Codec
from schemas.records import Feedback, Query, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

EVERY: Final = 50
VALUES: Final = 16
USERS: Final = 12
_CODEC: Final = Codec()


class Kind(NamedTuple):
    """An application that is asked, and whether its queries have a context.

    Attributes:
        application: its name.
        has_context: whether there is a state for each user.
        has_default_loss: whether silence teaches it.
        asks: the topic from which its queries come.
        tells: the topic from which its feedback comes.
        answers: the topic to which its answers go besides; empty = none.
    """

    application: str
    has_context: bool
    has_default_loss: bool
    asks: str = topics.QUERIES
    tells: str = topics.FEEDBACK
    answers: str = ""


class Written(NamedTuple):
    """A record that is to be written, its topic without the prefix."""

    topic: str
    key: bytes
    value: bytes


def kind_of(kinds: Sequence[Kind], number: int) -> Kind:
    """Return who is asked the query of a number: whatever is special about one of fifty meets all in turn."""
    return kinds[(number % EVERY + number // EVERY) % len(kinds)]


def asked(kinds: Sequence[Kind], number: int, sent_us: int) -> Written:
    """Return the query of a number."""
    kind, name, row = kind_of(kinds, number), f"q{number}", number % VALUES
    if kind.asks != topics.QUERIES:
        return Written(kind.asks, name.encode(), json.dumps({"id": name, "value": row}).encode())
    context = f"user-{number // len(kinds) % USERS}" if kind.has_context else None
    query = Query(name, kind.application, Tensor.of(np.full(1, row, np.float32)), context, sent_us)
    return Written(kind.asks, (context or name).encode(), _CODEC.encode(query))


def told(kinds: Sequence[Kind], number: int, sent_us: int) -> Written:
    """Return the feedback on the query of a number, under the same key."""
    kind, query = kind_of(kinds, number), asked(kinds, number, sent_us)
    return _feedback(kind, query.key, f"q{number}", truth(number), sent_us)


def stray(kinds: Sequence[Kind], number: int, sent_us: int) -> Written:
    """Return feedback on a query that nobody asked."""
    return _feedback(kind_of(kinds, number), b"stray", f"stray{number}", 1, sent_us)


def _feedback(kind: Kind, key: bytes, name: str, label: int, sent_us: int) -> Written:
    if kind.tells != topics.FEEDBACK:
        return Written(kind.tells, key, json.dumps({"id": name, "label": label}).encode())
    return Written(kind.tells, key, _CODEC.encode(Feedback(name, label=label, sent_us=sent_us)))


def truth(number: int) -> int:
    """Return what was right: the row, in one of five cases another one."""
    return number % VALUES + (number // VALUES % 5 == 0)
