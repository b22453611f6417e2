"""`skysail evaluate` on rankings that were drawn: its table, its refusals, its JSON."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from deploy.cli.evaluate import evaluate
from schemas.records import Observations
from streams.operators.contract import Record
from streams.trace.manifest import TraceManifest
from streams.trace.writer import TraceWriter
from tests.loops import CODEC
from tests.unit.streams.evaluation.test_slates import shown

if TYPE_CHECKING:
    from pathlib import Path

POLICY = "ridge:features=1,low=-5,high=5,gamma=0"


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the trace of a loop in which half of the rankings were drawn."""
    folder, loop = tmp_path_factory.mktemp("traces") / "rankings", shown(0.5)
    seen = tuple([each for _, each in loop.observations()])
    record = Record("observations", 0, 0, loop.driver.now_us, None, CODEC.encode(Observations(seen)))
    with TraceWriter(folder, TraceManifest("skysail", "0.1.0")) as writer:
        writer.expect("observations", {0: 0})
        writer.add([record])
        writer.write()
    return folder


def run(*words: object) -> str:
    """Return what the command prints; its errors are raised."""
    asked = [*map(str, words), "--policy", POLICY, "--window", "20"]
    done = CliRunner().invoke(evaluate, asked, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_few_effective_samples_give_no_number_but_what_to_do(trace: Path) -> None:
    """With how many each estimator has, said once."""
    printed = run(trace)
    refused = r"^refused, with fewer than 200 effective samples: per_place \d+, pseudo_inverse \d+$"
    assert len(re.findall(refused, printed, re.MULTILINE)) == 1
    assert "set `shuffle` higher" in printed
    assert "standard error" not in printed


def test_force_shows_them_all_the_same(trace: Path) -> None:
    """Each with its interval, and with the samples that it has."""
    printed = run(trace, "--force")
    for name in ("per_place", "pseudo_inverse"):
        assert re.search(rf"^{name} .* \d\.\d{{4}} +-?\d\.\d{{4}} to \d\.\d{{4}} ", printed, re.MULTILINE), name
    assert "refused" not in printed


def test_the_json_has_numbers_or_reasons(trace: Path) -> None:
    """For scripts."""
    few, forced = [json.loads(run(trace, "--json", *more))["estimates"] for more in ((), ("--force",))]
    assert all("effective samples, 200 are needed" in each["refused"] for each in few.values())
    assert all(each["low"] < each["value"] < each["high"] for each in forced.values())
    assert few.keys() == forced.keys() == {"per_place", "pseudo_inverse"}
