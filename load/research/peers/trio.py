"""`trio`: the cost to an application of one slow model among three, whose p99 is beyond the objective.

The models are decision trees on digits. The third takes twice the objective for one row in seventy. Skysail asks every
model in a worker of its own (Exp4) and answers by the deadline with the outputs that are there. The others run each
model in a thread, and answer without one that takes 20 ms. One loop also runs them in line, one after the other. All
are asked with and without the slow model, in alternation.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import joblib
import numpy as np
import psutil

from load.errors import PeerFailedError, PeerUnavailableError
from load.figures import CPU_US, FAULTS, KEPT, NONE, P50_MS, P99_MS, PER_S, SHOWN, Figures, at_least, at_most
from load.harness import topics
from load.harness.progress import say
from load.harness.system import Deployment
from load.models.training import Digits, digits, trees
from load.research.models.slow import MODELS, InLine, InThreads
from load.research.peers import environments
from load.research.peers.client import SLO_MS, Client
from load.research.peers.contenders import AVRO, CONTENDERS
from load.research.peers.running import PARTITIONS, Ground, Running
from load.research.peers.summary import spread
from load.results.results import Result
from load.results.tables import Table, left_out, number
from load.results.tables import spread as in_words
from load.scenario import Scenario
from schemas import topics as names
from schemas.records import Application
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from load.harness.system import Stage
    from load.research.peers.answer_audit import Truth
    from load.research.peers.contenders import Contender

NAME = "trio"
_say = partial(say, NAME)
SECONDS = 10.0
SKYSAIL = "skysail"
OTHERS = ("floor_aiokafka", "floor_confluent", "faststream", "bytewax", "quix")
NAMES = (SKYSAIL, *OTHERS)
RATE = 100.0
DAWDLES_MS = 200.0
ONE_IN = 70
HOW = {"without": 2, "with": 3}  # models
WAIT_S = 0.02  # a fifth of the objective, for a model that takes microseconds
# By the ending of a lane's name, how it runs the models: its label and the file with the slow model.
_THREADS = ("", f"each model in a thread, {WAIT_S * 1e3:.0f} ms", "threads")
_IN_LINE = ("_inline", "in line", "with")
_ALSO_IN_LINE = "floor_aiokafka"
_SHORT = ("skysail", "floor_aiokafka", "quix")
_ROUNDS, _SHORT_ROUNDS = 3, 1
_WARM_UP_S, _LIMIT_S = 3.0, 10.0
_SPREAD = ("goodput_per_s", "share_in_time", "p50_ms", "p99_ms", "cpu_us_per_query")
_FITTED_ON = 150  # rows a tree


@dataclass(slots=True)
class _Rounds:
    """The measurements: a row for each stretch, and the contenders left out."""

    ground: Ground
    rows: list[dict[str, Any]] = field(default_factory=list)
    out: list[dict[str, str]] = field(default_factory=list)

    def ask(self, client: Client, label: str, name: str, how: str) -> None:
        """Ask an application for one stretch."""
        seconds = self.ground.stage.seconds
        part = client.stretch(RATE, seconds, _LIMIT_S)
        tally = part.tally
        self.rows.append(
            {
                "system": name,
                "label": label,
                "how": how,
                "goodput_per_s": tally.goodput_per_s(SLO_MS, seconds),
                "share_in_time": tally.goodput_per_s(SLO_MS, 1.0) / max(1, tally.asked),
                **{f"{point}_ms": value for point, value in tally.latency_ms().items()},
                "lost": tally.missing,
                "duplicates": tally.duplicates,
                "wrong": tally.wrong,
                "defaults": tally.defaults,
                "cpu_us_per_query": part.cpu_us_per_query,
            }
        )

    async def skysail(self, rounds: int) -> None:
        """Deploy both applications once, and ask them in turns."""
        stage, prefix = self.ground.stage, topics.new_prefix(NAME)
        models = tuple(MODELS)
        deployment = Deployment(
            prefix,
            tuple(Application(how, models[:count], "exp4", slo_ms=SLO_MS) for how, count in HOW.items()),
            self.ground.packages,
            partitions=PARTITIONS,
            roles=("selection", "worker"),
        )
        _say("Skysail")
        try:
            async with stage.launch(deployment) as system:
                client = Client(self.ground, Running(prefix, names.PREDICTIONS, lambda: system.pids), AVRO)
                await asyncio.to_thread(self._both, client, rounds)
        finally:
            topics.delete(stage.bootstrap, prefix)

    def _both(self, client: Client, rounds: int) -> None:
        for how in HOW:
            client.application = how
            client.ready()
            client.stretch(RATE, _WARM_UP_S, _LIMIT_S)
        for how in [*HOW] * rounds:
            client.application = how
            self.ask(client, "Skysail, Exp4 over workers", SKYSAIL, how)

    async def other(self, contender: Contender, rounds: int) -> None:
        """Start one that runs the models itself, with the slow one and without it; leave it out if it fails."""
        ways = (_THREADS, _IN_LINE) if contender.name == _ALSO_IN_LINE else (_THREADS,)
        try:
            if contender.environment:
                environments.ensure(contender.environment, _say)
            for how, (ending, way, file) in product([*HOW] * rounds, ways):
                _say(f"{contender.label}, {how} the slow model, {way}")
                model = self.ground.stage.folder / f"{file if how == 'with' else how}.joblib"
                ground = replace(self.ground, model=model)
                async with contender.start(ground, contender.known.latency) as running:
                    client = Client(ground, running, contender.wire_format)
                    await asyncio.to_thread(
                        self._one, client, f"{contender.label}; {way}", f"{contender.name}{ending}", how
                    )
        except (PeerFailedError, PeerUnavailableError, psutil.NoSuchProcess, TimeoutError) as error:
            _say(f"{contender.label} is left out: {error}")
            self.out.append({"label": contender.label, "why": " ".join(str(error).split())})

    def _one(self, client: Client, label: str, name: str, how: str) -> None:
        client.ready()
        client.stretch(RATE, _WARM_UP_S, _LIMIT_S)
        self.ask(client, label, name, how)


FIGURES = Figures(
    KEPT(f"{SKYSAIL}_kept", must=(at_least(0.97), at_most(1.03))),
    KEPT("*_kept"),
    *(FAULTS(f"{SKYSAIL}_{how}_lost", f"{SKYSAIL}_{how}_wrong", must=NONE) for how in HOW),
    FAULTS("*_lost", "*_duplicates", "*_wrong"),
    PER_S("*_goodput_per_s"),
    SHOWN("*_share_in_time"),
    P50_MS("*_p50_ms"),
    P99_MS("*_p99_ms"),
    CPU_US("*_cpu_us_per_query"),
)


async def run(stage: Stage) -> Result:
    """Ask everybody."""
    named = stage.only or (_SHORT if stage.short else NAMES)
    rounds = _SHORT_ROUNDS if stage.short else _ROUNDS
    measured = _Rounds(make_ground(stage))
    if SKYSAIL in named:
        await measured.skysail(rounds)
    for contender in CONTENDERS:
        if contender.name in named and contender.name in OTHERS:
            await measured.other(contender, rounds)
    systems = summary(measured.rows)
    return Result(
        NAME,
        figures=figures(systems),
        parameters={
            "form": stage.form,
            "rate": RATE,
            "objective_ms": SLO_MS,
            "dawdles_ms": DAWDLES_MS,
            "one_in": ONE_IN,
            "rounds": rounds,
            "seconds": stage.seconds,
            "seed": stage.seed,
        },
        series={"systems": systems, "stretches": measured.rows, "left_out": measured.out},
    )


def make_ground(stage: Stage) -> Ground:
    """Write down what three trees say about the test rows, and which of them the third one dawdles over."""
    data = digits()
    said = trees(data, len(MODELS), _FITTED_ON)
    late = (np.random.default_rng(0).permutation(len(said)) % ONE_IN == 0) * DAWDLES_MS
    rows = np.column_stack([said, late]).astype(np.float32)
    packages = {name: stage.folder / name for name in MODELS}
    for name, folder in packages.items():
        package_function(f"load.research.models.slow:{name}", folder, name, "1", rows[late == 0][:5])
    truth: dict[str, list[Truth]] = {name: said[:, column].tolist() for column, name in enumerate(MODELS)}
    prompt = np.column_stack([said, np.zeros(len(said))])  # the labels are known, so feedback need not wait
    for how, count in HOW.items():
        joblib.dump(InLine(count), stage.folder / f"{how}.joblib")
        truth[how] = InLine(count).predict(prompt).tolist()
    joblib.dump(InThreads(WAIT_S), stage.folder / "threads.joblib")
    truth["threads"] = [
        frozenset(each) for each in zip(*(InLine(n).predict(prompt).tolist() for n in HOW.values()), strict=True)
    ]
    asked = Digits(rows, data.test_y, rows, data.test_y)
    return Ground(stage, asked, stage.folder / "with.joblib", packages, truth)


def summary(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each system: `[median, least, most]` with and without the slow model, and what is kept."""
    found: list[dict[str, Any]] = []
    for system in dict.fromkeys(row["system"] for row in rows):
        mine = [row for row in rows if row["system"] == system]
        about: dict[str, Any] = {"name": system, "label": mine[0]["label"]}
        for how in HOW:
            these = [row for row in mine if row["how"] == how]
            spreads = {figure: [row[figure] for row in these if figure in row] for figure in _SPREAD}
            about |= {f"{how}_{figure}": spread(values) for figure, values in spreads.items() if values}
            about |= {f"{how}_{count}": sum(row[count] for row in these) for count in ("lost", "duplicates", "wrong")}
        # Stretches have a few arrivals more or fewer than the rate says, so shares of those asked are compared.
        if "with_share_in_time" in about and "without_share_in_time" in about:
            about["kept"] = about["with_share_in_time"][0] / max(1e-9, about["without_share_in_time"][0])
        found.append(about)
    return found


