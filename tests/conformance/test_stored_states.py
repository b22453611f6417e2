"""What a log teaches never changes: states that are stored out there are folds of it, and a replay has to find them."""

from __future__ import annotations

import builtins
import struct
from hashlib import sha256
from math import exp, fsum, log
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import pytest

from policies.contract import is_choosing
from policies.draw import uniform
from policies.registry import POLICIES, parse, spec
from schemas.records import Decision, JoinStatus, Observation, Step, Tensor
from streams.operators.learn.fold import Fold
from tests.lessons import WINDOW_US

T = TypeVar("T")
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from policies.contract import State
    from schemas.records import Value

LESSONS = 300
ARMS = ("a", "b", "c")
LOSSES: Final = (0.0, 1.0, 0.25, None)
LABELS: Final = (7, 3, "cat", None)
# SHA-256 of the states, little-endian doubles, after each of 300 lessons about one, two and three arms.
STATES = {
    "cascade": "a3d4a14202bd81ce",
    "cascade(first=2,discount=0.99,budget=0.3)": "7e9b8553e7b31493",
    "class_vote": "a65c6d1df027216d",
    "class_vote(classes=2,discount=1)": "f0ea1e9e6cea8da0",
    "context_tree": "c9befd0b518eeb48",
    "context_tree(features=2)": "cf3d15f95997cd98",
    "discounted_ucb": "44897df4ec04069a",
    "epsilon_greedy": "0733e22a139749b1",
    "exp3": "54dbbd45e18cd0c6",
    "exp3(share=0)": "00dc7c2b6d8e00bd",
    "exp4": "0eca3204c060cdaf",
    "exp4(share=0)": "1e5ee4cd95827927",
    "linear_thompson": "fefadf1b3e6f7356",
    "linucb": "fefadf1b3e6f7356",
    "linucb(features=2)": "26064db81bb2582d",
    "ridge": "826607e723f59e2c",
    "ridge(features=2,low=-2,high=3)": "4104c97345e6282a",
    "single": "e3b0c44298fc1c14",
    "thompson": "1d57d45bb2bf962e",
    "timely": "0eca3204c060cdaf",
    "timely(least=1)": "0eca3204c060cdaf",
    "two_speed": "ed80ead9f7351a1a",
    "two_speed(features=4,together=3)": "1fc89400ece2c88d",
    "ucb1": "0733e22a139749b1",
}
# The C library's logarithm and exponential differ between machines in the last bit.
USUAL = "3fbd4e4079c0ea28"


def packed(values: Sequence[float]) -> bytes:
    """Return numbers as they are stored."""
    return struct.pack(f"<{len(values)}d", *values)


def observation(policy: str, number: int, arms: tuple[str, ...]) -> Observation:
    """Draw one observation with everything that any policy learns from."""
    drawn = iter([uniform(f"{number}/{at}", "golden") for at in range(64)])

    def one_of(values: Sequence[T]) -> T:
        return values[int(next(drawn) * len(values))]

    is_everyone = parse(policy).full_information
    chosen = tuple(range(len(arms))) if is_everyone else (int(next(drawn) * len(arms)),)
    shares = tuple([1.0 if is_everyone else 0.02 + 0.9 * next(drawn) for _ in arms])
    features = tuple([4.0 * next(drawn) - 2.0 for _ in range(int(next(drawn) * 5))])
    losses = tuple([one_of(LOSSES) if arm in chosen else None for arm in range(len(arms))])
    answers = None if next(drawn) < 0.25 else tuple([one_of(LABELS) for _ in arms])
    taken = tuple(
        [
            Step("escalate", (arm,), number, next(drawn), one_of(("asked", "kept", "late")), next(drawn))
            for arm in range(1, len(arms))
        ]
    )
    scores = tuple([None if next(drawn) < 0.1 else Tensor.of(np.array([next(drawn), next(drawn)])) for _ in arms])
    label: Value | None = one_of((2.5, 7, "cat", None, 4.0 * next(drawn) - 2.0))
    if is_choosing(parse(policy)):  # what it answers is one of two items, or none of them
        answers = tuple([int(2.2 * next(drawn)) for _ in arms])
    decision = Decision(chosen, number, "app", policy, arms, shares, features)
    return Observation(
        query_id=f"q{number}",
        application="app",
        context=None,
        decision=decision,
        losses=losses,
        loss=None,
        label=label,
        status=JoinStatus.JOINED,
        predicted_us=number,
        observed_us=number,
        answers=answers,
        steps=taken,
        scores=None if next(drawn) < 0.1 else scores,
    )


def states(policy: str, arms: tuple[str, ...]) -> list[State]:
    """Fold the drawn lessons, one after the other."""
    under_way, found = Fold(None, WINDOW_US), []
    for number in range(LESSONS):
        under_way.take(observation(policy, number, arms), number)
        found.append(under_way.state.values)
    return found


def hashed(policy: str) -> str:
    """Return a hash of every state that the lessons lead through."""
    digest = sha256()
    for count in range(1, len(ARMS) + 1):
        for values in states(policy, ARMS[:count]):
            digest.update(packed(values))
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("text", sorted(STATES))
def test_the_same_log_gives_the_states_that_it_gave(text: str) -> None:
    """To the bit: whatever becomes of the policies' code, what was stored goes on."""
    library = sha256(packed([f(0.001 + 0.01 * at) for at in range(1_000) for f in (exp, log)])).hexdigest()[:16]
    if library != USUAL:
        pytest.skip("this machine's C library has another logarithm or exponential")
    assert hashed(spec(parse(text))) == STATES[text]


@pytest.mark.parametrize("text", sorted(STATES))
def test_no_state_follows_from_how_a_release_of_python_adds_up(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From 3.12 on `sum` of floats rounds once, at the end: the same log is to give the same bits on all."""
    before, add = hashed(spec(parse(text))), sum

    def rounding_once(values: Iterable[float], start: float = 0) -> float:
        kept = [*values]
        return fsum([start, *kept]) if any(type(value) is float for value in kept) else add(kept, start)

    monkeypatch.setattr(builtins, "sum", rounding_once)
    assert hashed(spec(parse(text))) == before


def test_every_policy_is_among_them() -> None:
    """One that is new is named here."""
    assert {parse(text).name for text in STATES} == set(POLICIES)
