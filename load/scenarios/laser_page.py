"""Results of `laser` as tables, as the page docs/features.md, and as its picture."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

from load.results.drawing import COLOURS, panels, svg
from load.results.pages import missed
from load.results.tables import Table
from load.scenarios.laser import APPLICATIONS, FIGURES, HURRIES, KNOWS, NAME, WAITS
from load.scenarios.parts.two_speeds import BOTH, CAMPAIGNS, COLD, LANES, WARM

if TYPE_CHECKING:
    from load.harness.environment import Environment
    from load.results.results import Result

_PICTURE: Final = "features.svg"
_SAID: Final = {
    KNOWS: "the client sends all features",
    WAITS: "looked up, waited for up to half of the time",
    HURRIES: "looked up, never waited for",
}
_SPEEDS: Final = {
    "logged": "uniform, as logged",
    COLD: "one speed: the model alone",
    WARM: "one speed: feedback alone",
    BOTH: "`two_speed`",
}
_FEW: Final = "too few tell"
_INTRODUCTION: Final = """\
# Features that are looked up, and two-speed models

## When to use it

Use **sources of features** where a query's client does not have what a model or policy goes by, and somebody else
does: what a user did lately, a page's statistics, a score that another program computes for this very query. Selection
looks it up. It waits while the deadline allows, and goes on with the running mean of what has not come: better wrong
than late. If clients have all features, send them: nothing is faster.

Use the policy **`two_speed`** where one of several items is to be chosen for each query, such as an advertisement, an
offer or a headline, and feedback says whether it was a success. A linear model that is trained now and then, with
everything that is known, knows new items from the first query on. Feedback within seconds teaches what it does not
know. For items that are models use `linear_thompson`, for a number for each user `ridge`
([recommending.md](recommending.md)).

Both are LASER's (LinkedIn, WSDM 2014), on Kafka.

## Look features up

