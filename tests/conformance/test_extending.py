"""Policies and models of somebody's own, exactly as docs/extending.md shows them, from a folder of one's own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli.policy import policy as command
from deploy.state.desired import begins_anew
from policies import outside, registry
from policies.errors import PolicyError
from policies.laws import LAWS, verdicts
from schemas.records import PolicyState
from streams.evaluation.candidate import candidate
from streams.evaluation.errors import EvaluationError
from streams.operators.learn.fold import fold
from streams.operators.policy_state import state_of
from tests.loops import Loop, digits
from workers.errors import PackageError
from workers.packages.loading import load_package
from workers.packages.packaging import package_container, package_files

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Application

DOCS = Path(__file__).parents[2] / "docs"
NAME = "own_pkg.mine:TopTwo"
WORDS = """
from dataclasses import dataclass


@dataclass(frozen=True)
class Fixed:
    names: tuple = ("a", "b")
    fails: str = ""

    def init(self, arms):
        return (0.0,)

    def propensities(self, state, arms):
        return (1.0,) * arms

    def select(self, state, arms, u):
        return [0] if self.fails == "select" else range(arms)

    def observe(self, state, arms, lesson):
        return (state[0] + sum(loss for loss in lesson.losses if loss is not None),)

    def combine(self, state, arms, outputs):
        if self.fails == "combine":
            raise RuntimeError("no")
        return f"{len(outputs)} say {outputs[0].answer}", 0.75
"""


def loop_application(policy: str, models: tuple[str, ...], options: str = "") -> Application:
    """Make an application of that policy."""
    return digits(policy=policy, models=models, options=options)


def stored(name: str) -> PolicyState:
    """A state of the policy that has learnt something."""
    policy = registry.parse(name)
    values = tuple([value + 1.0 for value in policy.init(2)])
    return PolicyState(registry.spec(policy), ("a", "b"), 7, values)


def block(page: str, number: int) -> str:
    """Return one of a page's Python examples."""
    return (DOCS / page).read_text(encoding="utf-8").split("```python\n")[number].split("```", 1)[0]


