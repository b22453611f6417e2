"""Writes a result or a comparison as text, with every figure and target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from load.results.targets import not_judged, verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from load.figures import Figures
    from load.results.compare import Change, Comparison
    from load.results.results import Result


def describe(result: Result, figures: Figures) -> str:
    """Write a result: parameters, figures, targets, and which figures its scenario does not declare."""
    return "\n".join(_result_lines(result, figures))


def describe_comparison(comparison: Comparison) -> str:
    """Write a comparison: what counts first, worst first within it."""
    return "\n".join(_comparison_lines(comparison))


def _result_lines(result: Result, figures: Figures) -> Iterator[str]:
    given = ", ".join(f"{name} {_number(value)}" for name, value in result.parameters.items())
    yield f"{result.scenario}  ({given})"
    width = max((len(name) for name in result.figures), default=0)
    for name, value in result.figures.items():
        yield f"  {name:<{width}}  {_number(value):>12}"
    for verdict in verdicts(result, figures):
        target, measured = verdict.target, verdict.measured
        word = "reached" if verdict.reached else "MISSED"
        found = "not measured" if measured is None else _number(measured)
        yield f"  {word:<8} {target.figure} {target.relation} {_number(target.bound)}: {found}"
    for target in not_judged(result, figures):
        parameter, wanted = target.only_with or ("", "")
        bound = f"{target.figure} {target.relation} {_number(target.bound)}"
        how = " (see SKYSAIL_DATA)" if parameter == "source" else ""
        yield f"  not judged {bound}: it holds for {parameter} {wanted}{how}"
    yield from (f"  not declared: {name}" for name in result.figures if figures.of(name) is None)
    yield from (f"  note: {note}" for note in result.notes)


def _comparison_lines(comparison: Comparison) -> Iterator[str]:
    yield comparison.scenario
    for change in sorted(comparison.changes, key=_rank):
        word = "WORSE" if change.worse else "ok" if change.judged else "shown"
        yield f"  {word:<6} {change.figure:<40} {_number(change.base):>12} → {_number(change.head):>12}"
    yield from (f"  GONE   {name}" for name in comparison.only_base)
    yield from (f"  only in head: {name}" for name in comparison.only_head)


def _rank(change: Change) -> tuple[bool, bool, str]:
    return not change.worse, not change.judged, change.figure


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.0f}" if float(value).is_integer() or abs(value) >= 1_000 else f"{value:.4g}"
