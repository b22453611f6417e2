"""Results of `conformal` as a table, as the page docs/coverage.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenarios.conformal import COVERAGE, FIGURES, PARTS

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "coverage.svg"
_PARTS: Final = {"replayed": "seven models vote", "single": "forest alone", "vote": "forest and linear, exp4"}
_INTRODUCTION: Final = """\
# Coverage

## When to use it

You must know when a model is in doubt, and what else may be true: a person checks what is unclear, a form offers the
likely choices, a robot stops if there are several. A confidence of 0.8 promises nothing: it may be right 6 times of
10, or 99. With `coverage: 0.9` each prediction carries a **set of labels**, and 9 of 10 such sets hold the true one.
That is held while inputs and models change, because feedback corrects it. A set of one label is a sure answer; a large
one says how much in doubt the models are.

Do not use it without feedback: nothing corrects the sets then. Do not use it for numbers, or where the models give no
scores and seldom disagree: a set of one answer cannot say more than that answer.

## How to set it

```yaml
applications:
  digits:
    models: [forest, linear]
    policy: exp4
    coverage: 0.9        # 9 of 10 sets hold the true label; at most 0.999
```

    $ skysail query digits --input "[$(yes 8, | head -63 | tr -d '\\n') 8]"
    2   confidence 0.89, complete, asked forest 1, linear 1, 1.3 ms
    with coverage 0.9: 2, 7, 5, 0

A program finds it in `prediction.label_set`:

| field | is |
| --- | --- |
| `labels` | the set, the likeliest first; at least one label |
| `is_all` | any other label may be the true one, too: too little is known for the promise |
| `coverage` | promised |
| `alpha`, `least` | in force: the share of misses aimed at, and the weight that a label needs to be in the set |
| `weights`, `others` | the weights of `labels` and then of `others`, labels that are not in the set |

The page of the deployment shows for each application what is promised, what the sets of the last five minutes have
held, how many were judged, and how large they are. It warns where they held so few that chance explains it once in a
million times: of 300 sets that promise 0.9, fewer than 240. The counters are `label_sets_total`,
`label_set_sizes_total` and `label_sets_judged_total`.

## What it does

    outputs ─▶ weight of each label ─▶ set: labels of at least `least` ─▶ prediction ─▶ observation ─▶ learner
                                                    ▲                                                     │
                                                    └── alpha, and a histogram of true labels' weights ◀──┘

- **Weights.** Each model's share of the vote goes to its label, or over its classes by its scores. Scores that are no
  probabilities go through a softmax. Package models with `output="scores"`: they answer the same labels, and say more.
- **Sets.** A set holds all labels whose weight is at least the one that 9 of 10 true labels had lately: about 500, or
  as many as the promise needs. The likeliest label is always in it.
- **Correction.** Adaptive conformal inference (Gibbs and Candes, 2021): after a miss sets grow, after a hit they
  shrink, by a step of 0.005 in the share that is aimed at. After T observations the share of hits is at least the
  promise less (coverage + 0.005) / (0.005 T), whatever has come: 0.018 after 10,000. Tests hold this as a law.
  The share that is aimed at is at most twice the promised one: a change after a quiet time is followed soon.
- **The log.** The set is logged with its observation, and the state is a fold of the log beside that of the policy. So
  `skysail replay --offline` makes every set again, bit for bit.
- Without feedback nothing is learnt: a default loss at the end of a window, or a loss without a label, teaches no set.
- At first every set is `is_all`: with a promise of 0.9 for 10 observations, with 0.99 for about 105. A new context
  starts from what all contexts have taught, where its policy does so. A policy that replaces another starts anew.

## What it does not do

- The law is for sets made from the newest state. Answers between a change and the feedback on it are made from what was
  known before, and no method knows more. `observe` does not judge the answered set, but the one that the state at hand
  would make: otherwise late feedback would make alpha swing.
- The promise is about all answers of a state together, not about each class or each kind of input. With `per_context`
  each context has its own.
