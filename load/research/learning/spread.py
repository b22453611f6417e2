"""`spread`: what it costs that a new context starts from the contexts of its own partition, instead of from all.

The scenario is offline, as `policies` is. Users come one after the other and ask ten queries each. One of four models
suits a user: for seven of ten users it is the same. A model that suits is right nine times of ten, any other half of
the time. Feedback is learnt 100 queries later. With P partitions a user starts from what about 1/P of the users before
have taught. `alone` is a start from nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from load.figures import ERROR, Figures
from load.research.harness.offline import Stream, play
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from policies.registry import parse

if TYPE_CHECKING:
    from load.harness.system import Stage

NAME = "spread"
POLICIES = ("epsilon_greedy", "ucb1", "thompson", "exp3")
PARTITIONS = (1, 4, 16, 64)
_ALONE = 1 << 30  # partitions with one user each
_USERS, _SHORT_USERS = 2_000, 200
_QUERIES = 10  # of a user
_LATE = 100
_SUITED = (0.7, 0.1, 0.1, 0.1)
_RIGHT, _RIGHT_OTHERS = 0.9, 0.5
_RUNS = 3

FIGURES = Figures(ERROR(*(f"{policy}_{count}" for policy in POLICIES for count in (*PARTITIONS, "alone"))))


def stream(users: int, partitions: int, seed: int) -> Stream:
    """Return the queries of so many users, ten of whom ask at a time."""
    random = np.random.default_rng(seed)
    suits = random.choice(len(_SUITED), users, p=_SUITED)
    comes = np.repeat(np.arange(users) * float(_QUERIES), _QUERIES) + random.random(users * _QUERIES) * _QUERIES**2
    order = np.argsort(comes, kind="stable")
    asking = np.repeat(np.arange(users), _QUERIES)[order]
    right = np.where(np.arange(len(_SUITED)) == suits[asking][:, None], _RIGHT, _RIGHT_OTHERS)
    rows = (random.random(right.shape) >= right).astype(np.int64)  # 0 is the truth
    contexts = tuple(f"user-{number}" for number in asking.tolist())
    return Stream(rows, np.zeros(len(rows), np.int64), contexts, late=_LATE, partitions=partitions)


async def run(stage: Stage) -> Result:
    """Play every policy with contexts in one partition, in several, and each by itself."""
    users = _SHORT_USERS if stage.short else _USERS
    figures = {}
    for count in (*PARTITIONS, _ALONE):
        streams = [stream(users, count, stage.seed + number) for number in range(_RUNS)]
        for policy in POLICIES:
            played = [play(parse(policy), one, stage.seed + number).error for number, one in enumerate(streams)]
            figures[f"{policy}_{'alone' if count == _ALONE else count}"] = float(np.mean(played))
    return Result(NAME, figures, {"form": stage.form, "runs": _RUNS, "users": users, "seed": stage.seed})


def tables(result: Result) -> list[Table]:
    """Return the errors, policies by partitions."""
    heads = ("policy", *(f"{count} partition{'s' * (count > 1)}" for count in PARTITIONS), "alone")
    columns = (*PARTITIONS, "alone")
    rows = tuple((name, *(f"{result.figures[f'{name}_{column}']:.3f}" for column in columns)) for name in POLICIES)
    return [Table("Error", heads, rows)]


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "contexts that start from what those of their partition have taught, beside what all have",
    tables=tables,
    short=True,
    offline=True,
)
