"""Whatever a policy of somebody's own says, its queries are answered, and the role goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from policies import outside, registry
from tests.conformance.test_one_contract import MODELS, candidates_of, models_for
from tests.loops import Loop, digits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# What each part of a policy may be asked for, and a policy that ships with that part.
PARTS = {
    "steps": "cascade",
    "steps.first": "cascade",
    "steps.after": "cascade",
    "steps.votes": "cascade",
    "steps.confidence": "cascade",
    "vote_weights": "class_vote",
    "vote_weights()": "class_vote",
    "reading": "ridge",
    "reading()": "ridge",
    "reading.rank": "ridge",
    "reading.among": "two_speed",
    "reading.count": "two_speed",
    "features_of": "linucb",
    "combine": "exp4",
    "propensities_in": "linucb",
    "propensities_in()": "linucb",
}
SAYINGS = {
    "nothing": "None",
    "a text": "'x'",
    "no number": "float('nan')",
    "too many": "(float('inf'),) * 5",
    "below": "(-1.0, -1.0, -1.0, -1.0)",
    "many more": "(0, 0.5, 0.5, 0.5, 0.5, 0.5)",
    "a pair": "((1,), 0.5)",
    "a number without end": "10 ** 400",
    "an arm there is not": "{9: 1.0}",
    "an object": "object()",
    "an error": "fail(ZeroDivisionError())",
    "an exit": "fail(SystemExit(3))",
    "an interrupt": "fail(KeyboardInterrupt())",
    "a foul text": "Foul()",
}
OWN = '''
from policies import registry


class Foul:
    def __repr__(self):
        raise BaseException("no")

    __iter__ = __float__ = __getitem__ = __len__ = __repr__


def fail(error):
    raise error


class Part:
    """Another's part, which says something else at one place; calling it is the place `()`."""

    def __init__(self, real, place, say):
        self.__dict__.update(real=real, place=place, say=say)

    def __call__(self, *given):
        return self.say() if self.place == "()" else self.real(*given)

    def __getattr__(self, name):
        if name != self.place:
            return getattr(self.real, name)
        found = getattr(self.real, name)
        return (lambda *given: self.say()) if callable(found) else self.say()


class Hostile:
    def __init__(self, ships="", parameters=(), where="", says=""):
        self.real = registry.create(ships, dict(parameters))
        self.where, self.says = where, says

    def __getattr__(self, name):
        if name.startswith("_") or name in ("real", "where", "says"):
            raise AttributeError(name)
        say = lambda: eval(self.says, {"fail": fail, "Foul": Foul})
        part, dot, place = self.where.replace("()", ".()").partition(".")
        if name in ("features_of", "combine"):
            if part == name:
                return lambda *given: say()
            raise AttributeError(name)
        found = getattr(self.real, name)
        if name != part:
            return found
        if not place:
            return lambda *given: say()
        return lambda *given: Part(found(*given), place, say)

    def init(self, arms):
        return self.real.init(arms)

    def propensities(self, state, arms):
        return self.real.propensities(state, arms)

    def select(self, state, arms, u):
        return self.real.select(state, arms, u)

    def observe(self, state, arms, lesson):
        return self.real.observe(state, arms, lesson)
'''


@pytest.fixture(autouse=True)
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of somebody's own in the folder where everything is started."""
    (tmp_path / "hostile_one.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    outside.allow(None)
    registry.parse.cache_clear()
    outside._class.cache_clear()
    yield
    sys.modules.pop("hostile_one", None)
    registry.parse.cache_clear()
    outside._class.cache_clear()


@pytest.mark.parametrize("says", SAYINGS.values(), ids=SAYINGS.keys())
@pytest.mark.parametrize(("where", "ships"), PARTS.items(), ids=PARTS.keys())
def test_every_query_is_answered_whatever_it_says(where: str, ships: str, says: str) -> None:
    """By default with the reason where it cannot be gone by; else as it says."""
    parameters = [["features", 2], ["items", 3]] if ships == "two_speed" else [["features", 2]]
    given = {"ships": ships, "parameters": [] if ships in {"cascade", "class_vote", "exp4"} else parameters}
    fields = registry.recorded("hostile_one:Hostile", {**given, "where": where, "says": says})
    loop = Loop(models_for(ships), digits(models=MODELS, **fields), is_taped=False)
    for number in range(6):
        loop.query(f"{number}", **candidates_of(ships, number))
        loop.driver.run(seconds=0.3)
        loop.feedback(f"{number}", label=7)
        loop.driver.run(seconds=0.05)
    answers = loop.predictions()
    assert len(answers) == 6
    reasons = {answer.reason for answer in answers}
    assert reasons <= {None, "policy_failed", "not_ranked", "low_confidence", "too_many_features", "model_failed"}
    assert reasons & {"policy_failed", "not_ranked"} or not says.startswith("fail(")
    assert not loop.dead("queries")