def after(page: str, words: str) -> str:
    """Return the rest of the Python example that begins with these words."""
    return (DOCS / page).read_text(encoding="utf-8").split(f"```python\n{words}")[1].split("```", 1)[0]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a package in it, in which everything is started."""
    package = tmp_path / "own_pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "mine.py").write_text(block("extending.md", 1))
    (package / "text.py").write_text(block("extending.md", 2))
    (package / "model.py").write_text(block("extending.md", 3))
    (package / "matrix.py").write_text('"""Runs a matrix' + after("runtimes.md", '"""Runs a matrix'))
    (package / "words.py").write_text(WORDS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    registry.parse.cache_clear()
    outside._class.cache_clear()
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "own_pkg"]:
        del sys.modules[name]
    registry.parse.cache_clear()
    outside._class.cache_clear()
    outside.allow(None)


def test_the_policy_of_the_page_obeys_every_law() -> None:
    """So the command says, with a verdict on each."""
    said = CliRunner().invoke(command, ["check", NAME])
    assert said.exit_code == 0, said.output
    assert said.output.count("\n") == len(LAWS) + 1
    assert f"{NAME}(gamma=0.1): 14 laws hold, 0 are broken, 7 do not apply (-)" in said.output


def test_a_broken_law_is_told_with_what_was_found() -> None:
    """A policy that always asks the first arm, and claims to ask all."""
    broken = {verdict.law: verdict.fault for verdict in verdicts(registry.parse('own_pkg.words:Fixed(fails="select")'))}
    told = broken["Over all draws `select` asks each arm as often as its propensity says."]
    assert told == "2 arms: arm 1 is asked in 0.00% of all draws, where its propensity is 100.00%"
    assert CliRunner().invoke(command, ["check", 'own_pkg.words:Fixed(fails="select")']).exit_code == 1


def test_a_query_asks_the_two_best_and_learns_from_both() -> None:
    """Of three models the bad one is left alone; what the log says is what was folded, bit for bit."""
    answers = {"bad": lambda _: 3, "good": lambda _: 7, "fair": lambda row: 7 if int(row.query_id) % 3 else 3}
    loop = Loop(answers, loop_application(NAME, tuple(answers)), [])
    for number in range(200):
        loop.query(f"{number}")
        loop.driver.run(seconds=0.05)
        loop.feedback(f"{number}", label=7)
        loop.driver.run(seconds=0.05)
    decided = [prediction.decision for prediction in loop.predictions()]
    assert all(len(decision.chosen) == 2 and sum(decision.propensities) == pytest.approx(2.0) for decision in decided)
    (state,) = fold(loop.observations(), 130_000_000).values()
    assert sum(state.values[:3]) == 400  # two answers of each query
    late = [decision.chosen for decision in decided[-50:]]
    assert sum(0 in chosen for chosen in late) < 15


def test_a_policy_makes_the_answer_itself() -> None:
    """From all outputs, with a confidence of its own."""
    loop = Loop({"a": lambda _: 1, "b": lambda _: 2}, loop_application("own_pkg.words:Fixed", ("a", "b")), [])
    loop.query("q")
    loop.driver.run(seconds=0.2)
    (prediction,) = loop.predictions()
    assert (prediction.answer, prediction.confidence) == ("2 say 1", 0.75)


def test_a_policy_sees_the_input_and_the_log_has_what_it_made_of_it() -> None:
    """What it learns by is in the log: the decision, the observation, and so the state that is folded of them."""
    loop = Loop({"a": lambda _: 1, "b": lambda _: 2}, loop_application("own_pkg.text:ByText", ("a", "b")), [])
    loop.query("q", input="help!! " * 20)
    loop.query("r", input="calm", features=(0.5, 0.5))
    loop.driver.run(seconds=0.2)
    loop.feedback("q", label=1)
    loop.driver.run(seconds=0.2)
    seen = {prediction.query_id: prediction.decision.features for prediction in loop.predictions()}
    assert seen == {"q": (1.4, 40.0), "r": (0.5, 0.5)}
    ((_, observation),) = loop.observations()
    assert observation.decision.features == (1.4, 40.0)


def test_a_policy_that_makes_features_is_not_judged_by_a_log_without_them() -> None:
    """It would be judged by zeros."""
    loop = Loop({"a": lambda _: 1, "b": lambda _: 2}, loop_application("exp3", ("a", "b")), [])
    loop.query("q")
    loop.driver.run(seconds=0.2)
    loop.feedback("q", label=1)
    loop.driver.run(seconds=0.2)
    log = [seen for _, seen in loop.observations()]
    with pytest.raises(EvaluationError, match="makes its features of the inputs"):
        candidate("own_pkg.text:ByText").propensities(log, log, ("a", "b"))


def test_a_policy_that_fails_costs_its_own_query_alone() -> None:
    """Its query is answered by default, and the role goes on."""
    options = '{"fails": "combine"}'
    application = loop_application("own_pkg.words:Fixed", ("a", "b"), options)
    loop = Loop({"a": lambda _: 1, "b": lambda _: 2}, application, [])
    loop.query("q")
    loop.driver.run(seconds=0.2)
    (prediction,) = loop.predictions()
    assert prediction.reason == "policy_failed"


def test_parameters_of_any_json_type_read_back() -> None:
    """Texts with brackets and commas, lists, null and numbers."""
    made = registry.create("own_pkg.words:Fixed", {"names": ["a,b", "(c)"], "fails": 'x"='})
    assert registry.parse(registry.spec(made)) == made
    assert registry.spec(made) == 'own_pkg.words:Fixed(fails="x\\"=",names=["a,b", "(c)"])'


def test_a_changed_parameter_keeps_what_was_learnt_where_the_policy_says_how() -> None:
    """`TopTwo` adopts; `Fixed` starts anew."""
    for name, change, is_kept in ((NAME, "gamma=0.3", True), ("own_pkg.words:Fixed", 'names=["x"]', False)):
        state = stored(name)
        found = state_of(state, registry.spec(registry.parse(f"{name}({change})")))
        assert (found is not None and found.values == state.values) is is_kept
        before = loop_application(name, ("a", "b"))
        after = replace(before, **registry.fields_of(registry.parse(f"{name}({change})")))
        assert bool(begins_anew(before, after)) is not is_kept


def test_code_that_is_not_here_or_not_allowed_is_refused_with_the_remedy() -> None:
    """The message names the setting, or where was looked."""
    with pytest.raises(PolicyError, match=r"no_such\.mine:X' cannot be imported here .* PYTHONPATH"):
        registry.create("no_such.mine:X")
    with pytest.raises(PolicyError, match="has no method init, propensities, select, observe"):
        registry.create("own_pkg.model:Digits")
    with pytest.raises(PolicyError, match="names the standard library"):
        registry.create("subprocess:Popen", {"args": "true"})
    outside._class.cache_clear()
    outside.allow(("other_pkg",))
    with pytest.raises(PolicyError, match=r"add own_pkg\.mine to policy_code"):
        registry.create(NAME)


def test_a_model_class_gets_its_files_and_is_shown_in_few_lines(own_folder: Path) -> None:
    """Fewer than 25 of them; and `worker.code` says whether it may be named."""
    assert len([line for line in block("extending.md", 3).splitlines() if line.strip()]) < 25
    exec(block("extending.md", 4).replace("my_pkg", "own_pkg"), {})
    folder = own_folder / "packages/digits/1"
    loaded = load_package(folder, code=("own_pkg",))
    rows = np.eye(3, 64, dtype=np.float32)
    assert loaded.runtime.predict_batch(rows).answers.tolist() == [0, 1, 2]
    with pytest.raises(PackageError, match=r"worker\.code"):
        load_package(folder, code=("other",))
    with pytest.raises(PackageError, match=r"is no class with a method predict_batch"):
        package_container("own_pkg.mine:TopTwo", "trained", own_folder / "no", "no", 1, rows)


def test_a_runtime_is_named_by_its_module(own_folder: Path) -> None:
    """The one that docs/runtimes.md shows, where nothing was edited."""
    np.save(own_folder / "weights.npy", np.eye(6, 4, dtype=np.float32))
    rows = np.eye(4, 6, dtype=np.float32)
    package_files([own_folder / "weights.npy"], own_folder / "p", "toy", 1, rows, runtime="own_pkg.matrix")
    assert load_package(own_folder / "p", code=("own_pkg",)).runtime.predict_batch(rows).answers.tolist() == [
        0,
        1,
        2,
        3,
    ]
    with pytest.raises(PackageError, match=r"worker\.code"):
        load_package(own_folder / "p", code=("other",))
    with pytest.raises(PackageError, match="has no function `load`"):
        package_files([own_folder / "weights.npy"], own_folder / "q", "toy", 1, rows, runtime="own_pkg.words")


def test_installed_packages_name_them_by_entry_points(own_folder: Path) -> None:
    """Then a plain name is enough, whatever `policy_code` says."""
    info = own_folder / "own_pkg-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-pkg\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[skysail.policies]\nbest_two = own_pkg.mine:TopTwo\n[skysail.runtimes]\nmatrix = own_pkg.matrix\n"
    )
    sys.path.append(str(own_folder))
    outside.is_outside.cache_clear()
    outside.allow(("other_pkg",))
    made = registry.parse("best_two(gamma=0.5)")
    assert registry.spec(made) == "best_two(gamma=0.5)"
    assert sum(made.propensities(made.init(4), 4)) == pytest.approx(2.0)
    np.save(own_folder / "weights.npy", np.eye(6, 4, dtype=np.float32))
    rows = np.eye(4, 6, dtype=np.float32)
    package_files([own_folder / "weights.npy"], own_folder / "p", "toy", 1, rows, runtime="matrix")
    assert load_package(own_folder / "p", code=("other",)).manifest.runtime == "matrix"
