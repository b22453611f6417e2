"""`skysail model rollback`: back to the version that served before, whichever way the one that serves came to serve."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli import going_back, skysail
from deploy.cli.going_back import told
from deploy.config.settings import Settings
from deploy.errors import UsageError
from deploy.state import catalog, desired, packages
from deploy.state.candidates import carry_out
from deploy.state.history import MOST, following, last_served, way_back
from deploy.state.version_losses import Fared
from deploy.watch.aspired import AspirePolicy, aspired
from schemas.codec import Codec
from schemas.records import Model, Service
from streams.promotion.lifecycle import step
from streams.promotion.verdict import Action, Verdict
from tests.comparisons import DECISION, canary, plan, seen

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streams.promotion.evidence import Evidence

CODEC = Codec()
SECOND_US = 1_000_000


def version(name: str) -> Model:
    """Make the record of a version's package."""
    return Model("forest", name, "function", f"models/{name}", f"d{name}", "label", "float32", (1,))


class Deployed:
    """A catalog in memory with version 1 of forest, in the place of the broker's, and the commands that change it.

    Attributes:
        serving: the version that serves.
        listed: those that are known.
        fared: what observations say, of the version that is gone back to.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.serving, self.listed = version("1"), [version("1")]
        self.fared: Fared | None = None
        self._folder = folder
        monkeypatch.chdir(folder)
        monkeypatch.setattr(catalog, "read", lambda *_: {"forest": self.serving})
        monkeypatch.setattr(catalog, "versions", lambda *_: {"forest": [*self.listed]})
        monkeypatch.setattr(catalog, "know", lambda _settings, _codec, model: self.listed.append(model))
        monkeypatch.setattr(catalog, "serve", lambda _settings, _codec, model: self.serve(model))
        monkeypatch.setattr(catalog, "publish", lambda _settings, _codec, models: self.publish(models))
        monkeypatch.setattr(desired, "add", partial(desired.add, create_topics=lambda *_: None))
        monkeypatch.setattr(packages, "model_record", lambda path, _: version(path.name.partition("-")[2]))
        monkeypatch.setattr(going_back, "fared", lambda *given: self.fared or Fared(given[2], given[3]))

    def serve(self, model: Model) -> None:
        """Take a record as the broker would: encoded and decoded."""
        self.serving = CODEC.decode(Model, CODEC.encode(model))

    def publish(self, models: Iterable[Model]) -> None:
        """Take new versions, which serve."""
        for model in models:
            self.listed.append(replace(model, shares={}, served=(), since_us=0))
            self.serve(model)

    def run(self, *words: str) -> str:
        """Run a command of `skysail model`; returns what it printed."""
        result = CliRunner(env=dict(os.environ)).invoke(skysail, ["model", *words], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return result.stdout

    def add(self, name: str, *options: str) -> str:
        """Add a version's package."""
        folder = self._folder / f"forest-{name}"
        folder.mkdir(exist_ok=True)
        return self.run("add", str(folder), *options)


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Deployed:
    """Version 1 of forest serves."""
    return Deployed(monkeypatch, tmp_path)


def test_it_goes_back_to_what_served_and_not_to_what_was_taken_back(deployed: Deployed) -> None:
    """Version 2 was a canary, and was taken back, before 3 took over from 1."""
    deployed.add("2", "--share", "0.3")
    assert "forest 2 ends" in deployed.run("rollback", "forest")
    deployed.add("3", "--shadow")
    assert "to go back: skysail model rollback forest" in deployed.run("use", "forest", "3")
    assert deployed.run("rollback", "forest").startswith("forest 1 serves again, no longer 3")
    assert deployed.serving.version == "1"
    with pytest.raises(UsageError, match=r"no version of forest is known to have served before 1.*There are 2, 3"):
        deployed.run("rollback", "forest")


def test_a_version_that_was_taken_back_is_not_gone_back_to_later(deployed: Deployed) -> None:
    """Whether by `rollback` or by its predecessor's name."""
    deployed.add("2")
    deployed.run("rollback", "forest")
    deployed.add("3")
    deployed.run("use", "forest", "1")
    deployed.add("4")
    deployed.run("rollback", "forest")
    assert deployed.serving.version == "1"
    assert [service.version for service in deployed.serving.served] == []


