"""Crosses of what is known of a query with its candidates: what suits whom, in the whole loop in virtual time."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies import registry
from policies.errors import PolicyError
from schemas.errors import DecodeError
from schemas.records import Cross, Features, Source, Status, Tensor
from streams.operators.configuration import check, check_ranking
from streams.operators.selection.features.crosses import crossed, crosses_of, with_crosses
from tests.loops import CODEC, Loop
from tests.unit.streams.operators.test_answering import computed, rated

if TYPE_CHECKING:
    from schemas.records import Application

USERS, FILMS = Source("users", 2, store="redis"), Source("films", 2, "candidate", "redis")
EITHER = {"users/ann": (1.0, 0.0), "users/bob": (0.0, 1.0), "films/war": (1.0, 0.0), "films/love": (0.0, 1.0)}
CROSS = Cross("users", "films", 4)


def stored(key: str) -> tuple[bytes | None, int]:
    """Return what the store has under a key, after 1 ms."""
    return CODEC.encode(Features(EITHER[key])), 1_000


def shelf(*crosses: Cross, **changes: object) -> Application:
    """Make an application that ranks films for everybody by one state."""
    parameters = {"features": 2.0 + sum(cross.width for cross in crosses), "low": 0.0, "high": 1.0, "gamma": 0.0}
    fields: dict[str, object] = {
        "sources": (USERS, FILMS), "crosses": crosses, "parameters": parameters, "per_context": False, "span": 1.0
    }  # fmt: skip
    return rated(**(fields | changes))


def chosen(application: Application, rounds: int = 40) -> dict[str, str]:
    """Let ann like war and bob love; return which film each is shown first in the end."""
    loop, draw, shown = Loop({"items": computed}, application, features=stored), Random(1), {}
    for _ in range(rounds):
        for user, liked in (("ann", "war"), ("bob", "love")):
            films = tuple(draw.sample(("war", "love"), 2))
            query_id = loop.query(context=user, candidates=films, top=2)
            loop.driver.run(0.2)
            shown[user] = loop.answer(query_id).best[0]
            loop.feedback(query_id, float(shown[user] == liked))
            loop.driver.run(0.5)
    return shown


def test_one_state_learns_what_suits_whom_from_crosses() -> None:
    """Without them it knows films that all like, and here there are none."""
    assert chosen(shelf(CROSS)) == {"ann": "war", "bob": "love"}
    without = chosen(shelf())
    assert without["ann"] == without["bob"]


def test_the_log_has_the_crosses_that_were_ranked() -> None:
    """So learning is a fold of the log, and what was ranked is ranked again without crossing it twice."""
    loop = Loop({"items": computed}, shelf(CROSS), features=stored)
    query_id = loop.query(context="bob", candidates=("war", "love"), top=2)
    loop.driver.run(0.2)
    found = loop.answer(query_id)
    (output,), ranked = found.outputs, found.ranked
    assert ranked is not None
    assert ranked.rows is not None
    assert ranked.rows.numpy().tolist() == [[1, 0, 0, 0, 1, 0], [0, 1, 0, 0, 0, 1]]
    assert output.scores is not None
    assert output.scores.numpy().tolist() == ranked.rows.numpy()[ranked.place].tolist()
    assert found.decision is not None
    assert with_crosses(ranked.rows, found.decision.features, shelf(CROSS), 6) is ranked.rows


def test_features_of_a_query_are_crossed_with_each_other() -> None:
    """The products stand behind those of the sources."""
    application = shelf(Cross("users", "users", 4))
    assert crosses_of((2.0, 3.0), application) == (4.0, 6.0, 6.0, 9.0)
    assert crosses_of((2.0, 3.0), shelf(CROSS)) == ()


def test_more_products_than_places_are_hashed_by_their_place_alone() -> None:
    """The same everywhere; and in the mean over users, products are as alike as before (the kernel is kept)."""
    random = np.random.default_rng(1)
    left, right = random.normal(size=(200, 12)), random.normal(size=(200, 12))
    exact = [crossed(a, b[None], 144)[0] for a, b in zip(left, right, strict=True)]
    hashed = [crossed(a, b[None], 64)[0] for a, b in zip(left, right, strict=True)]
    pairs = [(exact[i] @ exact[i + 1], hashed[i] @ hashed[i + 1]) for i in range(0, 200, 2)]
    apart = np.array([b - a for a, b in pairs])
    assert abs(apart.mean()) < 3 * apart.std() / np.sqrt(len(apart))
    assert np.mean([one @ one for one in hashed]) == pytest.approx(np.mean([one @ one for one in exact]), rel=0.1)
    by_hand = [0.0] * 4
    for at, product in enumerate(np.outer(range(3), range(3)).ravel().tolist()):
        drawn = int.from_bytes(blake2b(str(at).encode(), digest_size=8).digest(), "little")
        by_hand[drawn % 4] += product if drawn >= 2**63 else -product
    assert crossed(np.arange(3.0), np.arange(3.0)[None], 4).tolist() == [by_hand]


@pytest.mark.parametrize(
    ("crosses", "message"),
    [
        ((Cross("users", "clicks", 4),), "name two of the sources, users, films"),
        ((Cross("films", "films", 4),), "both of candidates"),
        ((Cross("users", "films", 0),), "the width of a cross is 0"),
        ((Cross("users", "films", 255),), "more than 256 features together"),
    ],
)
def test_crosses_that_cannot_be_made_are_refused(crosses: tuple[Cross, ...], message: str) -> None:
    """With what to change."""
    with pytest.raises(DecodeError, match=message):
        check(replace(shelf(), crosses=crosses))


def test_crosses_count_among_the_features_of_the_policy() -> None:
    """Widths that do not fit are refused when the application is published."""
    application = replace(shelf(CROSS), parameters=shelf().parameters)
    with pytest.raises(PolicyError, match="features=6"):
        check_ranking(application, registry.policy_of(application))


def test_rows_of_the_client_are_crossed_as_looked_up_ones_are() -> None:
    """They stand where the candidates' source would."""
    loop = Loop({"items": computed}, shelf(CROSS), features=stored)
    rows = Tensor.of(np.array([EITHER["films/war"], EITHER["films/love"]]))
    query_id = loop.query(context="bob", candidates=rows, top=1)
    loop.driver.run(0.2)
    (output,) = loop.answer(query_id).outputs
    assert output.scores is not None
    assert output.scores.shape == (6,)


def test_rows_that_crosses_make_too_wide_are_answered_by_default() -> None:
    """As sent they could be ranked; the message has the width that they come to."""
    wide = Cross("users", "films", 60)
    loop = Loop({"items": computed}, shelf(wide, examination=(1.0, 0.5)), features=stored)
    ann, rows = loop.query(context="ann", candidates=Tensor.of(np.zeros((600, 2)))), Tensor.of(np.zeros((400, 2)))
    bob = loop.query(context="bob", candidates=rows)
    loop.driver.run(0.2)
    found = loop.answer(ann)
    assert (found.status, found.reason, found.decision) == (Status.DEFAULT, "not_ranked", None)
    assert found.message == "600 candidates of 62 features are too many to be ranked at once: name fewer"
    assert loop.answer(bob).status is Status.COMPLETE
