"""An evaluation as one HTML page that needs nothing beside it, with its plots as inline SVG."""

from __future__ import annotations

from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import numpy as np

from deploy.evaluation import words
from policies.estimators.estimate import Estimate
from streams.evaluation.drawing import COLOURS, panels, svg

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streams.evaluation.evaluation import Evaluation

TEMPLATE = Path(__file__).with_name("page.html")
_SIZE_INCHES = (8.6, 2.7)


def page(evaluation: Evaluation) -> str:
    """Return the page."""
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        policy=escape(evaluation.policy),
        recommendation=escape(evaluation.recommendation),
        story=_lines(words.story(evaluation)),
        level=f"{1 - evaluation.alpha:.0%}",
        table=_table(words.HEADS, rows) if (rows := words.rows(evaluation)) else "",
        refused=_lines((*([words.weighed(evaluation)] if rows else []), *words.refused(evaluation.estimates))),
        bounds=_table(("at all times at once", "loss and bounds"), words.bounds(evaluation)),
        estimates=estimates(evaluation),
        course=course(evaluation),
        delays=delay(evaluation),
    )


def estimates(evaluation: Evaluation) -> str:
    """Draw each estimate with its interval beside what was paid."""
    figure, (axes,) = panels(1, _SIZE_INCHES)
    found = [each for each in evaluation.estimates.values() if isinstance(each, Estimate)]
    for row, each in enumerate(found):
        axes.plot((each.low, each.high), (row, row), color=COLOURS[0], linewidth=2)
        axes.plot(each.value, row, "o", color=COLOURS[0])
    axes.axvline(evaluation.served.mean, color="black", linestyle="--", linewidth=1, label="served")
    axes.set_yticks(range(len(found)), [each.name for each in found])
    axes.set(xlabel="mean loss", ylim=(max(len(found), 1) - 0.5, -0.5))
    axes.legend(fontsize=8)
    return svg(figure)


def course(evaluation: Evaluation) -> str:
    """Draw the difference and its bounds over the decisions."""
    figure, (axes,) = panels(1, _SIZE_INCHES)
    decisions = [moment.decisions for moment in evaluation.course]
    low, high, mean = (
        np.array([getattr(moment.difference, name) for moment in evaluation.course]) for name in ("low", "high", "mean")
    )
    axes.fill_between(decisions, low, high, color=COLOURS[0], alpha=0.2, linewidth=0)
    axes.plot(decisions, mean, color=COLOURS[0], linewidth=2)
    axes.axhline(0.0, color="black", linewidth=1)
    axes.set(xlabel="decisions", ylabel="candidate - served")
    return svg(figure)


def delay(evaluation: Evaluation) -> str:
    """Draw the share of feedback that has come by a time."""
    figure, (axes,) = panels(1, _SIZE_INCHES)
    found = evaluation.delays
    times = np.concatenate([[0.0], found.times_s, [evaluation.window_s]])
    last = found.come[-1:] if len(found.come) else np.zeros(1)
    axes.step(times, np.concatenate([[0.0], found.come, last]), where="post", color=COLOURS[0], linewidth=2)
    longest = float(found.times_s[-1]) if len(found.times_s) else evaluation.window_s
    axes.set(
        xlabel="seconds after the answer", ylabel="share of feedback", ylim=(0, 1.02), xlim=(0, 1.1 * longest or 1)
    )
    return svg(figure)


def _lines(lines: Iterable[str]) -> str:
    return "".join(f'<p class="dim">{escape(line)}</p>' for line in lines)


def _table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in line) + "</tr>" for line in lines)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
