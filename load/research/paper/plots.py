"""The plots. Each takes the results that its part is made from, by scenario, and returns inline SVG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from load.research.batching import controllers, replicas
from load.research.batching.controller_comparison import OBJECTIVE_MS
from load.research.learning import figure8, personal
from load.research.paper.published import FIGURE4, FIGURE6, RECALL
from load.scenarios.rate import overload
from streams.evaluation.drawing import COLOURS, panels, svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes

    from load.results.results import Result

_GREY = "#9aa3ab"  # Clipper's numbers, everywhere
_CLIPPER = "Clipper, as published"


def figure3(results: Mapping[str, Result]) -> str:
    """Draw the time of a batch by its rows, a line a model."""
    figure, (middle, worst) = panels(2)
    for axes, quantile in ((middle, "p50_ms"), (worst, "p99_ms")):
        for model, colour in zip(controllers.MODELS, COLOURS, strict=False):
            rows = [row for row in results["controllers"].series["sizes"] if row["model"] == model]
            _line(axes, rows, "rows", quantile, model, colour)
        axes.axhline(OBJECTIVE_MS, color="black", linewidth=1, linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="rows of a batch", ylabel=f"{quantile[:3]} of a batch (ms)")
    middle.legend(fontsize=7)
    return svg(figure)


def figure4(results: Mapping[str, Result]) -> str:
    """Draw rows a second by model and controller, and the gain over batches of one beside Clipper's; climbing caps."""
    figure, (rates, gain, caps) = panels(3, (10.5, 3.3))
    models = controllers.MODELS
    for axes in (rates, gain) if "controllers" not in results else (caps,) if "batching" not in results else ():
        axes.set_axis_off()
    if "controllers" in results:
        figures = results["controllers"].figures
        lines = {name: [figures[f"{model}_{name}_per_s"] for model in models] for name in controllers.CONTROLLERS}
        _bars(rates, models, lines, "rows a second")
        ours = [figures[f"{model}_gain"] for model in models]
        alone = [figures[f"{model}_model_gain"] for model in models]
        theirs = [FIGURE4[model][0] / FIGURE4[model][2] for model in models]
        bars = {"whole worker": ours, "model's time alone": alone, _CLIPPER: theirs}
        _bars(gain, models, bars, "aimd, times batches of one", last=_GREY)
        rates.set_yscale("log")
        gain.set_yscale("log")
    if "batching" in results:
        result = results["batching"]
        caps.plot([row["cap"] for row in result.series["batches"]], color=COLOURS[0], label="aimd")
        best = float(result.parameters["best_rows"])
        caps.axhline(best, color="black", linewidth=1, linestyle=":", label="best size")
        caps.axhline(best / 2, color="black", linewidth=1, linestyle="--", label="rows twice as dear")
        caps.set(xlabel="batches", ylabel="cap (rows), 5 ms + 0.1 ms a row")
        caps.legend(fontsize=7)
    return svg(figure)


def figure5(results: Mapping[str, Result]) -> str:
    """Draw batch size and latency by the longest wait."""
    result = results["delayed"]
    waits = sorted(int(name.split("_")[1]) for name in result.figures if name.endswith("_rows_a_batch"))
    rows = [
        {"wait": wait, **{k: result.figures[f"wait_{wait}_{k}"] for k in ("model_per_s", "p50_ms", "p99_ms")}}
        for wait in waits
    ]
    figure, (capacity, latency) = panels(2)
    _line(capacity, rows, "wait", "model_per_s", "", COLOURS[0])
    capacity.set(xlabel="longest wait (ms)", ylabel="rows a second of model's time")
    capacity.set_ylim(bottom=0)
    for name, colour in (("p50_ms", COLOURS[1]), ("p99_ms", COLOURS[4])):
        _line(latency, rows, "wait", name, name[:3], colour)
    latency.axhline(float(result.parameters["slo_ms"]), color="black", linewidth=1, linestyle=":", label="objective")
    latency.set(xlabel="longest wait (ms)", ylabel="latency of a query (ms)")
    latency.set_ylim(bottom=0)
    latency.legend(fontsize=7)
    return svg(figure)


