"""`prefix`: k models on one trunk in a host, beside the same k models whole in the same host, on a real Kafka.

own    each model has four clients, who ask about rows of their own
same   four clients ask all models about one row at a time, as an application with an ensemble does

Clients ask again when they have their answer. Both hosts run all the time, and one is asked at a time, by turns. Models
are loaded when they are asked first: memory is measured when k of them have been, each asked once. Beforehand one batch
is predicted in this process, without a host: that is what the models alone gain. Prefix batching is Nexus's (SOSP'19).
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psutil

from load.figures import FAULTS, GAIN, IN_FULL, MIB, NONE, P50_MS, P99_MS, PER_S, SHOWN, SHOWN_MIB, Figures, at_least
from load.harness import topics
from load.harness.aggregates import over_rounds, turned
from load.harness.system import Deployment
from load.research.nexus.clients import Clients
from load.research.pretzel.pipeline_process import pss_mib
from load.results.results import Result
from load.results.tables import Table, number
from load.scenario import Scenario
from schemas.records import Application, Outcome, Tensor
from streams.evaluation.drawing import COLOURS, panels, png
from workers.entry_point import resolve
from workers.executors.predictor import predictor
from workers.executors.together import HeldModel, headed, together
from workers.packages.loading import load_package
from workers.runtimes.stages.store import Recent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from load.harness.system import Stage, System

NAME: Final = "prefix"
TRUNKS: Final = ("image", "wide")
WAYS: Final = ("heads", "whole")
ASKED: Final = ("own", "same")
COUNTS: Final = (1, 2, 4, 8, 16)
SHORT_TRUNKS: Final = ("wide",)
SHORT_COUNTS: Final = (1, 4)
CLIENTS: Final = 4
_POOL: Final = "small"
_HOST: Final = f"host.{_POOL}"
_ROUNDS, _SHORT_ROUNDS = 2, 1
_SECONDS, _SHORT_SECONDS = 2.5, 1.5
_SETTLE_S, _SHORT_SETTLE_S = 1.5, 1.0  # batches find their size meanwhile
_REPEATS, _SHORT_REPEATS = 4, 2
_ROWS: Final = 500

FIGURES: Final = Figures(
    *(
        (
            *PER_S(f"*_{asked}_{way}_*_per_s"),
            *P50_MS(f"*_{asked}_{way}_*_p50_ms"),
            *P99_MS(f"*_{asked}_{way}_*_p99_ms"),
            *SHOWN(f"*_{asked}_{way}_*_rows_a_batch"),
        )
        for asked in ASKED
        for way in WAYS
    ),
    *(
        GAIN(f"{trunk}_same_{COUNTS[-1]}_{gain}", must=at_least(0.8, IN_FULL))
        for trunk in TRUNKS
        for gain in ("gain_a_head", "models_gain_a_head")
    ),
    GAIN("*_gain", "*_gain_a_head"),
    FAULTS("failed", must=NONE),
    MIB("*_pss_mib"),
    SHOWN_MIB("*_a_model_mib"),
)


async def run(stage: Stage) -> Result:
    """Measure each trunk with more and more models on it."""
    figures: dict[str, float] = {"failed": 0.0}
    trunks, counts = (SHORT_TRUNKS, SHORT_COUNTS) if stage.short else (TRUNKS, COUNTS)
    for trunk in trunks:
        found = await _of_trunk(stage, trunk, counts)
        figures["failed"] += found.pop("failed")
        figures |= {f"{trunk}_{name}": value for name, value in found.items()}
    return Result(
        NAME,
        figures,
        {"form": stage.form, "seed": stage.seed, "clients": CLIENTS, "models": counts[-1]},
    )


async def _of_trunk(stage: Stage, trunk: str, counts: tuple[int, ...]) -> dict[str, float]:
    """Return the figures of one trunk."""
    folder, names = stage.folder / trunk, [f"m{number:02}" for number in range(counts[-1])]
    await asyncio.to_thread(_with_torch("package"), trunk, names, folder, stage.seed)
    rows = _with_torch("rows")(trunk, _ROWS, stage.seed)
    figures: dict[str, float] = {"failed": 0.0}
    figures |= await asyncio.to_thread(_models, folder, names, rows, counts, stage)
    async with AsyncExitStack() as stack:
        systems: dict[str, System] = {}
        clients: dict[str, Clients] = {}
        for way in WAYS:
            deployment = _deployment({name: folder / way / name for name in names})
            stack.callback(topics.delete, stage.bootstrap, deployment.prefix)
            systems[way] = await stack.enter_async_context(stage.launch(deployment))
            clients[way] = stack.enter_context(Clients(stage, deployment.prefix, rows))
        for count in counts:
            for way in WAYS:
                await asyncio.to_thread(clients[way].greet, names[:count])
                figures[f"{way}_{count}_pss_mib"] = _pss_mib(systems[way].pids[_HOST])
        for count, asked in product(counts, ASKED):
            found = await asyncio.to_thread(_measured, stage, clients, names[:count], asked)
            figures["failed"] += found.pop("failed")
            figures |= found
    for way in WAYS:
        grown = figures[f"{way}_{counts[-1]}_pss_mib"] - figures[f"{way}_{counts[0]}_pss_mib"]
        figures[f"{way}_a_model_mib"] = grown / (counts[-1] - counts[0])
    return figures


def _models(
    folder: Path, names: list[str], rows: NDArray[Any], counts: Sequence[int], stage: Stage
) -> dict[str, float]:
    """Predict batches of so many models in this process, and return the ratios of their shortest times."""
    loaded = {way: [load_package(folder / way / name) for name in names] for way in WAYS}
    copies = {
        way: [HeldModel(predictor(model), headed(model, ())) for model in models] for way, models in loaded.items()
    }
    repeats = _SHORT_REPEATS if stage.short else _REPEATS
    figures: dict[str, float] = {}
    for count, asked in product(counts, ASKED):
        took_s = [
            _took(way, copies[way][:count], np.roll(rows, turn * CLIENTS * count, axis=0), is_same=asked == "same")
            for turn in range(repeats)
            for way in WAYS
        ]
        gain = min(took_s[1::2]) / min(took_s[::2])
        figures |= {f"{asked}_{count}_models_gain": gain, f"{asked}_{count}_models_gain_a_head": gain / count}
    return figures


def _took(way: str, copies: Sequence[HeldModel], rows: NDArray[Any], *, is_same: bool) -> float:
    """Return how long one batch of these models takes (s), each asked about as many rows as it has clients."""
    inputs = [Tensor.of(row) for row in rows[: CLIENTS * len(copies)]]
    spans = [inputs[:CLIENTS] if is_same else inputs[at * CLIENTS :][:CLIENTS] for at in range(len(copies))]
    start_s = time.perf_counter()
    done = [*together([*zip(copies, spans, strict=True)], Recent() if way == "heads" else None)]
    took_s = time.perf_counter() - start_s
    assert all(outcome is Outcome.OK for part in done for outcome in part.outcomes), "models answer any row"
    return took_s


def _measured(stage: Stage, clients: Mapping[str, Clients], names: list[str], asked: str) -> dict[str, float]:
    """Ask so many models in both hosts by turns."""
    seconds, settle_s, rounds = (
        (_SHORT_SECONDS, _SHORT_SETTLE_S, _SHORT_ROUNDS) if stage.short else (_SECONDS, _SETTLE_S, _ROUNDS)
    )
    is_same, count = asked == "same", len(names)
    failed = sum(clients[way].ask(names, CLIENTS, settle_s, is_same=is_same).failed for way in WAYS)
    turns: list[dict[str, float]] = []
    for turn in range(rounds):
        told: dict[str, float] = {}
        for way in turned(WAYS, turn):
            found = clients[way].ask(names, CLIENTS, seconds, is_same=is_same)
            failed += found.failed
            told |= {f"{asked}_{way}_{count}_{name}": float(getattr(found, name)) for name in _TOLD}
        turns.append(told)
    figures = over_rounds(turns)
    gain = figures[f"{asked}_heads_{count}_per_s"] / figures[f"{asked}_whole_{count}_per_s"]
    return {
        **figures,
        f"{asked}_{count}_gain": gain,
        f"{asked}_{count}_gain_a_head": gain / count,
        "failed": float(failed),
    }


_TOLD: Final = ("per_s", "p50_ms", "p99_ms", "rows_a_batch")


def _deployment(packages: Mapping[str, Path]) -> Deployment:
    """Return a host of these models that has room for all of them, whichever way they are packaged."""
    return Deployment(
        topics.new_prefix(NAME),
        tuple(Application(name, (name,), "single") for name in packages),
        packages,
        1,
        ("worker",),
        {"hosts": {_POOL: {"memory_mib": 4096}}, "log_level": "warning"},
    )


def _pss_mib(pid: int) -> float:
    """Return what a host and the process of its models take."""
    process = psutil.Process(pid)
    return sum(pss_mib(each.pid) for each in (process, *process.children(recursive=True)))


def _with_torch(name: str) -> Any:
    """Return a function of `load.research.models.trunks`, found as workers do: who lists scenarios needs no torch."""
    return resolve(f"load.research.models.trunks:{name}")


_PICTURE: Final = f"{NAME}.png"
_ASKED: Final = {"own": "rows of their own", "same": "the same rows"}
_WAYS: Final = {"heads": "heads on one trunk", "whole": "whole models"}
_GAINS: Final = ("gain", "gain_a_head", "models_gain_a_head")


def tables(result: Result) -> list[Table]:
    """Return every table, in the order of the page."""
    return [each for trunk in _trunks(result) for each in (_rates(result, trunk), _memory(result, trunk))]


def _trunks(result: Result) -> list[str]:
    return [trunk for trunk in TRUNKS if any(name.startswith(f"{trunk}_") for name in result.figures)]


def _counts(result: Result, trunk: str) -> list[int]:
    return [count for count in COUNTS if f"{trunk}_own_{count}_gain" in result.figures]


def _rates(result: Result, trunk: str) -> Table:
    figures, rows = result.figures, []
    for asked in ASKED:
        for count in _counts(result, trunk):
            of = f"{trunk}_{asked}"
            rates = [number(figures[f"{of}_{way}_{count}_per_s"]) for way in WAYS]
            p50s = [number(figures[f"{of}_{way}_{count}_p50_ms"]) for way in WAYS]
            gains = [f"{figures[f'{of}_{count}_{gain}']:.2f}" for gain in _GAINS]
            rows.append((f"{_ASKED[asked]}, {count}", *rates, *gains, *p50s))
    head = (
        "models asked about",
        "heads, rows/s",
        "whole, rows/s",
        "times",
        "a head",
        "models alone, a head",
        "heads, p50 ms",
    )
    return Table(f"Trunk `{trunk}`", (*head, "whole, p50 ms"), tuple(rows))


def _memory(result: Result, trunk: str) -> Table:
    counts = _counts(result, trunk)
    rows = tuple(
        (
            _WAYS[way],
            *(number(result.figures[f"{trunk}_{way}_{count}_pss_mib"]) for count in counts),
            number(result.figures[f"{trunk}_{way}_a_model_mib"]),
        )
        for way in WAYS
    )
    return Table(f"Memory, trunk `{trunk}` (MiB of PSS) by models", ("", *map(str, counts), "a model more"), rows)


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: how many times the rate of whole models, by their number."""
    trunks = _trunks(result)
    figure, axes = panels(len(trunks), (4.3 * len(trunks), 3.2))
    for its, trunk in zip(axes, trunks, strict=True):
        counts = _counts(result, trunk)
        its.plot(counts, counts, color="black", linewidth=0.8, linestyle=":", label="as many times as models")
        for asked, colour in zip(ASKED, COLOURS, strict=False):
            gains = [result.figures[f"{trunk}_{asked}_{count}_gain"] for count in counts]
            its.plot(counts, gains, marker="o", markersize=3, color=colour, label=_ASKED[asked])
        its.set_title(trunk)
        its.set_xlabel("models on one trunk")
        its.set_ylabel("times the rate of whole models")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: png(figure)}


def words(result: Result) -> dict[str, Any]:
    """Return what the page says besides: which trunks there were, and the ratios where both ways do the same work."""
    trunks = _trunks(result)
    ones = [result.figures[f"{trunk}_{asked}_1_{gain}"] for trunk in trunks for asked in ASKED for gain in _GAINS[1:]]
    return {"trunks": trunks, "ones": ones}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "models with one trunk in a host: rows a second, memory and latency beside the same models whole",
    tables=tables,
    page="research/nexus/prefix.md.j2",
    words=words,
    plots=plots,
    short=True,
)
