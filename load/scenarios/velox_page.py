"""Results of `velox` as tables, as the page docs/recommending.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenarios.velox import DIMENSIONS, FIGURES, HISTORY, LANES, NAME, WAVE

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "recommending.svg"
_SAID: Final = {
    "personal": "`ridge`, weights of each user",
    "common": "`ridge`, weights of all users together",
    "retrained": "`ridge`, weights of each user, features trained anew meanwhile",
}
_INTRODUCTION: Final = """\
# Recommending

## When to use it

Use the policy `ridge` where an answer is a number that depends on the user, such as a rating, a click rate or a time,
and feedback says what it truly was. A model computes features of the item or page that is asked about, the same for
everybody. Each user has weights for these features, learnt from that user's feedback alone. The answer is their scalar
product. This is Velox (CIDR 2015) on Kafka.

Use `exp3`, `thompson` or `exp4` instead where models answer and the question is which one to trust
([which suits what](policies.md)). Use `linucb` where features show which model suits a query.

## How to use it

The model's output has to be `scores`, one number for each feature: an embedding, the last hidden layer of a network, or
the factors of a matrix factorisation. Keep them about 1. A function of a batch, (n, ...) to (n, features), will do:

```python
skysail.package_function("films:features", "packages/films", "films", "1", sample, output="scores")
```

```yaml
models: {films: packages/films}
applications:
  ratings:
    models: [films]
    policy: ridge
    parameters: {features: 8, low: 1, high: 5}  # numbers that the model computes; the range of ratings
    per_context: true                           # weights of each user
    loss: squared
    span: 4                                     # an error that costs 1
    default_output: 3.5
```

Ask with the user as context: `await client.predict("ratings", [film], context="ann")`. Send the rating as feedback:
`await client.feedback(prediction, label=4)`.

- A user who is met for the first time is answered with the weights of the average user, which everybody's feedback
  teaches.
- `confidence` says how much is known about this user and film: 0 before the first feedback, near 1 after much.
  With `confidence_floor`, an answer below it is the default output.
- What the model computed stands in the prediction and in the observation. So what is learnt is a fold of the log
  `observations`, to the bit, and `skysail replay` needs nothing else.
- With the prediction cache, an item's features are computed once for all users.
- A state has (features + 1) (features + 4) / 2 + 1 numbers a user and model. 64 features are the most: 18 KB.
- A model that answers a label or another number of features gives the default output, with a message that says so.

## Train the features anew

New features mean new weights. So they are **another model, not another version** of the same one: a version would be
multiplied with weights that were learnt for the old features.

1. Package the new features under another name, and deploy them: `skysail model add packages/films-2`.
2. Name both: `skysail app set ratings models=films,films-2`. Each model has a regression of its own in every state,
   and both learn from each feedback. The new one has a hundredth of the weight, and gets more when its answers are
   better.
3. Wait for the window of feedback, then teach the new one what it has missed: `skysail app backfill ratings
   packages/films-2`. It computes the features of the queries that Kafka still holds, and adds their labels to the log,
   each once. It ends when the learner has learnt them. After a failure run it again.
4. Name the new one alone: `skysail app set ratings models=films-2`. What its regressions have learnt stays.

Nobody waits meanwhile, and no query is lost or answered twice, because nothing stops: each change is one record on the
topic `applications`. Until the last step, both models are asked about every query. Feedback on a query that was asked
before step 2 and comes after it takes from its user's state what the new model has learnt until then: hence the wait.

## The best of several

A query may bring candidates: up to 256, by their ids or by their features. No model is asked about them. A **source**
says where the features of an id are looked up, as the model would compute them ([features.md](features.md)):

```yaml
applications:
  ratings:
    models: [films]
    policy: ridge
    parameters: {features: 8, low: 1, high: 5}
    per_context: true
    sources: [{name: items, width: 8, key: candidate, wait: 0}]   # in the topic `features`, all films
    loss: squared
    span: 4
    default_output: 3.5
```

```python
await client.set_features("items", {"alien": alien, "brazil": brazil, "casablanca": casablanca})  # 8 numbers each
best = await client.predict("ratings", [0], context="ann", candidates=["alien", "brazil", "casablanca"], top=2)
best.best  # the ids, the best first: ('brazil', 'alien')
best.first  # of each candidate, in their order: the probability that it stands first
await client.feedback(best, label=4)  # about the first
```

    skysail query ratings --input 0 --context ann --candidates '["alien", "brazil", "casablanca"]' --top 2

- Several sources with `key: candidate` stand beside each other. Their widths are the policy's `features` together.
- With `store: redis` they are read from Redis, and waited for as other features are. An answer comes by its deadline
  with what is there.
- What is not known of an id is imputed by the source's running mean: of a film that is new, late or a mistake the
  average film is expected. `best.imputed` names the source, and `best.ranked.imputed` the ids. A query counts once for
  a mean, with the mean of its candidates.
- Ids are texts of at most 128 bytes, each once in a query.
- The features that were ranked stand in the prediction (`best.ranked.rows`), those of the first in the observation,
  too. So replay looks nothing up, and learning is a fold of the log.

Or the client brings the rows itself, and keeps the features of its items:

```python
best = await client.predict("ratings", [0], context="ann", candidates=rows, top=10)
best.answer.numpy().tolist()  # places in `rows`, the best first: [22, 33, 13, ...]
```

The first place goes to the candidate whose expected rating is the highest with `alpha` standard deviations added: what
little is known of gets its chance. A share `gamma` of the queries has any candidate first. The probability of each to
stand first is logged (`first`), so that other rankings can be judged from the log. The other places follow the expected
rating, and a heap finds them. While two models are named, candidates are features of the first. Candidates that cannot
be ranked are answered by default, `not_ranked`, and the answer's `message` says why.

