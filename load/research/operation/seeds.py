"""`seeds`: whole deployments in virtual time, with faults drawn from seeds, each judged by the same laws.

Needs no broker and no waiting: docs/simulated-hours.md has how many hours pass in a minute of CPU.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import subprocess
import threading
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from load.figures import FAULTS, IN_FULL, NONE, SHOWN, Better, Figures, Kind, at_least
from load.research.operation import seeds_tables
from load.research.seeds.gathered import FILE, due, piece, read, total, write
from load.research.seeds.laws import LAWS, Violation
from load.research.seeds.plan import plan
from load.research.seeds.world import Outcome, simulate
from load.results.results import Result
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from load.harness.system import Stage

NAME = "seeds"
SHORT_HOURS = 2.0
_PROCESSES = 2
_AT_ONCE = 3  # seeds for each process of a pool, in a piece
_SHOWN = 3  # violations of a seed that are printed
_EVERY_S = 10.0  # progress


FIGURES = Figures(
    SHOWN(
        "seeds",
        "queries",
        "answers",
        "answers_by_columns",
        "seeds_with_violations",
        *(f"violations_{law}" for law in LAWS),
    ),
    FAULTS("violations", must=NONE),
    Kind("h", Better.HIGHER)("simulated_hours", must=at_least(200, IN_FULL)),
    Kind("h/s", Better.HIGHER, 0.25)("hours_per_s"),
)


async def run(stage: Stage) -> Result:
    """Simulate seeds from the given one on for so many hours; or that one alone, telling all that happens."""
    started_s = time.monotonic()
    if stage.trace:
        outcomes = [await asyncio.to_thread(simulate, plan(stage.seed, processes=stage.processes), print)]
        tell(outcomes[0], stage.processes)
    elif stage.nightly:
        outcomes = await asyncio.to_thread(gather, stage.hours)
    else:
        outcomes = await _simulated(stage.seed, SHORT_HOURS if stage.short else stage.hours, stage.processes)
    return _result(outcomes, time.monotonic() - started_s, stage)


def seeds(first: int, hours: float) -> Iterator[int]:
    """Yield seeds until they add up to so many hours."""
    left_s, seed = 3_600 * hours, first
    while left_s > 0:
        yield seed
        its = plan(seed)
        left_s -= its.length_s + its.quiet_s
        seed += 1


def judged(seed: int, processes: str = "each") -> Outcome:
    """Simulate a seed; what breaks the simulation is a violation, too."""
    began_s = time.process_time()
    try:
        outcome = simulate(plan(seed, processes=processes))
    except Exception as fault:  # noqa: BLE001 - the other seeds go on
        outcome = Outcome(seed, 0.0, 0, 0, 0, (Violation("ran", repr(fault)),), "")
    return replace(outcome, cpu_s=time.process_time() - began_s)


async def _simulated(first: int, hours: float, processes: str) -> list[Outcome]:
    """Simulate in several processes; say how far it is, and at once what is wrong."""
    running, outcomes, told_s = asyncio.get_running_loop(), [], time.monotonic()
    with ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn"), tied) as pool:
        jobs = [running.run_in_executor(pool, judged, seed, processes) for seed in seeds(first, hours)]
        for future in asyncio.as_completed(jobs):
            outcomes.append(outcome := await future)
            tell(outcome, processes)
            if time.monotonic() > told_s + _EVERY_S:
                told_s = time.monotonic()
                done_h = sum(outcome.simulated_s for outcome in outcomes) / 3_600
                bad = sum(bool(outcome.violations) for outcome in outcomes)
                print(
                    f"{len(outcomes)} seeds, {done_h:.1f} of {hours:g} hours, {bad} seeds with violations", flush=True
                )
    return sorted(outcomes, key=lambda outcome: outcome.seed)


def tied() -> None:
    """Let this process of a pool end with the one that started it, however that ends."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "it is called in a process of a pool"
    threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def gather(hours: float, file: Path = FILE) -> list[Outcome]:
    """Go on behind the seeds that a file names, until so many hours more were simulated; add each piece to the file.

    Every way of sharing processes gets as much CPU as the others, and calm seeds four times as much as busy ones.
    """
    outcomes: list[Outcome] = []
    commit = _commit()
    workers = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), tied, max_tasks_per_child=20) as pool:
        while sum(outcome.simulated_s for outcome in outcomes) < 3_600 * hours:
            kind, first = due(read(file))
            ran = [*pool.map(partial(judged, processes=kind), range(first, first + _AT_ONCE * workers))]
            for outcome in ran:
                tell(outcome, kind)
            write([*read(file), piece(kind, commit, first, ran)], file)
            outcomes += ran
            print(f"{kind} {first} to {ran[-1].seed}: {total(read(file))}", flush=True)
    return outcomes


