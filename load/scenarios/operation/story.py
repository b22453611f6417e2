"""`story`: how long `skysail story ID` takes on the log of a day, each in a process of its own, as a person types it.

The log is written first (`day`), with the times of the last 24 hours. Then the command is asked about queries from all
over the day. Some have ids that Skysail draws, which tell their time; some a client's own, with and without `--at`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from load.figures import FAULTS, NONE, SHOWN, SHOWN_MIB, SHOWN_S, Better, Figures, Kind, at_most
from load.harness import topics
from load.harness.progress import say
from load.results.results import Result
from load.scenario import Scenario
from load.scenarios.operation.day import DAY_S, MODELS, TOPICS, Asked, DayLog, producer_of
from schemas.codec import Codec

if TYPE_CHECKING:
    from load.harness.system import Stage

NAME = "story"
_COUNT, _SHORT_COUNT = 10_000_000, 200_000
_ASKED = 36
_LIMIT_S = 120.0
_MUST_S = 2.0  # somebody looks at 3 a.m.
_STORY = Kind("s", Better.LOWER, 0.5, 0.5)
FIGURES = Figures(
    _STORY("p50_s", "max_s", must=at_most(_MUST_S)),
    SHOWN_S("cpu_s", "at_p50_s", "at_max_s", "search_p50_s", "search_max_s", "write_s"),
    FAULTS("untold", must=NONE),
    SHOWN("queries"),
    SHOWN_MIB("log_mib"),
)


class _Timed(NamedTuple):
    kind: str
    seconds: float
    cpu_s: float
    is_told: bool


async def run(stage: Stage) -> Result:
    """Write the day, then ask about queries of it."""
    count = _SHORT_COUNT if stage.short else _COUNT
    prefix = topics.new_prefix(NAME)
    with topics.temporary(stage.bootstrap, prefix, TOPICS):
        begin_us = (time.time_ns() // 1000 // 1_000_000 - DAY_S) * 1_000_000
        log = DayLog(Codec(), producer_of(stage.bootstrap), prefix, begin_us, count, stage.seed, _ASKED)
        began_s = time.monotonic()
        log.write(lambda done: say(NAME, f"{done:,} of {count:,} queries are written"))
        write_s = time.monotonic() - began_s
        timed = [_timed(stage, prefix, number, asked) for number, asked in enumerate(log.asked)]
    of = {kind: sorted(each.seconds for each in timed if each.kind == kind) for kind in ("own", "at", "search")}
    figures = {
        "p50_s": statistics.median(of["own"]),
        "max_s": of["own"][-1],
        "cpu_s": statistics.median(each.cpu_s for each in timed if each.kind == "own"),
        **{f"{kind}_p50_s": statistics.median(of[kind]) for kind in ("at", "search")},
        **{f"{kind}_max_s": of[kind][-1] for kind in ("at", "search")},
        "untold": float(sum(not each.is_told for each in timed)),
        "write_s": write_s,
        "queries": float(count),
        "log_mib": log.bytes / 2**20,
    }
    return Result(
        NAME,
        figures=figures,
        parameters={"queries": count, "asked": _ASKED},
        notes=("own: an id that Skysail draws; at: a client's own, with --at; search: a client's own, without",),
    )


def _timed(stage: Stage, prefix: str, number: int, asked: Asked) -> _Timed:
    """Ask about one query in a process of its own."""
    is_own = not asked.query_id.startswith("order-")
    kind = "own" if is_own else "at" if number % 2 else "search"
    at = datetime.fromtimestamp(asked.at_us // 1_000_000, UTC).isoformat(timespec="seconds")
    words = ("--at", at) if kind == "at" else ()
    command = (sys.executable, "-P", "-m", "deploy.cli", "story", "--json", *words, asked.query_id)
    environment = os.environ | {"SKYSAIL_KAFKA__BOOTSTRAP": stage.bootstrap, "SKYSAIL_PREFIX": prefix}
    before, began_s = _cpu_s(), time.monotonic()
    ended = subprocess.run(  # noqa: S603 - a command of our own
        command, cwd=stage.folder, env=environment, capture_output=True, timeout=_LIMIT_S, check=False
    )
    seconds, cpu_s = time.monotonic() - began_s, _cpu_s() - before
    say(NAME, f"{number + 1} of {_ASKED}: {kind} {seconds:.2f} s")
    return _Timed(kind, seconds, cpu_s, _is_told(ended.stdout, asked))


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _is_told(said: bytes, asked: Asked) -> bool:
    """Tell whether a story is whole: the question, each model's way, the answer, the feedback, what it taught."""
    try:
        story = json.loads(said)
        return (
            [story[name][0]["query_id"] for name in ("queries", "answers", "feedback", "observations")]
            == [asked.query_id] * 4
            and {leg["model"]: leg["batch"] is not None for leg in story["legs"]} == dict.fromkeys(MODELS, True)
        )  # fmt: skip
    except (ValueError, KeyError, TypeError, IndexError):
        return False


SCENARIO = Scenario(
    NAME, FIGURES, run, "one query's story on the log of a day with 10 million, by the command", short=True
)