`clicks` is a model of five numbers, made in any way: the first example of [two speeds](#two-speeds) with weights of the
shape (5, 2) does.

```yaml
models: {clicks: packages/clicks}
applications:
  ads:
    models: [clicks]
    policy: single
    slo_ms: 200
    sources:
      - {name: profiles, width: 2, wait: 0}              # in the topic `features`, all users
      - {name: lately, width: 2, store: redis}           # in Redis, by key
      - {name: scores, width: 1, key: query_id}          # written for this query by another program
```

The features of a query are those of its sources in their order, then its own: here 5, and what the client sends
(`client.predict(..., features=[...])`). Policies go by them, and they are logged with the decision. Where the client
sends an empty row (`client.predict("ads", [], context="ann")`), **the models are asked about these features**, too.

| key | meaning |
| --- | --- |
| `name`, `width` | the source, and how many numbers it has for a key; 256 features are the most for a query |
| `key` | by which they are looked up: `context` (the default), `input` (a text), `query_id` or `candidate` (below) |
| `store` | `topic`: the compacted topic `features`, which each selection role holds as a table; `redis`: read by key |
| `wait` | which share of its time a query may wait for them, 0.5 by default; 0 = what is not there is imputed at once |

With `key: candidate` each candidate that is an id is looked up, [to rank these](recommending.md#the-best-of-several).

Write to the topic with `await client.set_features("profiles", {"ann": [0.2, 1.5]})`. The last value of a key counts,
and the key is `profiles/ann`. A source with `key: query_id` needs an id that its program knows, too: yours, as in
`client.predict(..., query_id="visit-17")` beside `client.set_features("scores", {"visit-17": [0.5]})`. For Redis any
program writes the same bytes. The Redis of `skysail redis start` has its password in `.skysail/redis/password`.

```python
store = redis.Redis(password=pathlib.Path(".skysail/redis/password").read_text().strip())
store.set("skysail:features:lately/ann", skysail.Codec().encode(skysail.Features((0.3, 0.7))))
```

In the key `skysail` stands for the deployment's prefix. `selection.features_url` names another Redis than that of the
policy states; it is read on connections of its own in any case. What was read is used for a second, then used once more
while it is read again. `selection.features_mib` bounds what is kept.

- A query waits for its own features alone, and holds up no other. Its wait ends when all have come.
- What a store says it does not have is imputed at once, and so is what has another width than the source.
- A Redis that has not answered for a second counts as down. Nobody waits for it then, and it is still asked. One that
  was asked nothing for ten seconds is waited for again.
- `prediction.imputed` names the sources whose mean stood in. The page shows how often each source's did.
- The mean is of the latest 1,000 queries whose features were known; zeros before the first. It is written to the topic
  under the source's name, after 1, 10, 100 and each further 1,000 queries, so a process that starts has it. Write it
  yourself to begin with your own: `Features(values, weight=1000)` under the key `lately`.
- What decided is logged, so `skysail replay` looks nothing up and finds the same decisions. Observations name what was
  imputed, too: `skysail evaluate --known-features` leaves such decisions out. `skysail replay --offline --set` refuses
  an application with sources, because its queries do not have what they were decided by: use `skysail evaluate`.
- Sources are set in the settings file, and published by `skysail app apply`. `skysail app set` changes other keys and
  keeps them.

## Two speeds

```python
skysail.package_linear(weights, intercept, "packages/clicks", "clicks", "1")  # (features, items), (items,)
```

```yaml
models: {clicks: packages/clicks}
applications:
  ads:
    models: [clicks]
    policy: two_speed
    parameters: {features: 4, items: 20}   # of the query that count; numbers that the model computes
    loss: given
    default_loss: 1                        # no click within the window
    window_s: 60
```

An item's log-odds are those of the model, the *cold* ones, plus w . (1, features), the *warm* ones. The weights w are
the item's own, learnt from feedback on it. Thompson sampling chooses: the probability that each item is the best is
computed, logged in `prediction.first`, and one is drawn by the query's id. So estimates of other policies from the log
are right. `answer` is the item's index, and `confidence` the success that is expected of it.

The model goes by the query's input, the warm weights by its features. Where [sources](#look-features-up) bring these,
`client.predict("ads", [], context="ann")` is enough. Else send them as both: `client.predict("ads", row,
features=row)`.

Where only some items are to be chosen among, a query names them as candidates, and asks for the best `top`:

```python
best = await client.predict("ads", [], context="ann", candidates=["shoes", "hats"], top=2)
best.best  # ids, the best first: ('hats', 'shoes')
await client.feedback(best, loss=0)  # about the first
```

Items are called as the model's classes, `package_linear(..., classes=["shoes", ...])`; without classes as their
indices, `"0"`, `"1"` and so on. One of the candidates is drawn, with the probability that it is the best of them
(`best.first`, in their order). The others follow by what is expected of them. What no model knows is not chosen: its
probability is 0.

- What other parameters, or always the same item, would have cost is estimated from the log:
  `skysail evaluate --live ads --policy two_speed:features=4,items=20,spread=0.5`, or `--policy always:7`.
- Feedback is `await client.feedback(prediction, loss=0)` after a click. With `default_loss: 1` silence is a failure.
- A new version of the model keeps the warm weights: they move to what the new one does not know. Under another name,
  name both models for a while, then the new one alone; the log-odds of several models are averaged.
- With `per_context` each context has weights of its own, and starts from those of all.
- The model may compute anything with `output: scores`, one number an item; numbers beyond 30 are cut.
- A state has 2 items (features + 1) numbers, of 60,000 that fit. An answer takes half a millisecond: of many items the
  16 that may well be the best contend for it, the others have their share of `gamma`.
"""
_READING: Final = """\
- *AUC* is how often an impression that was clicked on has a higher score than one that was not. The clicks are made up
  (`load/models/clicks.py`). *Means* is the AUC of whoever never looks up.
- *In time*: the answer left by its deadline. In virtual time all do, whatever a store does
  (`tests/property/test_feature_laws.py`). Where a busy machine lets selection wait, queries that look up nothing are
  late, too: compare the rows.
- Open Bandit has some 40 clicks in 10,000 impressions. The intervals say what that tells: not which is better. Where
  the truth is known, the difference is as the table says.
- *Too few tell*: the model alone answers one item nearly always, and the log has few impressions of it.
- On Open Bandit each policy is taught by the impressions of the uniform policy in their order, and judged by each
  before it is taught. The cold log-odds are the items' click rates under another policy, drawn to the mean.
- LASER's paper gives no figures to compare with.
"""


def tables(result: Result) -> list[Table]:
    """Return what waiting is worth, and what two speeds are."""
    found = result.figures
    lookups = tuple(
        (
            _SAID[name],
            f"{found[f'{name}_auc']:.3f}",
            f"{found[f'{name}_imputed']:.1%}" if f"{name}_imputed" in found else "",
            f"{found[f'{name}_in_time']:.2%}",
            f"{found[f'{name}_p50_ms']:.1f}",
            f"{found[f'{name}_p99_ms']:.1f}",
        )
        for name in APPLICATIONS
    )
    means = ("never looked up", f"{found['means_auc']:.3f}", "100.0%", "", "", "")
    market = tuple(
        (_SPEEDS[lane], f"{found[f'market_{lane}']:.4f} ± {found[f'market_{lane}_error']:.4f}") for lane in LANES
    )
    best = ("whoever knows the truth", f"{found['market_best']:.4f}")
    made = [
        Table("Features", ("features", "AUC", "imputed", "in time", "p50, ms", "p99, ms"), (*lookups, means)),
        Table("Known truth", ("policy", "clicks a query"), (*market, best)),
    ]
    if any(name.startswith("obd_") for name in found):
        heads = ("Open Bandit, clicks an impression (SNIPW, 95 %)", *CAMPAIGNS)
        made.append(
            Table("Open Bandit", heads, tuple((said, *_bandit(result, lane)) for lane, said in _SPEEDS.items()))
        )
    return made


def _bandit(result: Result, lane: str) -> list[str]:
    found, shown = result.figures, []
    for name in (f"obd_{campaign}_{lane}_snipw" for campaign in CAMPAIGNS):
        known = name in found
        shown.append(
            f"{found[name]:.4f} ({found[name + '_low']:.4f} to {found[name + '_high']:.4f})" if known else _FEW
        )
    return shown


def page(result: Result, environment: Environment) -> str:
    """Return the page."""
    found = result.figures
    lookups, *speeds = [table.markdown() for table in tables(result)]
    measured = (
        f"Measured by `skysail load run laser --docs docs/features.md`, {result.given}, on {environment['processor']}."
        f" Features that decide most of a click lie in a Redis whose answers take {found['source_p50_ms']:.0f} ms at"
        f" the median and {found['source_p99_ms']:.0f} ms at the 99th percentile; the objective is 200 ms."
    )
    down = (
        f"Answered in time: {found['in_time']:.2%}; by default: {found['defaults']:.0f}. Looking up with waiting costs"
        f" {found['waits_auc_lost']:.3f} of AUC, without waiting {found['hurries_auc_lost']:.3f}. Then the Redis was"
        f" closed. From two seconds on answers took {found['waits_down_p50_ms']:.1f} ms at the median and"
        f" {found['waits_down_p99_ms']:.1f} at the 99th percentile; {found['waits_imputed_down']:.0%} of them were"
        f" imputed, the others had a user whom selection knew. Lost: {found['lost']:.0f}; answered twice:"
        f" {found['duplicates']:.0f}."
    )
    learnt = (
        "Twenty items, whose log-odds have changed since the model was trained: clicks a query, mean of three markets"
        f" with its standard error. In the same markets both speeds earn {found['market_over_cold']:.3f} ±"
        f" {found['market_over_cold_error']:.3f} more than the model alone, and {found['market_over_warm']:.3f} ±"
        f" {found['market_over_warm_error']:.3f} more than feedback alone."
    )
    said = [
        textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False) + "\n"
        for text in (measured, down, learnt)
    ]
    if result.parameters.get("form") == "short":
        said[0] += "\n**This is the short form.**\n"
    picture = f"![What answers take, and clicks a query]({_PICTURE})\n"
    notes = [f"- {sentence}" for sentence in (*result.notes, *missed(result, FIGURES))]
    parts = [_INTRODUCTION, "## Figures\n", said[0], lookups, said[1], picture, said[2], *speeds]
    return "\n".join([*parts, "## How to read this\n", _READING.rstrip(), *notes, ""])


def plots(result: Result) -> dict[str, str]:
    """Return the picture: how long answers took that waited, clicks where the truth is known, and on Open Bandit."""
    figure, (left, middle, right) = panels(3, (9.6, 2.9))
    found, course = result.figures, result.series["waits"]
    left.plot([row["ms"] for row in course], [row["share"] for row in course], color="black")
    left.axvline(200.0, color="grey", linewidth=0.7, linestyle=":")
    left.set_xlabel("ms that an answer took at most")
    left.set_ylabel("share of the answers, waiting")
    left.set_ylim(0.0, 1.02)
    colours = dict(zip(LANES, (COLOURS[0], COLOURS[1], "black"), strict=True))
    for place, lane in enumerate(LANES):
        middle.bar(place, found[f"market_{lane}"], yerr=found[f"market_{lane}_error"], color=colours[lane], width=0.6)
    middle.axhline(found["market_best"], color="grey", linewidth=0.7, linestyle=":")
    middle.set_xticks(range(len(LANES)), LANES)
    middle.set_ylabel("clicks a query; dotted: the most")
    for place, campaign in enumerate(CAMPAIGNS):
        for shift, lane in zip((-0.2, 0.0, 0.2), LANES, strict=True):
            name = f"obd_{campaign}_{lane}_snipw"
            if name in found:
                value = found[name]
                ends = [[value - found[f"{name}_low"]], [found[f"{name}_high"] - value]]
                right.errorbar(place + shift, value, ends, fmt="o", color=colours[lane], capsize=3)
    right.set_xticks(range(len(CAMPAIGNS)), CAMPAIGNS)
    right.set_ylabel("clicks an impression, Open Bandit")
    return {_PICTURE: svg(figure)}


__all__ = ["NAME", "page", "plots", "tables"]