def figure6(results: Mapping[str, Result]) -> str:
    """Draw the rate by the number of workers, as multiples of one."""
    figures = results["replicas"].figures
    figure, (axes,) = panels(1, (5.2, 3.0))
    one = figures["workers_1_per_s"]
    rows = [{"workers": n, "scale": figures[f"workers_{n}_per_s"] / one} for n in replicas.COUNTS]
    drained = [{"workers": n, "scale": figures[f"workers_{n}_drained_per_s"] / one} for n in replicas.COUNTS]
    axes.plot(replicas.COUNTS, replicas.COUNTS, color="black", linewidth=1, linestyle=":", label="linear")
    _line(axes, rows, "workers", "scale", "while all are busy", COLOURS[0])
    _line(axes, drained, "workers", "scale", "until all is drained", COLOURS[1])
    theirs = [{"workers": n, "scale": scale} for n, scale in FIGURE6.items()]
    _line(axes, theirs, "workers", "scale", _CLIPPER, _GREY)
    axes.set(xlabel="workers", ylabel="rate, times one worker", xticks=replicas.COUNTS)
    axes.legend(fontsize=7)
    return svg(figure)


def figure7(results: Mapping[str, Result]) -> str:
    """Draw the error and the share of the answers by how many models agree."""
    result = results["agreement"]
    rows = result.series["agreement"]
    figure, (error, share) = panels(2)
    agreeing = [row["agreeing"] for row in rows]
    error.bar(agreeing, [row["error"] for row in rows], color=COLOURS[0])
    error.axhline(result.figures["all_error"], color="black", linewidth=1.2, label="ensemble, all answers")
    best = result.figures["best_single_error"]
    error.axhline(best, color="black", linewidth=1.2, linestyle="--", label="best model alone")
    error.set(xlabel="models that agree with the answer", ylabel="error")
    error.legend(fontsize=7)
    share.bar(agreeing, [row["share"] for row in rows], color=COLOURS[2])
    share.set(xlabel="models that agree with the answer", ylabel="share of the answers")
    return svg(figure)


def error_curves(results: Mapping[str, Result]) -> str:
    """Draw figure 8: the error since the start, of the policies and of each model alone."""
    rows = results["figure8"].series["error"]
    figure, (axes,) = panels(1)
    axes.axvspan(figure8.BROKEN.start, figure8.BROKEN.stop, color="#D55E00", alpha=0.09, linewidth=0)
    for model, colour in zip(figure8.MODELS, COLOURS, strict=False):
        axes.plot(*_columns(rows, "queries", model), color=colour, linewidth=1, label=f"{model} alone")
    for policy, style in (("exp3", "-"), ("exp4", "--")):
        axes.plot(*_columns(rows, "queries", policy), color="black", linewidth=2, linestyle=style, label=policy)
    axes.set(xlabel="queries; the best model is broken in the shade", ylabel="error since the start")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, ncol=2)
    return svg(figure)


def figure9(results: Mapping[str, Result]) -> str:
    """Draw latency, missing models and error by the size of the ensemble, by the deadline and waiting for all."""
    result = results["straggler"]
    sizes = sorted(int(name.split("_")[1]) for name in result.figures if name.endswith("_in_time"))
    rows = [_of_size(result, size) for size in sizes]
    figure, (latency, missing, error) = panels(3)
    for name, label, colour, style in (
        ("p99_ms", "p99", COLOURS[0], "-"),
        ("p50_ms", "p50", COLOURS[0], "--"),
        ("waiting_p99_ms", "p99, waiting for all", COLOURS[4], "-"),
        ("waiting_p50_ms", "p50, waiting for all", COLOURS[4], "--"),
    ):
        latency.plot(
            *_columns(rows, "size", name), color=colour, linestyle=style, marker="o", markersize=3, label=label
        )
    latency.axhline(float(result.parameters["deadline_ms"]), color="black", linewidth=1, linestyle=":")
    latency.set(xlabel="models", ylabel="latency (ms)")
    _line(missing, rows, "size", "missing", "", COLOURS[3])
    missing.set(xlabel="models", ylabel="outputs missing at the deadline")
    _line(error, rows, "size", "error", "by the deadline", COLOURS[0])
    _line(error, rows, "size", "waiting_error", "waiting for all", COLOURS[4])
    error.set(xlabel="models", ylabel="error")
    for axes in (latency, missing, error):
        axes.set_ylim(bottom=0)
        axes.set_xticks(sizes)
    latency.legend(fontsize=6)
    error.legend(fontsize=7)
    return svg(figure)


