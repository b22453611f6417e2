"""`rollout`: under load, a model's next version comes as a canary, serves all queries, and goes again.

The two versions answer differently, and each answer is compared with that of the version that it names. No query may be
lost, and none may be answered under a wrong name. None may be late or answered by default because of the change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from load.figures import FAULTS, NONE, SHOWN, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.driving import deployed
from load.harness.recorder import recorded
from load.harness.system import Deployment
from load.harness.workload import Rows, query_id
from load.models.training import Digits, digits
from load.results.results import Result
from load.scenario import Scenario
from schemas.records import Application, Outcome
from streams.runtime.clock import SystemClock
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.recorder import Recorder
    from load.harness.system import Stage, System
    from schemas.records import Prediction

NAME = "rollout"
MODEL = "digits"
RATE = 200.0
SHARE = 0.2
SECONDS = 28.0  # a quarter must hold a command, loading and some answers
_SLO_MS = 100.0
_COUNTED = ("lost", "defaults", "late", "p50_ms", "p99_ms", "max_ms")


@dataclass(slots=True)
class Judge:
    """Holds each answer against what its version says about its row.

    Attributes:
        says: by version, the answer to each row.
        rows: the row of each query, by its id.
        wrong: answers that the version named in them would not have given.
        first_us: by version, when it answered first since it was last cleared.
        last_us: by version, when it answered last.
        answers: by version, since it was last cleared.
    """

    says: Mapping[str, Sequence[int]]
    rows: Mapping[str, int]
    wrong: int = 0
    first_us: dict[str, int] = field(default_factory=dict)
    last_us: dict[str, int] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)

    def take(self, predictions: Sequence[Prediction]) -> None:
        """Take a poll's predictions; an output that is missing names no version."""
        for prediction in predictions:
            for output in prediction.outputs:
                if output.outcome is not Outcome.OK:
                    continue
                now_us, version = SystemClock().now_us(), output.version
                if self.first_us.setdefault(version, now_us) == now_us:
                    self.answers.clear()
                self.answers[version] += 1
                self.last_us[version] = now_us
                row = self.rows[prediction.query_id]
                self.wrong += prediction.answer != self.says[version][row]


_SWITCH = Kind("s", Better.LOWER, 1.0, 0.5)
FIGURES = Figures(
    recorded("", *_COUNTED, lost=NONE),
    recorded("before_", *_COUNTED),
    SHOWN("lost_more"),
    FAULTS("unserved_more", must=at_most(0)),
    FAULTS("wrong_version", must=NONE),
    SHOWN("canary_share", must=(at_least(0.1), at_most(0.3))),
    FAULTS("changes_missed", must=NONE),
    _SWITCH("canary_s", "there_s", "back_s", must=at_most(5.0)),  # a command, and a version that is loaded meanwhile
)


async def run(stage: Stage) -> Result:
    """Load without a change, then the same with a version that comes and goes."""
    data = digits()
    says = _package(stage, data)
    deployment = Deployment(
        topics.new_prefix(NAME),
        (Application("digits", (MODEL,), "single", slo_ms=_SLO_MS),),
        {MODEL: stage.folder / "1"},
        roles=("selection", "worker"),
        settings={"log_level": "warning"},
    )
    count, rows = round(3 * RATE * stage.seconds), len(data.inputs)
    async with deployed(stage, deployment, data.inputs[0]) as driver:
        recorders: list[Recorder] = []
        judges = [Judge(says, {query_id(seed, i): i % rows for i in range(count)}) for seed in _seeds(stage)]
        changed: dict[str, float] = {}
        for judge, seed in zip(judges, _seeds(stage), strict=True):
            changing = asyncio.create_task(_change(stage, driver.system, judge)) if judge is judges[1] else None
            workload = Rows("digits", data.inputs, seed=seed)
            offsets_us = [int(i * 1e6 / RATE) for i in range(int(RATE * stage.seconds))]
            stretch = await driver.drive(offsets_us, workload, int(_SLO_MS * 1e3), judge.take)
            recorders.append(stretch.recorder)
            changed |= await changing if changing is not None else {}
    before, during = (recorder.figures() for recorder in recorders)
    return _result(stage, before, during, {"wrong_version": sum(judge.wrong for judge in judges), **changed})


def _package(stage: Stage, data: Digits) -> dict[str, list[int]]:
    """Train and package two versions; returns what each answers to the test rows."""
    estimators = {
        "1": LogisticRegression(max_iter=200).fit(data.train_x, data.train_y),
        "2": RandomForestClassifier(20, random_state=stage.seed).fit(data.train_x, data.train_y),
    }
    for version, estimator in estimators.items():
        package_sklearn(estimator, stage.folder / version, MODEL, version, data.test_x[:5], output="label")
    return {version: estimator.predict(data.test_x).tolist() for version, estimator in estimators.items()}


def _result(
    stage: Stage, before: Mapping[str, float], during: Mapping[str, float], changed: Mapping[str, float]
) -> Result:
    return Result(
        NAME,
        figures={
            **{name: during[name] for name in _COUNTED},
            **{f"before_{name}": before[name] for name in _COUNTED},
            "lost_more": during["lost"] - before["lost"],
            "unserved_more": _unserved(during) - _unserved(before),
            **changed,
        },
        parameters={"rate": RATE, "seconds": stage.seconds, "seed": stage.seed, "slo_ms": _SLO_MS, "share": SHARE},
        notes=(
            "canary and back: from the command to the first answer of the other version, in seconds",
            "there: from the command to the last answer of the old version, in seconds",
            "canary_share: of the answers from its first one to the command that has it answer everything",
        ),
    )


def _seeds(stage: Stage) -> tuple[int, int]:
    return 2 * stage.seed, 2 * stage.seed + 1


def _unserved(figures: Mapping[str, float]) -> float:
    return figures["lost"] + figures["defaults"] + figures["late"]


async def _change(stage: Stage, system: System, judge: Judge) -> dict[str, float]:
    """Let version 2 answer a share after a quarter of the stretch, all queries after two, and none after three.

    Returns:
        How long each took (s), as long as it was waited for where it never happened; how many did not; the share.
    """
    now_us, asked_us, happened_us = SystemClock().now_us, dict[str, int](), dict[str, int | None]()
    await asyncio.sleep(stage.seconds / 4)
    asked_us["canary"] = now_us()
    await system.add_model(stage.folder / "2", SHARE)
    await asyncio.sleep(stage.seconds / 4)
    happened_us["canary"] = judge.first_us.get("2")
    share = judge.answers["2"] / max(1, judge.answers.total()) if "2" in judge.first_us else 0.0
    asked_us["there"] = now_us()
    await system.use_model(MODEL, "2")
    await asyncio.sleep(stage.seconds / 4)
    ended_us, asked_us["back"] = judge.last_us["1"], now_us()
    happened_us["there"] = ended_us if ended_us < asked_us["back"] - 1e6 else None  # it still answers
    judge.first_us.clear()
    await system.use_model(MODEL, "1")
    await asyncio.sleep(stage.seconds / 4)
    happened_us["back"] = judge.first_us.get("1")
    waited_us = stage.seconds / 4 * 1e6
    took_us = {way: waited_us if at is None else max(0, at - asked_us[way]) for way, at in happened_us.items()}
    missed = sum(at is None for at in happened_us.values())
    return {"canary_share": share, "changes_missed": missed, **{f"{way}_s": us / 1e6 for way, us in took_us.items()}}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "a model's next version under load, as a canary, there and back: nothing lost, late or under a wrong name",
    seconds=SECONDS,
)