def figures(systems: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return every system's figures, flat."""
    return {
        f"{row['name']}_{key}": value[0] if isinstance(value, list) else value
        for row in systems
        for key, value in row.items()
        if key not in ("name", "label")
    }


_FIGURES: Final = ("goodput_per_s", "p50_ms", "p99_ms")


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    heads = ("system", "goodput/s without it", "with it", "kept", "p50 ms", "with it", "p99 ms", "with it", "lost")
    lines = tuple(_line(row) for row in result.series["systems"])
    shown = [Table("Goodput and latency with the slow model and without it", heads, lines)]
    if out := result.series.get("left_out"):
        shown.append(left_out(out))
    return shown


def _line(row: Mapping[str, Any]) -> tuple[str, ...]:
    values = [
        in_words(row[key]) if key in row else ""
        for figure in _FIGURES
        for key in (f"without_{figure}", f"with_{figure}")
    ]
    kept = f"{row['kept']:.3f}" if "kept" in row else ""
    return (row["label"], *values[:2], kept, *values[2:], number(row["with_lost"] + row["without_lost"]))


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "one slow model among three: goodput with it and without it, beside those who run models in line",
    tables=tables,
    page="research/peers/trio.md.j2",
    seconds=SECONDS,
    parts=NAMES,
    short=True,
)