- The answer is voted on, and a set goes by weights. Where models with scores disagree, it may not hold the answer.
- A default output for want of outputs has no set, and neither has a query that names a version.
- Applications with `stages` promise no coverage.
- Sets may be larger than they must be by what a histogram of 64 bins rounds. Only the 100 labels of most weight count.
- DtACI, which learns the step, is not used: it has no such law for every sequence.

"""
_READING: Final = """\
- *Held* is the share of the sets that had the true label in them. *Fixed* are sets by split conformal prediction on the
  same weights: their threshold follows from the first thousand queries. Both columns *before* leave these out.
- The share may lie above the promise: the likeliest label is always in the set. Where models alone are right more
  often than promised, nearly all sets have one label.
- A size counts all labels there are where a set is `is_all`.
- The first row is arithmetic alone: with feedback 50 queries late, no Kafka. The others went through the whole system.
"""


def tables(result: Result) -> list[Table]:
    """Return what was held before and after the change, by kind of set, and how large the sets were."""
    names = ("held_before", "held_after", "lowest", "size_before", "size_after")
    rows = [
        (
            _PARTS[part] + (", fixed" if what else ""),
            *(f"{result.figures[f'{part}_{what}{name}']:.3f}" for name in names[:3]),
            *(f"{result.figures[f'{part}_{what}{name}']:.2f}" for name in names[3:]),
        )
        for part in PARTS
        for what in ("", "fixed_")
    ]
    heads = ("", "held before", "held after", "lowest window", "labels before", "labels after")
    return [Table(f"Promised: {COVERAGE:g}", heads, tuple(rows))]


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    figures = result.figures
    said = _filled(
        f"Measured by `skysail load run conformal --docs docs/coverage.md` ({result.given}), on"
        f" {environment['cores_usable']} cores of {environment['processor']}; {environment['broker']}. Load average at"
        f" the end: {environment['load_average'][0]:.1f}.",
        "After half of the queries the inputs change. In the first row three of seven public models answer MNIST at"
        " random from then on. In the others the images are noisy: the forest errs on"
        f" {figures['single_error_before']:.3f} of them before and {figures['single_error_after']:.3f} after,"
        f" the vote on {figures['vote_error_before']:.3f} and {figures['vote_error_after']:.3f}.",
    )
    shown = [f"### {table.title}\n\n{table.markdown()}" for table in tables(result)]
    picture = f"![Coverage held by windows, and labels in a set, over the queries]({_PICTURE})\n"
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    return "\n".join([_INTRODUCTION + "## Figures\n", said, *shown, picture, _READING.rstrip(), *notes, ""])


def _filled(*paragraphs: str) -> str:
    return "\n".join(
        [textwrap.fill(each, 120, break_long_words=False, break_on_hyphens=False) + "\n" for each in paragraphs]
    )


def plots(result: Result) -> dict[str, str]:
    """Return the picture: coverage held by windows, beside that of fixed sets; labels in a set."""
    figure, (left, right) = panels(2, (8.6, 3.4))
    for (part, name), colour in zip(_PARTS.items(), COLOURS, strict=False):
        rows = result.series[part]
        share = [row["queries"] / rows[-1]["queries"] for row in rows]
        left.plot(share, [row["held"] for row in rows], marker="o", markersize=3, label=name, color=colour)
        left.plot(share, [row["fixed"] for row in rows], linestyle="--", label=f"{name}, fixed", color=colour)
        right.plot(share, [row["size"] for row in rows], marker="o", markersize=3, label=name, color=colour)
    left.axhline(COVERAGE, color="black", linewidth=0.8, linestyle=":")
    for axes in (left, right):
        axes.axvline(0.5, color="grey", linewidth=0.8, linestyle=":")
        axes.set_xlabel("share of the queries")
    left.set_ylabel("sets that held the true label")
    right.set_ylabel("labels in a set")
    right.set_ylim(bottom=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return {_PICTURE: svg(figure)}
