"""Which dead letters a command means."""

from __future__ import annotations

import pytest

from deploy.state.letters import LettersWanted
from schemas.codec import Codec
from schemas.records import Query
from streams.dead_letters.letter import Letter, read
from streams.operators.contract import DeadLetter, Record
from streams.runtime.role.dead_letters import DeadLetters

CODEC = Codec()


def letter(value: bytes) -> Letter:
    """Return a letter of a query as a role writes it."""
    emit = DeadLetters("selection", "1").emit(DeadLetter(Record("queries", 0, 1, 2, b"k", value), "refused", ""))
    found = read(Record(emit.topic, 0, 5, 9_000, emit.key, emit.value, emit.headers))
    assert isinstance(found, Letter)
    return found


QUERY = Query("q", "fraud", "a text")


@pytest.mark.parametrize(
    ("application", "is_meant"),
    [(None, (True, True)), ("fraud", (True, False)), ("", (False, True)), ("digits", (False, False))],
)
def test_an_empty_name_means_letters_that_tell_of_no_application(
    application: str | None, is_meant: tuple[bool, bool]
) -> None:
    """A row of the page that tells of none would else have sent again nothing, or the letters of all."""
    wanted = LettersWanted(application=application)
    named, unreadable = letter(CODEC.encode(QUERY)), letter(b"no record")
    assert (wanted.has(named, CODEC), wanted.has(unreadable, CODEC)) == is_meant
