"""`skysail evaluate` on a trace: what it prints, its JSON, its page, its refusals."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli.evaluate import evaluate
from deploy.errors import UsageError
from schemas.codec import Codec
from schemas.records import Application, Observations
from streams.evaluation.errors import EvaluationError
from streams.operators.contract import Record
from streams.trace.manifest import TraceManifest
from streams.trace.writer import TraceWriter
from tests.histories import ARMS, STEP_US, served

if TYPE_CHECKING:
    from pathlib import Path

DECISIONS = 1_500
WINDOW_S = 60


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the trace of an hour of a policy that explores."""
    folder, codec = tmp_path_factory.mktemp("traces") / "hour", Codec()
    seen = served("epsilon_greedy(epsilon=0.5)", DECISIONS)
    values = [codec.encode(Observations(seen[at : at + 50])) for at in range(0, DECISIONS, 50)]
    records = [Record("observations", 0, at, (at + 1) * 50 * STEP_US, None, value) for at, value in enumerate(values)]
    wanted = codec.encode(Application("shop", ARMS, window_s=float(WINDOW_S)))
    with TraceWriter(folder, TraceManifest("skysail", "0.1.0")) as writer:
        for topic in ("observations", "applications"):
            writer.expect(topic, {0: 0})
        writer.add([Record("applications", 0, 0, 0, b"shop", wanted), *records])
        writer.write()
    return folder


def run(*words: object) -> str:
    """Return what the command prints; its errors are raised."""
    done = CliRunner().invoke(evaluate, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_it_prints_all_estimators_and_one_sentence(trace: Path) -> None:
    """With what was judged, how late feedback was, and bounds that hold at all times."""
    printed = run(trace, "--policy", "always:good")
    for name in ("replay", "ipw", "snipw", "clipped", "dr", "dr_os", "switch", "dm"):
        assert re.search(rf"^{name} +0\.\d{{4}} ", printed, re.MULTILINE), name
    assert re.search(r"^full_information refused: in [\d,]+ of 1,\d\d\d decisions", printed, re.MULTILINE)
    assert "50% of all within 0.5 s" in printed
    assert "not judged: 59 (window not ended)" in printed
    assert printed.splitlines()[-1].startswith("always:good would have cost less")


def test_its_table_fits_a_terminal(trace: Path) -> None:
    """80 columns; what is the same in all rows is said once below it."""
    printed = run(trace, "--policy", "always:good").splitlines()
    start = next(at for at, line in enumerate(printed) if line.startswith("estimator"))
    end = next(at for at, line in enumerate(printed) if "without support" in line)
    assert end - start == 9
    assert max(map(len, printed[start : end + 1])) <= 80
    assert sum("without support" in line for line in printed) == 1


def test_its_json_holds_the_same(trace: Path) -> None:
    """For scripts."""
    found = json.loads(run(trace, "--policy", "thompson:gamma=0.2", "--json"))
    assert (found["policy"], found["decisions"]) == ("thompson(gamma=0.2)", DECISIONS - WINDOW_S + 1)
    assert found["estimates"]["ipw"]["low"] < found["estimates"]["ipw"]["value"] < found["estimates"]["ipw"]["high"]
    assert "refused" in found["estimates"]["full_information"]
    assert found["difference"]["low"] < found["difference"]["high"]
    assert len(found["course"]) == 60


def test_its_page_needs_nothing_beside_it(trace: Path, tmp_path: Path) -> None:
    """Three plots, the table and the sentence in one file."""
    run(trace, "--policy", "always:good", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 3
    assert "always:good would have cost less" in page
    assert not re.search(r"(src|href)=\"(?!#)", page)


def test_the_json_of_refusals_has_their_reasons(trace: Path) -> None:
    """Of every estimator."""
    found = json.loads(run(trace, "--policy", "always:good", "--window", 1_480, "--json"))
    assert all("refused" in each for each in found["estimates"].values())
    assert found["recommendation"].startswith("No recommendation")


def test_a_page_of_refusals_has_its_plots_all_the_same(trace: Path, tmp_path: Path) -> None:
    """Nothing can be estimated of a window's length of decisions."""
    run(trace, "--policy", "always:good", "--window", 1_480, "--html", tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8").count("<svg") == 3


def test_force_estimates_from_however_few(trace: Path) -> None:
    """Without it the estimators of a short log refuse."""
    assert "needed" in run(trace, "--policy", "always:good", "--window", 1_480)
    assert "needed" not in run(trace, "--policy", "always:good", "--window", 1_480, "--force")


def test_a_refusal_for_too_few_samples_is_said_once(trace: Path) -> None:
    """With the number of each estimator, and once more what to do."""
    printed = run(trace, "--policy", "always:good", "--window", 1_480).splitlines()
    (refusal,) = [line for line in printed if line.startswith("refused, with fewer than 200 effective samples: ")]
    for name in ("replay", "ipw", "snipw", "clipped", "dr", "dr_os", "switch", "dm"):
        assert re.search(rf"\b{name} \d+", refusal), name
    assert sum("record longer" in line for line in printed) == 1
    assert not any("the log says too little" in line for line in printed)


@pytest.mark.parametrize("words", [[], ["--live", "shop", "folder"]])
def test_it_says_where_observations_come_from(words: list[str]) -> None:
    """A folder or a deployment, not both."""
    with pytest.raises(UsageError, match="--live APP"):
        run(*words)


def test_a_trace_without_observations_says_what_to_record(tmp_path: Path) -> None:
    """And what it holds instead."""
    with TraceWriter(tmp_path / "empty", TraceManifest("skysail", "0.1.0")) as writer:
        writer.expect("queries", {0: 0})
        writer.write()
    with pytest.raises(EvaluationError, match="holds queries; record the topic observations"):
        run(tmp_path / "empty")


def test_it_says_which_policies_a_log_can_judge(trace: Path) -> None:
    """A line a kind of policy, with how and why; JSON holds the same."""
    printed = run(trace, "--which")
    assert re.search(
        r"^always:MODEL and bandits.* by weights +overlap: every model could be asked", printed, re.MULTILINE
    )
    assert re.search(r"^ensembles.* no +what the models have answered is not in the log", printed, re.MULTILINE)
    found = json.loads(run(trace, "--which", "--json"))
    assert [line["how"] for line in found][:3] == ["by weights", "no", "no"]
