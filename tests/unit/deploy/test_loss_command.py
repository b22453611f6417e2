"""`skysail loss check`: what a loss of one's own promises, and in which words it is told what it breaks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli.loss import loss as command
from policies.errors import LossError
from policies.loss_rules import rule, written
from tests.loops import Loop, digits

if TYPE_CHECKING:
    from pathlib import Path

LOSSES = """
import numpy as np

def words(label, answer):
    '''The part of the words that are not in both.'''
    told, said = set(label.split()), set(answer.split())
    return 1.0 - len(told & said) / max(len(told | said), 1)

def money(label, answer):
    return abs(label - answer)

def counting(label, answer, counted=[0]):
    counted[0] += 1
    return counted[0] / 1e6

def hashed(label, answer):
    return abs(hash(str(label) + str(answer))) % 997 / 997

def negative(label, answer):
    return label - answer

def nothing(label, answer):
    return 0

def three(label, answer, more):
    return 0

def fails(label, answer):
    raise RuntimeError("of private things")

def changing(label, answer):
    label *= 2
    return float(np.abs(label - answer).sum() > 0)

class Cost:
    pass
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with a module of losses, in which the command is given."""
    (tmp_path / "their_losses.py").write_text(LOSSES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def told(name: str, *options: str) -> tuple[int, str]:
    """Return the exit code of a check, and what it printed."""
    found = CliRunner().invoke(command, ["check", f"their_losses:{name}", *options])
    return found.exit_code, found.output if found.exception is None else found.output + str(found.exception)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("words", (), "takes texts:"),
        ("money", ("--span", "1000"), "10 of 36 costs are above the span of 1000, and count as 1"),
    ],
)
def test_a_loss_that_keeps_its_promises_is_told_what_it_takes(name: str, options: tuple[str, ...], says: str) -> None:
    """And how long a row takes."""
    code, output = told(name, *options)
    assert code == 0, output
    assert says in output
    assert " us a row" in output


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("counting", "cost 1e-06, then"),
        ("hashed", "it depends on the order of a set, or on the process"),
        ("negative", "it returned -"),
        ("nothing", "all of these cost 0"),
        ("three", "it cannot be called with two values"),
        ("fails", "RuntimeError: of private things"),
        ("changing", "became"),
    ],
)
def test_a_broken_promise_is_told(name: str, says: str) -> None:
    """The command ends with 1."""
    code, output = told(name)
    assert (code, says in output) == (1, True), output


def test_costs_that_are_all_above_the_span_cannot_be_told_apart() -> None:
    """It says to make the span larger."""
    code, output = told("money", "--span", "0.01")
    assert (code, "so all would cost 1: make it larger" in output) == (1, True), output


def test_what_is_no_function_is_refused() -> None:
    """A class, and what there is not."""
    assert "is a class; name a function" in told("Cost")[1]
    assert "cannot be imported here" in told("nowhere")[1]


def test_ones_own_pairs_are_tried(folder: Path) -> None:
    """Labels and answers as one has them, and a verdict that programs read."""
    (folder / "pairs.jsonl").write_text('["a b", "a c"]\n["a", "a"]\n')
    code, output = told("words", "--pairs", "pairs.jsonl", "--json")
    assert (code, json.loads(output)["takes"], json.loads(output)["broken"]) == (0, ["given"], 0)


def test_it_is_learnt_by_in_the_loop(folder: Path) -> None:
    """Every model is charged what the function says, by the label and what it answered."""
    loop = Loop(
        {"good": lambda _: "the cat", "bad": lambda _: "a dog"},
        digits(policy="exp4", loss=written({"own": "their_losses:words"}).text),
    )
    query_id = loop.query()
    loop.driver.run(0.1)
    loop.feedback(query_id, label="the cat sat")
    loop.driver.run(0.1)
    ((_, seen),) = loop.observations()
    assert (*map(float, filter(None, seen.losses)), seen.worth) == pytest.approx((1 / 3, 1.0, 1.0))


def test_what_it_raises_is_about_that_feedback_and_quotes_nothing() -> None:
    """The words of a stranger's error may quote an input: they stay out of dead letters."""
    with pytest.raises(LossError, match=r"their_losses:fails fails: RuntimeError; its answer says the words"):
        rule("their_losses:fails").loss(1, 2)
    with pytest.raises(LossError, match=r"returned -1\.0; a cost is a number, 0 at least"):
        rule("their_losses:negative").loss(2, 1)
    with pytest.raises(LossError, match="the answer is nothing"):
        rule("their_losses:money").loss(None, 1)


def test_costs_are_parts_of_the_span() -> None:
    """And what costs more costs 1."""
    found = rule("their_losses:money")
    assert [found.loss(answer, 0.0, span=50.0) for answer in (5.0, 50.0, 500.0)] == [0.1, 1.0, 1.0]
    assert found.worth(50.0) == 50.0
