"""What a policy is worth, by those who are held out of it: a person is one value."""

from __future__ import annotations

import numpy as np
import pytest

from schemas.records import Decision, JoinStatus, Observation
from streams.promotion.holdout import HoldoutEvidence, lines
from streams.topology import held_out_state

ALPHA = 0.05
DECIDED = Decision((1,), 7, "shop", "thompson(gamma=0.01)", ("plain", "clever"), (0.4, 0.6))
HELD_OUT = Decision((0,), 0, held_out_state("shop"), "single(arm=0)", ("plain", "clever"), (1.0, 0.0))


def seen(who: str | None, loss: float, *, held_out: bool = False, application: str = "shop") -> Observation:
    """Make an observation."""
    decision = HELD_OUT if held_out else DECIDED
    return Observation("q", application, who, decision, (None, None), loss, None, JoinStatus.JOINED, 0, 0)


def test_a_person_is_one_value_however_often_they_ask() -> None:
    """By hand: two who are decided for cost 0.5 and 0, one who is held out 1; others are left out, and counted."""
    fold = HoldoutEvidence("shop")
    for who, loss, held_out in (("ann", 1.0, False), ("ann", 0.0, False), ("bob", 0.0, False), ("cat", 1.0, True)):
        fold.take(seen(who, loss, held_out=held_out), 0)
    fold.take(seen(None, 1.0), 0)
    fold.take(seen("dan", 1.0, application="other"), 0)
    found = fold.report(ALPHA)
    assert found[:4] == (2, 1, 4, 1)
    assert (found.evidence.pairs, found.evidence.difference) == (1, 0.75)
    assert "left out: 1 answers to queries without a context" in lines("shop", found)


@pytest.mark.parametrize(("saves", "word"), [(0.3, "better"), (-0.3, "worse"), (0.0, "not shown")])
def test_what_the_policy_saves_is_found_and_said(saves: float, word: str) -> None:
    """Four hundred people, a fifth of them held out, who differ from each other; the bounds hold."""
    random = np.random.default_rng(3)
    fold = HoldoutEvidence("shop")
    for who in range(400):
        held_out = random.random() < 0.2
        rate = 0.35 + 0.3 * random.random() - (0.0 if held_out else saves)
        for _ in range(1 + random.geometric(0.1)):
            fold.take(seen(str(who), float(random.random() < rate), held_out=held_out), 0)
    found = fold.report(ALPHA)
    assert found.evidence.lower <= saves <= found.evidence.upper
    assert word in lines("shop", found)[-1]


def test_nobody_held_out_is_said() -> None:
    """With what to set."""
    fold = HoldoutEvidence("shop")
    fold.take(seen("ann", 1.0), 0)
    (line,) = lines("shop", fold.report(ALPHA))
    assert "nobody who has asked shop was held out of the policy: set `holdout`" in line