def test_it_goes_back_step_by_step_through_all_that_served(deployed: Deployed) -> None:
    """Each that served was taken over from, and is served by again in turn."""
    for name in ("2", "3", "4"):
        deployed.add(name)
    found = []
    for _ in range(3):
        deployed.run("rollback", "forest")
        found.append(deployed.serving.version)
    assert found == ["3", "2", "1"]


def test_the_way_back_that_a_command_tells_is_one(deployed: Deployed) -> None:
    """Version 1, added again after 2 and 3, is gone back to; nothing served before it."""
    assert deployed.add("2").endswith("to go back: skysail model rollback forest\n")
    deployed.add("3")
    assert deployed.add("1").endswith("to go back: skysail model use forest 3\n")
    assert deployed.run("use", "forest", "3").endswith("to go back: skysail model rollback forest\n")
    deployed.run("rollback", "forest")
    assert deployed.serving.version == "1"
    assert "to go back" not in deployed.add("1")
    assert "none: skysail model canary forest 3 --share 0" in deployed.run("canary", "forest", "3", "--share", "0.2")


def test_a_candidate_that_took_over_by_itself_and_went_back_is_not_gone_back_to(deployed: Deployed) -> None:
    """Nor where the record is of a release that had no history."""
    deployed.add("2", "--share", "0.3")
    taken = step(plan(), Verdict(Action.PROMOTE, 1.0, "it is better"), evidence(), 1)
    carry_out(Settings(), CODEC, taken)
    assert [service.version for service in deployed.serving.served] == ["1"]
    back = step(plan(), Verdict(Action.BACK, 0.0, "it is worse"), evidence(), 2)
    for history in (deployed.serving.served, ()):
        deployed.serve(replace(deployed.listed[1], served=history))
        carry_out(Settings(), CODEC, back)
        assert (deployed.serving.version, deployed.serving.served) == ("1", ())


def test_a_record_of_an_earlier_release_names_what_there_is(deployed: Deployed) -> None:
    """It does not guess by the order of addition."""
    deployed.listed += [version("2"), version("3")]
    deployed.serve(version("3"))
    with pytest.raises(
        UsageError, match=r"before there was a history. There are 1, 2: skysail model use forest VERSION"
    ):
        deployed.run("rollback", "forest")
    deployed.add("4")
    deployed.run("rollback", "forest")
    assert deployed.serving.version == "3"


def test_what_served_and_answers_a_share_is_asked_about(deployed: Deployed) -> None:
    """It may be a holdback, or the way back tried on a share: one command would be the wrong one."""
    deployed.add("2")
    deployed.run("canary", "forest", "1", "--share", "0.05")
    with pytest.raises(UsageError, match=r"go back to it: skysail model use forest 1; to end it: skysail model canary"):
        deployed.run("rollback", "forest")
    assert deployed.serving.shares == {"1": 0.05}


def test_a_version_that_is_known_to_be_worse_is_refused_unless_forced(deployed: Deployed) -> None:
    """By what both cost side by side."""
    deployed.add("2")
    deployed.fared = Fared(deployed.serving, "1")
    for number in range(300):
        deployed.fared.take(seen(f"q{number}", {"1": 1.0, "2": 0.0}), number)
    with pytest.raises(UsageError, match=r"forest 1 is worse than 2: 300 comparisons; .*rollback forest --force"):
        deployed.run("rollback", "forest")
    assert deployed.serving.version == "2"
    found = json.loads(deployed.run("rollback", "forest", "--force", "--json"))
    assert (found["served"], found["serves"], deployed.serving.version) == ("2", "1", "1")


def test_a_folder_that_is_watched_keeps_the_history() -> None:
    """A version that comes takes over from the one that served; if it leaves, nobody goes back to it."""
    one = replace(version("1"), since_us=5)
    first = aspired([version("1"), version("2")], [version("1")], one, AspirePolicy(latest=2), 7)
    assert first.serving is not None
    assert (first.serving.since_us, first.serving.served) == (7, (Service("1", 5, 7),))
    again = aspired([version("1")], [version("1"), version("2")], first.serving, AspirePolicy(latest=2), 9)
    assert again.serving is not None
    assert (again.serving.version, again.serving.since_us, again.serving.served) == ("1", 9, ())