def _commit() -> str:
    """Return the commit of the program, with a + where anything but the file of pieces was changed since."""
    commit = _git("rev-parse", "--short=12", "HEAD").stdout.strip()
    is_changed = _git("diff", "--quiet", "HEAD", "--", ":/", f":(top,exclude)*/{FILE.name}").returncode
    return f"{commit}+" if commit and is_changed else commit or "unknown"


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    folder = Path(__file__).parent
    asked = ("git", *words)
    return subprocess.run(asked, cwd=folder, check=False, capture_output=True, text=True)  # noqa: S603 - words of ours


def tell(outcome: Outcome, processes: str) -> None:
    """Print what is wrong with a seed, and how to see it."""
    if not outcome.violations:
        return
    counts = Counter(violation.law for violation in outcome.violations)
    print(f"seed {outcome.seed}: " + ", ".join(f"{law} {count}" for law, count in counts.items()))
    for law, what in outcome.violations[:_SHOWN]:
        print(f"  {law}: {what}")
    print(f"  to see it: {command(outcome.seed, processes)}")


def command(seed: int, processes: str = "each") -> str:
    """Return what shows a seed again."""
    shape = "" if processes == "each" else f" --processes {processes}"
    return f"skysail load run {NAME} --seed {seed}{shape} --trace"


def _result(outcomes: Sequence[Outcome], took_s: float, stage: Stage) -> Result:
    counts = Counter(violation.law for outcome in outcomes for violation in outcome.violations)
    hours = sum(outcome.simulated_s for outcome in outcomes) / 3_600
    found = [outcome for outcome in outcomes if outcome.violations]
    figures = {
        "seeds": float(len(outcomes)),
        "simulated_hours": hours,
        "hours_per_s": hours / took_s,
        "queries": float(sum(outcome.queries for outcome in outcomes)),
        "answers": float(sum(outcome.answers for outcome in outcomes)),
        "answers_by_columns": float(sum(outcome.by_columns for outcome in outcomes)),
        **{f"violations_{law}": float(counts[law]) for law in LAWS},
        "violations": float(counts.total()),
        "seeds_with_violations": float(len(found)),
    }
    return Result(
        NAME,
        figures,
        parameters={"first_seed": float(stage.seed), "form": _form(stage)},
        series={
            "violations": [
                {"seed": each.seed, "law": law, "what": what, "command": command(each.seed, stage.processes)}
                for each in found
                for law, what in each.violations
            ],
            "gathered": [asdict(each) for each in read(FILE)],
        },
        notes=tuple(f"{law}: {what}" for law, what in LAWS.items()),
    )


def _form(stage: Stage) -> str:
    """Return which form was run: one seed, or a night, need not reach the hours of the full form."""
    if stage.trace:
        return "one"
    return "nightly" if stage.nightly else stage.form


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "hours of whole deployments in virtual time, with faults drawn from seeds: what must hold of every run",
    tables=seeds_tables.tables,
    page="research/operation/seeds.md.j2",
    short=True,
    offline=True,
    any_processes=True,
    hosted=True,
)
