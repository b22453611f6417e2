"""`policies`: every policy's error on the same recorded answers: models that stay as they are, break, or know one user.

The scenario is offline: it calls the policies' own functions in the order of the queries, without Kafka or a clock. The
five models are those of `figure8`, on public predictions of MNIST or, without that file, on digits. The users and their
six models are those of `personal`. Policies that draw run several times with other draws; the others run once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from load.errors import MissingDataError
from load.figures import SHOWN, Figures
from load.research.harness.offline import Stream, play
from load.research.learning import figure8, personal
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from policies.registry import parse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage

NAME = "policies"
POLICIES: Mapping[str, str] = {
    "single": "single(arm=4)",
    "epsilon_greedy": "epsilon_greedy",
    "ucb1": "ucb1",
    "discounted_ucb": "discounted_ucb",
    "thompson": "thompson",
    "exp3": "exp3",
    "linucb": "linucb(features=6)",
    "linear_thompson": "linear_thompson(features=6)",
    "exp4": "exp4",
    "class_vote": "class_vote",
}
STREAMS: Mapping[str, str] = {
    "steady": "models stay",
    "break": "the best breaks, is mended",
    "turns": "two break in turn",
    "late": "breaks, feedback 200 late",
    "users": "six users, a state for all",
    "contexts": "six users, a state each",
}
_LATE = 200
_RUNS = 3
_STEADY = 10_000
_TURN = 2_500  # queries after which the next of the two best models breaks, or none
_DRAW = frozenset({"epsilon_greedy", "thompson", "exp3"})
_SLOW = frozenset({"linucb", "linear_thompson"})  # drawing, too: once on the long streams, where runs differ little
_LONG = 5_000
# What suits what; the page says it in words beside the figures.
SUITS: Mapping[str, tuple[str, str]] = {
    "single": ("1", "you know the model: a fixed one, no learning"),
    "epsilon_greedy": ("1", "a simple start; a share of the queries is always drawn uniformly"),
    "ucb1": ("1", "models that stay, and feedback that comes at once"),
    "discounted_ucb": ("1", "models that drift, and feedback that comes at once"),
    "thompson": ("1", "models that stay; feedback may be late"),
    "exp3": ("1", "models that drift or break; feedback may be late; the log serves off-policy estimates"),
    "linucb": ("1", "the query's features show which model suits it"),
    "linear_thompson": ("1", "the same, with feedback that comes late"),
    "context_tree": ("1", "groups of people, told by yes or no, have each their best model ([people](people.md))"),
    "exp4": ("all", "the smallest error where every model may be asked; follows the best as it changes"),
    "class_vote": ("all", "models that err independently, or know different classes"),
    "timely": ("those in time", "as `exp4`, with models that may miss the deadline: it uses their latencies"),
    "cascade": (
        "1, then another",
        "a dear model that is needed only where a cheap one is in doubt: [cascades](cascades.md)",
    ),
    "ridge": ("all", "answers are numbers, such as ratings: models compute features, and each user has weights"),
    "two_speed": (
        "all",
        "one of several items: a model knows them, and feedback on each corrects it ([two speeds](features.md))",
    ),
}


def streams(*, short: bool) -> tuple[dict[str, Stream], str]:
    """Return the streams, and where the first ones come from."""
    rows, labels, source = figure8.load_rows()
    part = slice(figure8.BROKEN.stop, figure8.BROKEN.stop + _STEADY)  # after the break: nothing is wrong with it
    steady, truth = rows[part], labels[part]
    turns = np.vstack([steady, steady])
    again = np.concatenate([truth, truth])
    for number, start in enumerate(range(_TURN, len(turns), 2 * _TURN)):
        broken, stretch = (4, 3)[number % 2], slice(start, start + _TURN)
        turns[stretch, broken] = (again[stretch] + 1) % 10
    found = {
        "steady": Stream(steady, truth),
        "break": Stream(rows, labels),
        "turns": Stream(turns, again),
        "late": Stream(rows, labels, late=_LATE),
    }
    if short:
        found = {name: Stream(s.rows[::10], s.labels[::10], late=s.late // 10) for name, s in found.items()}
    return found | _users(), source


def _users() -> dict[str, Stream]:
    try:
        rows, labels, users = personal.load_rows()
    except MissingDataError:
        return {}
    names = np.unique(users)
    features = (users[:, None] == names[None, :]).astype(np.float64)
    return {
        "users": Stream(rows, labels, features=features),
        "contexts": Stream(rows, labels, tuple(map(str, users)), features),
    }


def baselines(stream: Stream) -> dict[str, float]:
    """Return the errors of what learns nothing."""
    wrong = stream.rows != stream.labels[:, None]
    votes = np.apply_along_axis(lambda row: np.bincount(row, minlength=10), 1, stream.rows)
    equal = stream.rows[np.arange(len(votes)), votes[np.arange(len(votes))[:, None], stream.rows].argmax(axis=1)]
    return {
        "best model": float(wrong.mean(axis=0).min()),
        "equal vote": float((equal != stream.labels).mean()),
        "one at random": float(wrong.mean()),
    }


FIGURES = Figures(
    SHOWN(
        *(f"{stream}_{who}" for stream in STREAMS for who in (*POLICIES, "best_model", "equal_vote", "one_at_random"))
    )
)


async def run(stage: Stage) -> Result:
    """Play every policy on every stream."""
    found, source = streams(short=stage.short)
    figures: dict[str, float] = {}
    for name, stream in found.items():
        figures |= {f"{name}_{other.replace(' ', '_')}": error for other, error in baselines(stream).items()}
        for policy, spec in POLICIES.items():
            runs = _RUNS if policy in _DRAW or (policy in _SLOW and len(stream.labels) < _LONG) else 1
            played = [play(parse(spec), stream, stage.seed + number) for number in range(runs)]
            figures[f"{name}_{policy}"] = float(np.mean([each.error for each in played]))
    return Result(NAME, figures, {"form": stage.form, "runs": _RUNS, "seed": stage.seed, "source": source})


def tables(result: Result) -> list[Table]:
    """Return the errors, policies by streams; what was not measured stays empty."""
    shown = {name: head for name, head in STREAMS.items() if f"{name}_exp3" in result.figures}
    rows = [*POLICIES, "equal vote", "best model", "one at random"]
    lines = tuple((f"`{row}`" if row in POLICIES else row, *_cells(result.figures, row, shown)) for row in rows)
    return [Table("Error", ("policy", *shown.values()), lines)]


def _cells(figures: Mapping[str, float], row: str, shown: Mapping[str, str]) -> Sequence[str]:
    return [f"{figures[f'{name}_{row.replace(chr(32), chr(95))}']:.3f}" for name in shown]


def words(_: Result) -> dict[str, Any]:
    """Return what the page says besides: what suits what, and how long the first stream is."""
    suits = Table("", ("policy", "models asked", "suits"), tuple((f"`{name}`", *said) for name, said in SUITS.items()))
    return {"suits": suits, "steady": _STEADY}


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "every policy on the same recorded answers: models that stay, break, know one user, feedback that is late",
    tables=tables,
    page="research/learning/policies.md.j2",
    words=words,
    short=True,
    offline=True,
)
