"""The scenario `parm`: its tables and its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from load.research.parm import parm
from load.research.parm.parm import NAME
from load.research.parm.parm_forms import ASKED, LANES, VIRTUAL
from load.results.tables import Table
from load.scenario import Scenario
from streams.evaluation.drawing import COLOURS, panels, png

if TYPE_CHECKING:
    from collections.abc import Mapping

    from load.results.results import Result


_PICTURE: Final = f"{NAME}.png"
_WORDS: Final = {
    "none": "12 workers",
    "equal": "18 workers",
    "k2": "12, and 6 for sums of two",
    "hedge": "12, late ones asked twice",
    "k3": "12, and 4 for sums of three",
    "k4": "12, and 3 for sums of four",
}
_POINTS: Final = {"p50_ms": "p50", "p99_ms": "p99", "p999_ms": "p99.9"}


def tables(result: Result) -> list[Table]:
    """Return what there is: lanes in virtual time and real ones, accuracies, and latencies by how much is asked."""
    found = result.figures
    shown = [_virtual(found), _accuracies(found), _confidences(found), _by_load(found), _real(found), _killed(found)]
    return [table for table in shown if table.rows]


def _virtual(found: Mapping[str, float]) -> Table:
    lanes = [lane for lane in VIRTUAL if f"virtual_{lane}_p50_ms" in found]
    rows = tuple((_WORDS[lane], *_points(found, f"virtual_{lane}"), *_decoded(found, lane)) for lane in lanes)
    return Table("In virtual time, ms", ("workers", *_POINTS.values(), "decoded", "more work"), rows)


def _points(found: Mapping[str, float], name: str) -> list[str]:
    return [f"{found[f'{name}_{point}']:.1f}" if f"{name}_{point}" in found else "" for point in _POINTS]


def _decoded(found: Mapping[str, float], lane: str) -> tuple[str, str]:
    share, more = found.get(f"virtual_{lane}_decoded_share"), found.get(f"virtual_{lane}_more_work", 0.0)
    return "" if share is None else f"{share:.2%}", f"{more:.1%}"


def _trained(found: Mapping[str, float]) -> list[tuple[str, str]]:
    """Return which networks and sizes of groups there are: words, and the beginning of their figures' names."""
    kinds = ("MNIST", "k"), ("Fashion-MNIST", "fashion_k")
    return [
        (f"{words}, {k}", f"{name}{k}") for words, name in kinds for k in (2, 3, 4) if f"{name}{k}_accuracy" in found
    ]


def _accuracies(found: Mapping[str, float]) -> Table:
    rows = tuple(
        (
            words,
            f"{found[f'{name}_epochs']:.0f}",
            f"{found[f'{name}_own_accuracy']:.2%}",
            f"{found[f'{name}_accuracy']:.2%}",
            f"{found[f'{name}_accuracy_lost_points']:.2f}",
        )
        for words, name in _trained(found)
    )
    heads = ("images, rows of a group", "epochs", "the network's own", "decoded", "points lost")
    return Table("Right answers to 10,000 images, each decoded once", heads, rows)


def _confidences(found: Mapping[str, float]) -> Table:
    rows = tuple(
        (words, *(f"{found[f'{name}_{figure}']:.2%}" for figure in ("raw_confidence", "confidence", "accuracy")))
        for words, name in _trained(found)
        if f"{name}_confidence" in found
    )
    heads = ("images, rows of a group", "decoded scores as they are", "what the answers say", "right")
    return Table("How sure decoded answers are, on the average", heads, rows)


def _by_load(found: Mapping[str, float]) -> Table:
    rows = []
    for kind, words in (("at", "with stalls"), ("calm", "nothing stands still")):
        for used in (f"{100 * share:.0f}" for share in ASKED):
            names = [f"virtual_{kind}_{used}_{lane}" for lane in LANES]
            if f"{names[0]}_p99_ms" in found:
                cells = [f"{found[f'{name}_p99_ms']:.0f} / {found[f'{name}_p999_ms']:.0f}" for name in names]
                rows.append((f"{used} %, {words}", *cells))
    heads = ("of what 12 workers can do", *(_WORDS[lane] for lane in LANES))
    return Table("p99 / p99.9 in virtual time by how much is asked, ms", heads, tuple(rows))


def _real(found: Mapping[str, float]) -> Table:
    lanes = [lane for lane in LANES if f"{lane}_p50_ms" in found]
    rows = tuple(
        (
            _WORDS[lane],
            f"{found[f'{lane}_queries_sent']:,.0f}",
            *_points(found, lane),
            f"{found[f'{lane}_loaded_p99_ms']:.0f}" if f"{lane}_loaded_p99_ms" in found else "",
            f"{found.get(f'{lane}_more_work', 0.0):.1%}",
        )
        for lane in lanes
    )
    heads = ("workers", "queries", *_POINTS.values(), "p99, nothing stands still, 90 %", "more work")
    return Table("Real processes on this machine, ms", heads, rows)


def _killed(found: Mapping[str, float]) -> Table:
    rows = tuple(
        (
            _WORDS[lane],
            f"{found[f'{lane}_rebalance_asked']:,.0f}",
            f"{found[f'{lane}_rebalance_unserved']:.0f}",
            *(f"{found[f'{lane}_rebalance_{point}']:.0f}" for point in ("p50_ms", "p99_ms")),
        )
        for lane in LANES
        if f"{lane}_rebalance_asked" in found
    )
    return Table("A worker is killed, real processes", ("workers", "queries", "unserved", "p50 ms", "p99 ms"), rows)


def plots(result: Result) -> dict[str, bytes]:
    """Return the picture: quantiles by lane, and what decoding costs by images and size of groups."""
    found = result.figures
    figure, (left, right) = panels(2)
    lanes = [lane for lane in VIRTUAL if f"virtual_{lane}_p50_ms" in found]
    for number, lane in enumerate(lanes):
        places = [place + 0.16 * (number - len(lanes) / 2) for place in range(len(_POINTS))]
        heights = [found[f"virtual_{lane}_{point}"] for point in _POINTS]
        left.bar(places, heights, 0.14, color=COLOURS[number], label=_WORDS[lane])
    left.set_xticks(range(len(_POINTS)), list(_POINTS.values()))
    left.set_ylabel("ms, in virtual time")
    trained = _trained(found)
    lost = [found[f"{name}_accuracy_lost_points"] for _, name in trained]
    right.bar(range(len(trained)), lost, 0.5, color="black")
    right.axhline(6.5, color=COLOURS[4], linewidth=0.8, linestyle="--", label="the most that ParM reports")
    right.set_xticks(
        range(len(trained)),
        [words.replace(", ", "\n").replace("-MNIST", "-\nMNIST") for words, _ in trained],
        fontsize=6,
    )
    right.set_ylabel("points of accuracy lost")
    figure.legend(loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: png(figure)}


SCENARIO = Scenario(
    parm.NAME,
    parm.FIGURES,
    parm.run,
    "late outputs decoded from a parity model's, beside as many workers more and none: p99.9, accuracy",
    tables=tables,
    page="research/parm/parm.md.j2",
    plots=plots,
    parts=parm.PARTS,
    short=True,
)