To choose among items that a model knows, by ids, see [two speeds](features.md#two-speeds).
"""
_READING: Final = """\
- The error is the root mean square of the answer less the rating. *Each film's mean* is what all earlier ratings of
  other users say. *All but the noise* is the error of whoever knows how the ratings were made.
- With fewer than five ratings of their own, users are answered about as well by everybody's weights. After that their
  own are better.
- The ratings are made up from a seed (`load/models/movies.py`). Real users are less regular: expect less to be gained.
- Velox's paper prints no figures to compare with.
- *Longest answer* is that of the retrained application within two seconds after a change, the kill of the learner among
  the changes. Answers never wait for learning.
- An update was measured without Kafka and Redis; it is a rank-one update in NumPy, and takes features^2 steps.
"""

# Only where there were any: a short run on a machine that did little else had none.
_LATE: Final = (
    "Answers by default would have come later than the objective: the machine was busy with other programs.\n"
    "  They count as the default output, in the errors of all three applications."
)


def tables(result: Result) -> list[Table]:
    """Return errors by history, and cost by dimension."""
    found = result.figures
    shown = [least for least in HISTORY if found[f"personal_rmse_{least}"]]
    heads = ("earlier ratings of the user", *(_head(least) for least in shown), "all")
    lines = tuple(
        (_SAID[lane], *(f"{found[f'{lane}_rmse_{least}']:.2f}" for least in shown), f"{found[f'{lane}_rmse']:.2f}")
        for lane in LANES
    )
    means = ("each film's mean", *[""] * len(shown), f"{found['films_rmse']:.2f}")
    least = ("all but the noise", *[""] * len(shown), f"{found['least_rmse']:.2f}")
    cost = tuple(
        (
            f"{dimension}",
            f"{found[f'update_{dimension}_us']:.0f}",
            f"{found[f'answer_{dimension}_us']:.0f}",
            f"{found[f'numbers_{dimension}']:,.0f}",
        )
        for dimension in DIMENSIONS
    )
    return [
        Table("Error by history", heads, (*lines, means, least)),
        Table("Cost by dimension", ("features", "update, us", "answer, us", "numbers kept"), cost),
    ]


def _head(least: int) -> str:
    index = HISTORY.index(least)
    if index + 1 == len(HISTORY):
        return f"{least} or more"
    last = HISTORY[index + 1] - 1
    return f"{least}" if last == least else f"{least} to {last}"


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    found = result.figures
    error, cost = tables(result)
    measured = (
        f"Measured by `skysail load run velox --docs docs/recommending.md`, {result.given}, on"
        f" {environment['processor']}. {found['users']:.0f} users asked"
        f" {result.parameters['queries']:,} times about films in three applications at once, and rated each."
    )
    switched = (
        f"Of the retrained application's queries, {found['answers_of_few']:,.0f} were answered from the old features,"
        f" {found['answers_of_both']:,.0f} from both and {found['answers_of_many']:,.0f} from the new ones. Between"
        f" the changes the learner was killed, and a backfill taught {found['backfilled']:,.0f} labels. In the last"
        f" quarter the error was {found['retrained_saved']:.2f} lower than with the old features. Lost:"
        f" {found['lost']:.0f}; answered twice: {found['duplicates']:.0f}; by default: {found['defaults']:.0f};"
        f" longest answer: {found['switch_max_ms']:.0f} ms."
    )
    crowd = (
        f"Then {found['guests']:,.0f} users asked once each, {WAVE:,} at the same time; medians of these waves:"
        f" {found['guests_answered_per_s']:,.0f} answers a second, and {found['guests_learnt_per_s']:,.0f} learnt a"
        f" second until all was learnt. Lost: {found['guests_lost']:.0f}."
    )
    said = [
        textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"
        for text in (measured, switched, crowd)
    ]
    if result.parameters.get("form") == "short":
        said[0] += "\n**This is the short form.**\n"
    late = (_LATE,) if found["late"] else ()
    notes = [f"- {sentence}" for sentence in (*result.notes, *late, *missed(result, FIGURES))]
    picture = f"![Error by earlier ratings of the user, and over time]({_PICTURE})\n"
    parts = [_INTRODUCTION, "## Figures\n", said[0], error.markdown(), picture, *said[1:], cost.markdown()]
    return "\n".join([*parts, "## How to read this\n", _READING.rstrip(), *notes, ""])


def plots(result: Result) -> dict[str, str]:
    """Return the picture: error by history, and over time."""
    figure, (left, right) = panels(2, (8.6, 2.9))
    found, course = result.figures, result.series["error"]
    shown = [least for least in HISTORY if found[f"personal_rmse_{least}"]]
    for lane, colour in zip(LANES, ("black", COLOURS[1], COLOURS[0]), strict=True):
        left.plot([_head(least) for least in shown], [found[f"{lane}_rmse_{least}"] for least in shown], color=colour)
        right.plot([row["queries"] for row in course], [row[lane] for row in course], color=colour, label=lane)
    last = course[-1]["queries"]
    for part in (0.25, 0.75):
        right.axvline(part * last, color="grey", linewidth=0.7, linestyle=":")
    left.axhline(found["least_rmse"], color="grey", linewidth=0.7)
    left.set_xlabel("earlier ratings of the user")
    left.set_ylabel("error (root mean square)")
    right.set_xlabel("queries of each application; dotted: features change")
    figure.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=7)
    return {_PICTURE: svg(figure)}


__all__ = ["NAME", "page", "plots", "tables"]