def figure10(results: Mapping[str, Result]) -> str:
    """Draw each application's error by the feedback that its user has given."""
    result = results["personal"]
    figure, (axes,) = panels(1)
    labels = {"global": "one state for all (Exp3)", "bandit": "a state a user (Exp3)", "full": "a state a user (Exp4)"}
    for lane, colour in zip(personal.LANES, COLOURS, strict=False):
        _line(axes, result.series["error"], "feedback", lane, labels[lane], colour)
    for name, label, style in (
        ("best_single_error", "best model for all, in hindsight", "--"),
        ("best_per_user_error", "best model for each user, in hindsight", ":"),
    ):
        axes.axhline(result.figures[name], color="black", linewidth=1, linestyle=style, label=label)
    axes.set(xlabel="feedback that the user has given", ylabel="error")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, ncol=2)
    return svg(figure)


def feedback(results: Mapping[str, Result]) -> str:
    """Draw observations a second: joined and learnt alone, and with the asking of four models, beside Clipper's."""
    figure, (axes,) = panels(1, (6.4, 2.6))
    found: dict[str, float] = {}
    if "learn" in results:
        found["join and learn alone"] = results["learn"].figures["observations_per_s"]
    if "recall" in results:
        for how in ("without", "with"):
            found[f"whole loop, {how} cache"] = results["recall"].figures[f"{how}_observations_per_s"]
    theirs = {f"Clipper, {how} cache": rate for how, rate in RECALL.items()}
    names = [*found, *theirs]
    colours = [COLOURS[0]] * len(found) + [_GREY] * len(theirs)
    axes.barh(names, [*found.values(), *theirs.values()], color=colours)
    axes.invert_yaxis()
    axes.set(xlabel="observations a second")
    return svg(figure)


def _of_size(result: Result, size: int) -> dict[str, float]:
    start = f"models_{size}_"
    mine = {name.removeprefix(start): value for name, value in result.figures.items() if name.startswith(start)}
    return {"size": size, "missing": 1 - mine["outputs_arrived"], **mine}


def _columns(rows: Sequence[Mapping[str, Any]], x: str, y: str) -> tuple[list[float], list[float]]:
    return [row[x] for row in rows], [row[y] for row in rows]


def _line(axes: Axes, rows: Sequence[Mapping[str, Any]], x: str, y: str, label: str, colour: str) -> None:
    axes.plot(*_columns(rows, x, y), color=colour, linewidth=1.4, marker="o", markersize=3, label=label)


def overloaded(results: Mapping[str, Result]) -> str:
    """Draw goodput by how much is asked, with admission and without; and who is answered, by priority."""
    figures = results["overload"].figures
    figure, (kept, ranked) = panels(2)
    for how, label, colour in (
        ("admission", "with admission", COLOURS[0]),
        ("adaptive", "with admission, batches size themselves", COLOURS[1]),
        ("without", "without", COLOURS[3]),
    ):
        goodput = [figures[f"{how}_at_{times}_goodput"] for times in overload.TIMES]
        kept.plot(overload.TIMES, goodput, color=colour, marker="o", markersize=3, label=label)
    kept.axhline(overload.CAPACITY, color="black", linewidth=1, linestyle=":", label="what the model can do")
    kept.set(xlabel="asked, times the capacity", ylabel="answered within the objective (1/s)", xticks=overload.TIMES)
    kept.set_ylim(bottom=0)
    kept.legend(fontsize=7)
    shares = [figures[f"ranked_at_3_priority_{priority}_good_share"] for priority in overload.PRIORITIES]
    ranked.bar([str(priority) for priority in overload.PRIORITIES], shares, color=COLOURS[0])
    ranked.set(xlabel="priority, at 3 times the capacity", ylabel="share answered within the objective")
    ranked.set_ylim(0, 1)
    return svg(figure)


def _bars(
    axes: Axes, names: Sequence[str], lines: Mapping[str, Iterable[float]], label: str, last: str | None = None
) -> None:
    width = 0.8 / len(lines)
    colours = [*COLOURS[: len(lines) - 1], last or COLOURS[len(lines) - 1]]
    for number, ((name, values), colour) in enumerate(zip(lines.items(), colours, strict=True)):
        places = [place + (number - (len(lines) - 1) / 2) * width for place in range(len(names))]
        axes.bar(places, list(values), width, color=colour, label=name)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_ylabel(label)
    axes.legend(fontsize=7, ncol=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
