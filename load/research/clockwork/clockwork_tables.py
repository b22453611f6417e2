"""The scenario `clockwork`: its tables and its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from load.research.clockwork import clockwork, clockwork_live
from load.research.clockwork.clockwork import LANES, NAME, OBJECTIVES_MS, SIMULATED
from load.results.tables import Table, number
from load.scenario import Scenario
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.results.results import Result


_HEADS: Final = {
    "goodput": "in time",
    "goodput_within": "within the load",
    "cold_share": "cold",
    "cold_goodput": "cold in time",
    "refused_share": "refused",
    "expired_share": "expired",
    "late_share": "late",
    "no_model_share": "no model",
}
_LIVE_HEADS: Final = {
    "goodput": "in time",
    "goodput_within": "within the load",
    "refused_share": "no time left",
    "unloaded_share": "not loaded",
    "expired_share": "expired",
    "late_share": "late",
    "unanswered_share": "no answer",
}
_LIVE_COSTS: Final = {
    "p50_ms": "p50 (ms)",
    "p99_ms": "p99 (ms)",
    "loads_per_s": "loads a second",
    "resident": "in memory",
    "rows_a_batch": "rows a batch",
    "used_cores": "cores",
    "models_mib": "MiB",
}
_ERROR_HEADS: Final = ("predicted too short", "p99 by", "predicted too long", "p99 by")
_PICTURE: Final = f"{NAME}.png"
_COSTS: Final = {"rows_a_batch": "rows a batch", "loads_per_s": "loads a second", "busy": "busy"}


def tables(result: Result) -> list[Table]:
    """Return the tables of the parts that were run."""
    found = []
    for part, name in (("live", "Real models on Kafka"), ("sleeping", "Sleeping models on Kafka")):
        if f"{part}_queries" in result.figures:
            found += [_live(part, name, result.figures), _live_costs(part, name, result.figures)]
    if _has_steps(result.figures, "live_objective"):
        found.append(_steps(result.figures, "live_objective", "goodput", "Real models on Kafka: in time, by objective"))
    for part in SIMULATED[:2]:
        if f"{part}_queries" in result.figures:
            found += [_outcomes(part, result.figures), _costs(part, result.figures)]
    if _has_steps(result.figures, "objective"):
        title = "Profiled models, simulated: in time within the load, by objective"
        found.append(_steps(result.figures, "objective", "goodput_within", title))
    return found


def _lanes(part: str, figures: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return the lanes that ran, and what they are called."""
    return [each for each in clockwork_live.LANES.items() if f"{part}_{each[0]}_goodput" in figures]


def _live(part: str, name: str, figures: Mapping[str, float]) -> Table:
    rows = tuple(
        (label, *(f"{figures[f'{part}_{lane}_{head}']:.3%}" for head in _LIVE_HEADS))
        for lane, label in _lanes(part, figures)
    )
    queries, per_s = figures[f"{part}_queries"], figures[f"{part}_per_s"]
    return Table(f"{name}: {queries:,.0f} queries, {per_s:,.0f} a second", ("", *_LIVE_HEADS.values()), rows)


def _live_costs(part: str, name: str, figures: Mapping[str, float]) -> Table:
    rows = []
    for lane, label in _lanes(part, figures):
        told = [number(figures.get(f"{part}_{lane}_{head}")) for head in _LIVE_COSTS]
        rows.append((label, *told, *_errors(figures, f"{part}_{lane}")))
    return Table(f"{name}: what it took", ("", *_LIVE_COSTS.values(), *_ERROR_HEADS), tuple(rows))


def _errors(figures: Mapping[str, float], of: str) -> list[str]:
    """Return how often batches were predicted too short and too long, and by how much; nothing where none was."""
    errors = [(figures.get(f"{of}_{side}_share"), figures.get(f"{of}_{side}_p99_us")) for side in ("under", "over")]
    pairs = [("", "") if None in (share, us) else (f"{share:.1%}", f"{us:,.0f} us") for share, us in errors]
    return [text for pair in pairs for text in pair]


def _outcomes(part: str, figures: Mapping[str, float]) -> Table:
    rows = tuple(
        (label, *(f"{figures[f'{part}_{lane}_{name}']:.3%}" for name in _HEADS)) for lane, label in LANES.items()
    )
    queries, per_s = figures[f"{part}_queries"], figures[f"{part}_per_s"]
    return Table(
        f"{part.capitalize()} models, simulated: {queries:,.0f} queries, {per_s:,.0f} a second",
        ("", *_HEADS.values()),
        rows,
    )


def _costs(part: str, figures: Mapping[str, float]) -> Table:
    rows = [
        (label, *(f"{figures[f'{part}_{lane}_{name}']:.2f}" for name in _COSTS), *_errors(figures, f"{part}_{lane}"))
        for lane, label in LANES.items()
    ]
    title = f"{part.capitalize()} models, simulated: what it took"
    return Table(title, ("", *_COSTS.values(), *_ERROR_HEADS), tuple(rows))


def _has_steps(figures: Mapping[str, float], part: str) -> bool:
    return any(name.startswith(f"{part}_") for name in figures)


def _measured_ms(figures: Mapping[str, float], part: str, value: str) -> list[int]:
    """Return the objectives that were measured, the longest first."""
    steps = dict.fromkeys((*OBJECTIVES_MS, *clockwork_live.OBJECTIVES_MS))
    return sorted((ms for ms in steps if f"{part}_{ms}_fifo_{value}" in figures), reverse=True)


def _steps(figures: Mapping[str, float], part: str, value: str, title: str) -> Table:
    rows = tuple(
        (f"{ms} ms", *(f"{figures[f'{part}_{ms}_{lane}_{value}']:.3%}" for lane in clockwork_live.CONTROLLERS))
        for ms in _measured_ms(figures, part, value)
    )
    return Table(title, ("", "clockwork", "fifo, aimd"), rows)


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: what was in time as the objective got shorter, on Kafka and simulated."""
    parts = {
        "real models on Kafka": ("live_objective", "goodput"),
        "profiled models, simulated, within the load": ("objective", "goodput_within"),
    }
    shown = {name: each for name, each in parts.items() if _has_steps(result.figures, each[0])}
    if not shown:
        return {}
    figure, axes = panels(len(shown))
    for axis, (name, (part, value)) in zip(axes, shown.items(), strict=True):
        steps = _measured_ms(result.figures, part, value)
        for lane, colour in zip(clockwork_live.CONTROLLERS, COLOURS, strict=False):
            shares = [100 * result.figures[f"{part}_{ms}_{lane}_{value}"] for ms in steps]
            axis.plot(steps, shares, marker="o", markersize=3, label=LANES[lane], color=colour)
        axis.set_title(name)
        axis.set_xlabel("objective (ms)")
        axis.set_ylabel("in time (%)")
        axis.set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=7)
    return {_PICTURE: png(figure)}


def words(result: Result) -> dict[str, Any]:
    """Return what the page says besides: whether objectives were measured, which the picture shows."""
    return {"has_picture": any(_has_steps(result.figures, part) for part in ("live_objective", "objective"))}


SCENARIO = Scenario(
    clockwork.NAME,
    clockwork.FIGURES,
    clockwork.run,
    "200 models on a host of which a tenth fit: Clockwork's schedule beside fifo with aimd, and a worker a model",
    tables=tables,
    page="research/clockwork/clockwork.md.j2",
    words=words,
    plots=plots,
    parts=clockwork.PARTS,
    short=True,
)
