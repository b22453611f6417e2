"""`skysail model compare` and `skysail app holdout` by a recorded log alone: a week, read after it has ended."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.errors import UsageError
from load.scenarios.learning.ab_week import APPLICATION, CANDIDATE, INCUMBENT, MODEL, logged
from schemas import topics
from schemas.codec import Codec
from schemas.records import Model
from streams.operators.contract import Record
from streams.trace.manifest import TraceManifest
from streams.trace.writer import TraceWriter

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

PEOPLE, BETTER, DEARER = 800, 0.2, 0.4
WISH = f"{MODEL}@{CANDIDATE}"


@pytest.fixture(scope="module")
def week() -> list[Record]:
    """Return the log of a week in which version 2 errs less, and is refunded more than its guardrail allows."""
    return logged(PEOPLE, 4, BETTER, 0.2, DEARER)


@pytest.fixture(scope="module")
def trace(week: list[Record], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which it is recorded."""
    return recorded(tmp_path_factory.mktemp("week"), week)


def recorded(folder: Path, log: list[Record]) -> Path:
    """Record a log."""
    with TraceWriter(folder / "trace", TraceManifest("shop", "0", {})) as writer:
        for topic in {each.topic for each in log}:
            writer.expect(topic, {0: 0})
        writer.add(log)
    return folder / "trace"


def said(*arguments: object) -> str:
    """Run a command and return what it prints."""
    result = CliRunner().invoke(skysail, [str(one) for one in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def compared(trace: Path, *more: str, wish: str = WISH) -> dict[str, Any]:
    """Return what is said of two versions."""
    return dict(json.loads(said("model", "compare", wish, trace, "--json", *more)))


def test_a_week_is_read_from_its_log(trace: Path) -> None:
    """Each person counts once, the bounds hold the truth, and the broken guardrail is found."""
    found = compared(trace)
    evidence = found["evidence"]
    assert evidence["lower"] <= BETTER <= evidence["upper"]
    assert evidence["lower"] > 0.0
    assert (found["both"], found["by_person"], found["wanted"], found["drawn_otherwise"]) == (0, True, 0.5, False)
    held_out = json.loads(said("app", "holdout", APPLICATION, trace, "--json"))
    assert held_out["held_out"] + held_out["policy"] == PEOPLE
    assert found["candidate"] + found["incumbent"] >= held_out["policy"]  # some are drawn anew within the week
    (refunds,) = found["metrics"]
    assert refunds["lower"] <= -DEARER <= refunds["upper"]
    assert refunds["verdict"] == "its guardrail is broken"
    assert held_out["evidence"]["lower"] <= BETTER / 2 <= held_out["evidence"]["upper"]


def test_it_is_said_for_people(trace: Path) -> None:
    """Losses of both, the difference, each metric, and how many have met the version."""
    lines = said("model", "compare", WISH, trace).splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["draws", "mean"], ["version", "2"], ["version", "1"]]
    assert lines[3].endswith("a query, by person: it is better")
    assert lines[4].startswith("shop refunds: ")
    assert lines[4].endswith("at most 0.1 worse: its guardrail is broken")
    assert lines[5].endswith("of the draws met version 2; its share is 0.5")
    assert len(lines) == 6


def test_the_other_way_round_is_the_same_with_the_other_sign(trace: Path) -> None:
    """After a version has taken over, too, the two can be compared."""
    back = compared(trace, "--against", CANDIDATE, wish=f"{MODEL}@{INCUMBENT}")
    assert back["evidence"]["difference"] == pytest.approx(-compared(trace)["evidence"]["difference"])
    assert back["metrics"][0]["verdict"] == "its guardrail holds"


def test_a_share_that_was_not_drawn_is_told(week: list[Record], tmp_path: Path) -> None:
    """Were the share 0.8, so few people would not have met the version by chance."""
    codec, found = Codec(), list[Record]()
    for record in week:
        if record.topic == topics.MODELS and record.value is not None:
            model = codec.decode(Model, record.value)
            object.__setattr__(model, "shares", {CANDIDATE: 0.8})
            found.append(record._replace(value=codec.encode(model)))
        else:
            found.append(record)
    lines = said("model", "compare", WISH, recorded(tmp_path, found)).splitlines()
    assert lines[-1].startswith("that is no chance: the share was another one for a time")


def test_the_last_days_alone_count_where_that_is_asked_for(trace: Path) -> None:
    """From the end of the log, whenever that is read."""
    few, all_of_it = compared(trace, "--since", "2d"), compared(trace, "--since", "8d")
    assert 0 < few["candidate"] + few["incumbent"] < all_of_it["candidate"] + all_of_it["incumbent"]
    assert all_of_it == compared(trace)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nobody@2"], "there is no model nobody; there are: offers"),
        ([MODEL], "offers names no version; write it as offers@2"),
        ([f"{MODEL}@1"], "offers 1 serves; name the version that it is compared with"),
        ([WISH, "--application", "zoo"], "zoo does not ask offers"),
    ],
)
def test_what_cannot_be_compared_is_refused(trace: Path, arguments: list[str], told: str) -> None:
    """With what there is."""
    result = CliRunner().invoke(skysail, ["model", "compare", arguments[0], str(trace), *arguments[1:]])
    assert isinstance(result.exception, UsageError)
    assert told in str(result.exception)
