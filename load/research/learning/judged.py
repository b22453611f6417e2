"""`judged`: estimates of what other policies would have cost, beside the truth, in worlds where that is known.

Offline. A log of Vowpal Wabbit's format with weights; questions in turn, judged by a log that asks on by a coin and by
one that asks everything; Vowpal Wabbit's own value of the same policy, where it is installed.
"""

from __future__ import annotations

import asyncio
import sys
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from load.figures import SHOWN, Better, Figures, Kind, at_least, at_most
from load.research.learning import doubtful
from load.research.learning import judged_worlds as worlds
from load.results.results import Result
from load.scenario import Scenario
from policies.estimators.estimate import Estimate
from schemas.codec import Codec
from streams.evaluation.candidate import candidate
from streams.evaluation.evaluation import evaluate
from streams.evaluation.history import OBSERVATIONS, history
from streams.trace.dsjson import DsjsonForm
from streams.trace.importing import imported_log
from streams.trace.manifest import TraceManifest
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from load.harness.system import Stage
    from streams.evaluation.candidate import JudgedPolicy
    from streams.evaluation.evaluation import Evaluation
    from streams.evaluation.several import Several

NAME = "judged"
NAMES = ("ipw", "snipw", "clipped", "dr")
_ROWS, _RUNS, _SHORT = 1_000, 60, 20
_THERE = ("vowpal_wabbit", "there")
_BIAS = Kind("", Better.LOWER, 0.0, 1.0)  # in standard errors of the mean over runs
_SHARE = Kind("", Better.HIGHER, 0.0, 0.05)
_OFF = Kind("", Better.LOWER, 0.0, 1e-9)

FIGURES = Figures(
    _BIAS(*(f"{world}_{name}_bias" for world in ("actions", "in_turn") for name in NAMES), must=at_most(4.0)),
    _SHARE(*(f"{world}_{name}_covered" for world in ("actions", "in_turn") for name in NAMES), must=at_least(0.85)),
    _SHARE("actions_always_covered", "in_turn_always_covered", must=at_least(0.95)),
    _OFF("everything_off", must=at_most(1e-9)),
    Kind("", Better.LOWER, 0.0, 2e-6)("vowpal_wabbit_off", must=at_most(2e-6, _THERE)),
    SHOWN("in_turn_matched", "vowpal_wabbit_bias"),
)


async def run(stage: Stage) -> Result:
    """Judge by many logs of each world; the short form draws fewer."""
    runs = _SHORT if stage.short else _RUNS
    figures, there = await asyncio.to_thread(_all, runs)
    notes = () if there == "there" else ("Vowpal Wabbit is not installed: its own value is left out",)
    return Result(NAME, figures, {"form": stage.form, "runs": runs, "rows": _ROWS, "vowpal_wabbit": there}, notes=notes)


def _all(runs: int) -> tuple[dict[str, float], str]:
    with TemporaryDirectory() as folder:
        actions, beside = _actions(Path(folder), runs)
        policy = _own_policy(Path(folder))
    figures = _held("actions", actions, worlds.ALWAYS_FIRST)
    if beside:
        own = [_estimate(found, "ipw").value for found in actions]
        figures["vowpal_wabbit_off"] = float(np.max(np.abs(np.array(own) - beside)))
        figures["vowpal_wabbit_bias"] = _bias(beside, worlds.ALWAYS_FIRST)
    asked = [_in_turn(policy, seed, everything=False)[0] for seed in range(runs)]
    figures |= _held("in_turn", asked, worlds.TRUE_IN_TURN)
    figures["in_turn_matched"] = float(np.mean([found.matched or 0.0 for found in asked]))
    known = [_in_turn(policy, seed, everything=True) for seed in range(3)]
    figures["everything_off"] = max(
        abs(_estimate(found, name).value - exact) for found, exact in known for name in ("full_information", "ipw")
    )
    return figures, "there" if beside else "absent"


def _held(world: str, found: list[Evaluation], true: float) -> dict[str, float]:
    """Return how far estimates lie from the truth on the average, and the shares of intervals that hold it."""
    figures = {}
    for name in NAMES:
        each = [_estimate(one, name) for one in found]
        figures[f"{world}_{name}_bias"] = _bias([one.value for one in each], true)
        figures[f"{world}_{name}_covered"] = float(np.mean([one.low <= true <= one.high for one in each]))
    bounds = [one.candidate for one in found]
    figures[f"{world}_always_covered"] = float(np.mean([one.low <= true <= one.high for one in bounds]))
    return figures


def _bias(values: list[float], true: float) -> float:
    """Return it in standard errors of the mean."""
    return abs(float(np.mean(values)) - true) / (float(np.std(values, ddof=1)) / sqrt(len(values)))


def _estimate(found: Evaluation, name: str) -> Estimate:
    each = found.estimates[name]
    if not isinstance(each, Estimate):
        raise each
    return each


def _actions(folder: Path, runs: int) -> tuple[list[Evaluation], list[float]]:
    """Judge the first action by logs as Vowpal Wabbit writes them; return its own values, too, if it is installed."""
    found, beside, codec = [], [], Codec()
    form = DsjsonForm("actions", 0.0, 1.0, ("c.user.context",))
    for seed in range(runs):
        file, trace = folder / f"{seed}.dsjson", folder / f"{seed}"
        worlds.write_actions(file, _ROWS, seed)
        imported_log(file, form, trace, TraceManifest("imported", "0", source=file.name), codec)
        past = history(Trace.open(trace).records(OBSERVATIONS), codec, None)
        found.append(evaluate(past, candidate("always:1"), 0.0, seed=seed, least=0.0))
        if (value := _by_vowpal_wabbit(file, folder)) is not None:
            beside.append(value)
    return found, beside


def _by_vowpal_wabbit(file: Path, folder: Path) -> float | None:
    """Return its average loss of a policy that was taught to prefer the first action; None = it is not installed."""
    try:
        from vowpalwabbit import Workspace
    except ImportError:
        return None
    lesson, model = folder / "lesson.dsjson", folder / "model"
    if not model.exists():
        worlds.write_lesson(lesson)
        Workspace(f"--cb_explore_adf --epsilon 0 --cb_type ips --dsjson -d {lesson} -f {model}", quiet=True).finish()
    judging = Workspace(f"--dsjson -d {file} -t -i {model}", enable_logging=True)
    judging.finish()
    (line,) = [line for line in judging.get_log() if line.startswith("average loss")]
    return float(line.split("=")[1])


def _own_policy(folder: Path) -> JudgedPolicy | Several:
    """Return the policy that asks in turn, from a folder of its own as everybody's are."""
    module = "doubtful_policy"
    (folder / f"{module}.py").write_text(Path(doubtful.__file__).read_text(encoding="utf-8"), encoding="utf-8")
    sys.path.insert(0, str(folder))
    try:
        return candidate(f"{module}:AskInTurn")
    finally:
        sys.path.remove(str(folder))


def _in_turn(policy: JudgedPolicy | Several, seed: int, *, everything: bool) -> tuple[Evaluation, float]:
    """Judge a policy that asks in turn."""
    asked, exact = worlds.questions(_ROWS, seed, everything=everything)
    return evaluate(asked, policy, 0.0, seed=seed, least=0.0), exact


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "what other policies would have cost, estimated beside the truth: actions, questions in turn, weights",
    short=True,
    offline=True,
)
