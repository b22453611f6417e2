"""The paper's figures: the scenarios that measure each, and its numbers beside the published ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from load.research.batching import batching, controllers, delayed, replicas, straggler
from load.research.batching.controller_comparison import ADAPTIVE, OBJECTIVE_MS
from load.research.learning import agreement, figure8, personal, recall
from load.research.paper import plots
from load.research.paper.published import BATCHING_GAIN, DELAY_GAIN, ENSEMBLE_GAIN, FIGURE4, FIGURE6, RECALL
from load.scenarios.learning import learn
from load.scenarios.rate import overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from load.results.results import Result
    from load.scenario import Scenario

# What, published, measured.
Row: TypeAlias = tuple[str, str, str]
Results: TypeAlias = "Mapping[str, Result]"


SOURCES: Final[Mapping[str, Scenario]] = {
    module.SCENARIO.name: module.SCENARIO
    for module in (
        controllers,
        batching,
        delayed,
        replicas,
        agreement,
        figure8,
        straggler,
        personal,
        learn,
        recall,
        overload,
    )
}


@dataclass(frozen=True, slots=True)
class Part:
    """One figure, of the paper or of what its page lacks.

    Attributes:
        name: permanent.
        title: of the section.
        sources: scenarios that measure it; it is drawn from those that have run.
        draw: the plot as inline SVG.
        rows: the numbers beside the published ones.
    """

    name: str
    title: str
    sources: tuple[str, ...]
    draw: Callable[[Results], str]
    rows: Callable[[Results], Iterator[Row]]


def _figure3(results: Results) -> Iterator[Row]:
    for model in controllers.MODELS:
        sizes = [row for row in results["controllers"].series["sizes"] if row["model"] == model]
        fits = [row for row in sizes if row["p99_ms"] <= OBJECTIVE_MS]
        most = f"{fits[-1]['rows']:,}" if fits else "none"
        more = " or more" if fits and fits[-1] is sizes[-1] else ""
        yield (
            f"{model}: most rows within 20 ms (p99); a row alone",
            "",
            f"{most}{more}; {sizes[0]['p50_ms']:.2f} ms",
        )
    per_s = {m: results["controllers"].figures[f"{m}_aimd_model_per_s"] for m in ("linear-svm", "kernel-svm")}
    yield (
        "linear against kernel SVM, rows a second",
        "largest batches 241 times apart",
        f"{per_s['linear-svm'] / per_s['kernel-svm']:,.0f} times apart",
    )


def _figure4(results: Results) -> Iterator[Row]:
    if "controllers" in results:
        yield from _controllers(results["controllers"].figures)
    if "batching" in results:
        known = results["batching"].figures
        shares = ((name, known[f"{start}settled_share_of_best"]) for name, start in _SETTLED.items())
        told = ", ".join(f"{name} {share:.0%}" for name, share in shares)
        yield "of the best size, a model of 5 ms a batch and 0.1 ms a row", "", told
        yield from _contested(known)


def _controllers(figures: Mapping[str, float]) -> Iterator[Row]:
    for model, (aimd, quantile, none) in FIGURE4.items():
        yield (
            f"{model}: aimd / quantile / deferred / none, rows a second",
            f"{aimd:,} / {quantile:,} / - / {none:,}",
            " / ".join(f"{figures[f'{model}_{name}_per_s']:,.0f}" for name in ("aimd", "quantile", "deferred", "none")),
        )
    for model in ("linear-svm", "forest", "kernel-svm"):
        aimd, _, none = FIGURE4[model]
        said = f"{BATCHING_GAIN} (text), {aimd / none:,.0f} (plot)" if model == "linear-svm" else f"{aimd / none:,.1f}"
        alone, whole = (figures[f"{model}_{kind}gain"] for kind in ("model_", ""))
        yield f"{model}: gain by batching", said, f"{whole:,.1f} of its worker, {alone:,.1f} of the model's time alone"
    yield "linear-svm: gain through the whole system", "", f"{figures['whole_alone_gain']:,.1f}"
    yield "the same, converted as by default", "", f"{figures['whole_converted_gain']:,.1f}"


def _contested(figures: Mapping[str, float]) -> Iterator[Row]:
    """Say what each controller reaches of the best fixed batch of a real model; nothing of a result without."""
    ending = "_best_fixed_per_s"
    for model in (name.removesuffix(ending) for name in figures if name.endswith(ending)):
        reached = (f"{figures[f'{model}_{name}_share_of_best']:.0%}" for name in ADAPTIVE)
        worst = (f"{figures[f'{model}_{name}_batch_p99_ms']:.1f}" for name in ADAPTIVE)
        yield (
            f"{model}: {' / '.join(ADAPTIVE)}, of the best fixed batch within 20 ms; p99 of a batch",
            "",
            f"{' / '.join(reached)}; {' / '.join(worst)} ms",
        )


def _figure5(results: Results) -> Iterator[Row]:
    result = results["delayed"]
    for wait in sorted(int(name.split("_")[1]) for name in result.figures if name.endswith("_rows_a_batch")):
        mine = {k: result.figures[f"wait_{wait}_{k}"] for k in ("rows_a_batch", "model_per_s", "p99_ms")}
        yield (
            f"waiting {wait} ms: rows a batch, rows a second of model's time, p99",
            "",
            f"{mine['rows_a_batch']:.1f}, {mine['model_per_s']:,.0f}, {mine['p99_ms']:.0f} ms",
        )
    yield "gain by the longest wait", f"{DELAY_GAIN} (2 ms, linear SVM)", f"{result.figures['gain']:.1f}"


def _figure6(results: Results) -> Iterator[Row]:
    figures = results["replicas"].figures
    for count in replicas.COUNTS[1:]:
        said = f"{FIGURE6[count]:.2f}" if count in FIGURE6 else ""
        drained = figures[f"workers_{count}_drained_per_s"] / figures["workers_1_drained_per_s"]
        yield (
            f"{count} workers, times one",
            said,
            f"{figures[f'scale_{count}']:.2f} while all are busy, {drained:.2f} until drained",
        )


def _figure7(results: Results) -> Iterator[Row]:
    figures = results["agreement"].figures
    gain = 1 - figures["all_error"] / figures["best_single_error"]
    yield "relative gain of the ensemble over its best model", f"{ENSEMBLE_GAIN:.1%} (ImageNet)", f"{gain:.1%}"
    models = max(row["agreeing"] for row in results["agreement"].series["agreement"])
    everyone = figures[f"all_error_when_{models}_agree"]
    yield "error where all agree, and of all answers", "", f"{everyone:.2%}, {figures['all_error']:.2%}"
    yield "answers that are not the plain vote", "", f"{figures['all_off_reference']:,.0f}"


def _figure8(results: Results) -> Iterator[Row]:
    figures = results["figure8"].figures
    for policy in ("exp3", "exp4"):
        parts = ", ".join(f"{figures[f'{policy}_error_{part}']:.3f}" for part in ("before", "during", "after"))
        yield f"{policy}: error in all (before, during, after)", "", f"{figures[f'{policy}_error_total']:.4f} ({parts})"
    yield "best model alone, in hindsight", "", f"{figures['hindsight_error_best']:.4f}"
    yield "the model that breaks, alone", "", f"{figures['single_error_total']:.4f}"
    yield "answers by default, which count as wrong (of 60,000)", "", f"{figures['defaults']:,.0f}"


def _figure9(results: Results) -> Iterator[Row]:
    result = results["straggler"]
    for size in sorted(int(name.split("_")[1]) for name in result.figures if name.endswith("_in_time")):
        mine = {n: result.figures[f"models_{size}_{n}"] for n in ("in_time", "p99_ms", "error", "waiting_error")}
        yield (
            f"{size} model{'s' if size > 1 else ''}: in time, p99, error (waiting for all)",
            "",
            f"{mine['in_time']:.1%}, {mine['p99_ms']:.0f} ms, {mine['error']:.3f} ({mine['waiting_error']:.3f})",
        )


def _figure10(results: Results) -> Iterator[Row]:
    figures = results["personal"].figures
    for lane, words in (("global", "one state for all"), ("bandit", "a state a user"), ("full", "asking all models")):
        reference = figures[f"reference_{lane}_error"]
        yield f"{words}: error", f"{reference:.3f} (our numpy reference)", f"{figures[f'{lane}_error']:.3f}"
    yield "best model for all, in hindsight", "", f"{figures['best_single_error']:.3f}"


def _feedback(results: Results) -> Iterator[Row]:
    if "recall" in results:
        figures = results["recall"].figures
        said = f"{RECALL['without']:,} to {RECALL['with']:,} (1.6 times as printed)"
        rates = f"{figures['without_observations_per_s']:,.0f} to {figures['with_observations_per_s']:,.0f}"
        yield "whole loop, four models, without cache to with", said, f"{rates} ({figures['gain']:.2f} times)"
        spent = (f"{figures[f'{how}_cpu_us_per_observation']:,.0f}" for how in ("without", "with"))
        saved = f"{' to '.join(spent)} ({figures['cpu_gain']:.2f} times)"
        yield "CPU of all roles for each observation, asking included (µs)", "", saved
    if "learn" in results:
        figures = results["learn"].figures
        yield (
            "join and learn alone, observations a second",
            f"{RECALL['with']:,} with the cache",
            f"{figures['observations_per_s']:,.0f}; {figures['observations_per_core_s']:,.0f} a second and core",
        )


def _overload(results: Results) -> Iterator[Row]:
    figures = results["overload"].figures
    for how, words in (
        ("admission", "with admission"),
        ("adaptive", "with admission, batches size themselves"),
        ("without", "without"),
    ):
        at = {times: figures[f"{how}_at_{times}_goodput"] for times in overload.TIMES}
        told = ", ".join(f"{goodput:,.0f}/s at {times} x" for times, goodput in at.items())
        yield f"{words}: answered by the model within the objective", "", told
    kept = (f"{figures[name]:.0%}" for name in ("kept", "kept_adaptive", "kept_without"))
    yield "kept of it at 3 x: with admission, batches that size themselves, without", "", ", ".join(kept)


_SETTLED: Final = {"aimd": "", "quantile": "quantile_", "deferred": "deferred_"}
_ALL = (
    Part("figure3", "Figure 3: time of a batch by its size", ("controllers",), plots.figure3, _figure3),
    Part("figure4", "Figure 4: controllers and batches of one", ("controllers", "batching"), plots.figure4, _figure4),
    Part("figure5", "Figure 5: delayed batching", ("delayed",), plots.figure5, _figure5),
    Part("figure6", "Figure 6: replicas", ("replicas",), plots.figure6, _figure6),
    Part("figure7", "Figure 7: accuracy by agreement", ("agreement",), plots.figure7, _figure7),
    Part("figure8", "Figure 8: the best model breaks, and is mended", ("figure8",), plots.error_curves, _figure8),
    Part("figure9", "Figure 9: stragglers", ("straggler",), plots.figure9, _figure9),
    Part("figure10", "Figure 10: a selection for each user", ("personal",), plots.figure10, _figure10),
    Part("feedback", "Feedback, with and without the cache", ("learn", "recall"), plots.feedback, _feedback),
    Part(
        "overload",
        "Overload, with and without admission (no figure of the paper)",
        ("overload",),
        plots.overloaded,
        _overload,
    ),
)
PARTS: Final[Mapping[str, Part]] = {part.name: part for part in _ALL}
