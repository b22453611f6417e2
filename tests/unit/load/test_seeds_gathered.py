"""What has been simulated is kept in a file: pieces that meet are one, no seed is run twice, and none is left out."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from load.harness.system import Stage
from load.research.operation import seeds as operation
from load.research.operation.seeds import SCENARIO
from load.research.seeds.gathered import FILE, WAYS, Piece, due, joined, piece, read, total, write
from load.research.seeds.laws import LAWS, Violation
from load.research.seeds.plan import CALM, plan
from load.research.seeds.world import Outcome
from load.results.results import Result
from load.results.targets import verdicts

if TYPE_CHECKING:
    from collections.abc import Sequence

DOCS = Path(__file__).parents[3] / "docs"


def outcome(seed: int, *laws: str) -> Outcome:
    """Return half an hour with ten queries and a kill."""
    violations = tuple(Violation(law, "as the test says") for law in laws)
    return Outcome(seed, 1_800.0, 10, 11, 3, violations, "", {"kill": 1, "slow": seed % 2}, 4.0)


def made(first: int, end: int, way: str = "each", commit: str = "a") -> Piece:
    """Return a piece without violations."""
    return piece(way, commit, first, [outcome(seed) for seed in range(first, end)])


def test_a_piece_adds_up_what_its_seeds_have_come_to() -> None:
    """Queries, faults by kind, violations by law, and which seeds have them."""
    its = piece("shared", "a", 5, [outcome(5), outcome(6, "once", "once", "states"), outcome(7)])
    assert (its.first, its.end, its.simulated_s, its.cpu_s, its.queries) == (5, 8, 5_400, 12, 30)
    assert its.faults == {"kill": 3, "slow": 2}
    assert its.violations == {"once": 2, "states": 1}
    assert its.found == [6]


def test_pieces_of_a_way_and_a_commit_that_meet_are_one() -> None:
    """Others stay apart: what another commit has run says nothing of this one."""
    whole = joined([made(9, 12), made(1, 5), made(5, 9), made(12, 13, commit="b"), made(1, 3, "hosted")])
    assert [(its.way, its.commit, its.first, its.end) for its in whole] == [
        ("each", "a", 1, 12),
        ("each", "b", 12, 13),
        ("hosted", "a", 1, 3),
    ]
    assert whole[0] == made(1, 12)


def test_the_kind_that_has_had_the_least_cpu_is_next_behind_its_last_seed() -> None:
    """Three ways, each busy and calm, of which calm ones have four times as much; whichever commit has run them."""
    had = [made(first, first + count, way) for way in WAYS for first, count in ((1, 9), (CALM, 36))]
    assert due([]) == ("each", 1)
    assert due(had[:1]) == ("each", CALM)
    assert due([had[0], *had[2:], made(CALM, CALM + 35)]) == ("each", CALM + 35)
    more = [replace(its, first=its.end, end=its.end + 5, cpu_s=its.cpu_s / 2) for its in had[1:]]
    assert due([*had, made(10, 12, commit="b"), *more]) == ("each", 12)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """One line a piece; there need not be one yet."""
    file = tmp_path / "gathered.json"
    assert read(file) == []
    write([made(1, 3), made(3, 5), made(CALM, CALM + 2, "hosted")], file)
    assert read(file) == [made(1, 5), made(CALM, CALM + 2, "hosted")]
    assert len(file.read_text(encoding="utf-8").splitlines()) == 4
    assert total(read(file)) == "3 hours, 20 queries and 3.0 faults in one, 0 seeds with violations"


def test_the_file_of_this_repository_is_sound() -> None:
    """No seed counts twice, and what is found is of a law that there is."""
    for way in WAYS:
        its = [each for each in read(FILE) if each.way == way]
        assert all(one.end <= other.first for one, other in pairwise(its))
    assert joined(read(FILE)) == read(FILE)
    assert {law for each in read(FILE) for law in each.violations} <= {*LAWS}


@pytest.mark.parametrize(("laws", "missed"), [((), set()), (("once",), {"violations"})])
async def test_a_night_is_judged_by_its_violations_and_not_by_its_hours(
    laws: tuple[str, ...], missed: set[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Two hundred hours are for who asks for them."""
    monkeypatch.setattr(operation, "gather", lambda hours: [outcome(seed, *laws) for seed in range(int(2 * hours))])
    stage = Stage("", None, tmp_path, hours=50.0, nightly=True)  # type: ignore[arg-type]  # nothing is launched
    result = await operation.run(stage)
    assert {each.target.figure for each in verdicts(result, SCENARIO.figures) if not each.reached} == missed
    whole = replace(result, parameters={**result.parameters, "form": "full"})
    assert "simulated_hours" in {each.target.figure for each in verdicts(whole, SCENARIO.figures) if not each.reached}


def written(pieces: Sequence[Piece]) -> str:
    """Return the page of these pieces; it says nothing of the machine."""
    result = Result("seeds", {}, series={"gathered": [asdict(each) for each in pieces]})
    return SCENARIO.written(result, {})  # type: ignore[typeddict-item]


def test_the_page_has_what_the_file_has() -> None:
    """Write it anew as it says itself, from the result of a night."""
    pieces = read(FILE)
    text = written(pieces)
    assert text == (DOCS / "simulated-hours.md").read_text(encoding="utf-8")


def test_a_page_names_what_was_found() -> None:
    """Seeds with violations, and the program that had them; nothing where there are none."""
    sound, unsound = made(1, 3), replace(made(CALM, CALM + 2), violations={"ran": 3}, found=[CALM + 1])
    text = written([sound, unsound])
    assert "| each 1000001 | a | not known yet | ran |" in text
    assert "None has any." not in text
    assert "None has any." in written([sound])


@pytest.mark.parametrize("seed", [CALM, CALM + 7])
def test_a_calm_deployment_has_few_queries_and_as_many_faults(seed: int) -> None:
    """Of hours, in which bursts are minutes apart."""
    its = plan(seed)
    assert its.length_s >= 4 * 3_600
    gaps_s = [after.at_s - before.at_s - before.for_s for before, after in pairwise(its.bursts)]
    assert min(gaps_s) >= 60
    assert len(its.faults) / its.length_s > 1 / 300


POOL = """
import multiprocessing, os, time
from concurrent.futures import ProcessPoolExecutor
from load.research.operation.seeds import tied
with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), tied) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 600).result()
"""


def test_nobody_of_a_pool_is_left_behind_when_its_parent_is_killed() -> None:
    """Whoever ends a night of seeds ends all of it."""
    with subprocess.Popen([sys.executable, "-c", POOL], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    worker.wait(30)
    assert not worker.is_running()