def test_known_versions_have_no_history(monkeypatch: pytest.MonkeyPatch) -> None:
    """It belongs to the record of the version that serves."""
    written: list[tuple[str, str, bytes | None]] = []
    monkeypatch.setattr(catalog, "write", lambda _, records: written.extend(records))
    catalog.publish(Settings(), CODEC, [replace(version("2"), since_us=7, served=(Service("1", 5, 7),))])
    found = {key: CODEC.decode(Model, value) for _, key, value in written if value is not None}
    assert (found["forest@2"].served, found["forest@2"].since_us) == ((), 0)
    assert found["forest"].served == (Service("1", 5, 7),)


@given(st.lists(st.sampled_from("12345"), max_size=30))
def test_whoever_is_gone_back_to_has_served_and_was_not_taken_back(changes: list[str]) -> None:
    """By another account: of each version, when it served last and when it was taken back last."""
    serving, served_at, back_at = version("1"), {"1": 0}, dict.fromkeys("12345", -1)
    order = {"1": 0}  # when each began that can be gone back to
    for now, name in enumerate(changes, start=1):
        before = serving
        serving = following(version(name), serving, now)
        if name != before.version and name in order and served_at[name] > back_at[name]:
            for other, began in [*order.items()]:
                if began > order[name]:
                    del order[other]
                    back_at[other] = now
        elif name != before.version:
            order[name] = now
        served_at[name] = now
    expected = sorted((began, name) for name, began in order.items() if name != serving.version)
    assert [service.version for service in serving.served] == [name for _, name in expected]
    found = last_served(serving, "12345")
    assert (found.version if found else None) == (expected[-1][1] if expected else None)


def test_the_history_is_bounded_and_leaves_out_what_is_unknown() -> None:
    """The first ones are forgotten."""
    serving = version("0")
    for number in range(1, 2 * MOST):
        serving = following(version(f"{number}"), serving, number)
    assert len(serving.served) == MOST
    assert last_served(serving, {f"{2 * MOST - 3}"}) == Service(f"{2 * MOST - 3}", 2 * MOST - 3, 2 * MOST - 2)
    assert way_back(version("7"), serving) == "model use forest 7"


def test_it_says_how_long_both_versions_served_and_what_they_cost() -> None:
    """Observations name versions only while there are several; else the history tells whose answer it was."""
    serving = replace(version("2"), since_us=8_000 * SECOND_US, served=(Service("1", SECOND_US, 8_000 * SECOND_US),))
    known = Fared(serving, "1")
    for number, (time_s, loss) in enumerate([(0, 1.0), (10, 0.0), (20, 0.5), (8_010, 1.0)]):
        alone = seen(f"q{number}", {})._replace(losses=(loss,), predicted_us=time_s * SECOND_US, decision=DECISION)
        known.take(alone, time_s * SECOND_US)
    known.take(seen("both", {"1": 0.0, "2": 0.0}), 0)
    lines = told(serving, serving.served[0], known, 8_030 * SECOND_US)
    assert lines[0] == "forest 1 serves again, no longer 2, as soon as its workers have loaded it"
    assert lines[1].startswith("forest 1 served for 2 h 13 min, until ")
    assert lines[1].endswith("mean loss 0.167 of 3 answers")
    assert lines[2].startswith("forest 2 served for 30 s, until ")
    assert lines[2].endswith("mean loss 0.500 of 2 answers")
    assert lines[3].startswith("side by side, by 1 comparisons: 1 cost 0.000 less an answer than 2 [-1.000, 1.000]")
    assert lines[-1] == "to undo that: skysail model use forest 2"


def evidence() -> Evidence:
    """Return what is known before anything is."""
    known = Fared(version("1"), "2")
    for observed, _ in zip(canary(1, 0.5, 0.1, 0.2), range(10), strict=False):
        known.take(observed, 0)
    return known.evidence
