"""`ab`: an A/B test by people with a holdout over a week, read afterwards from its log alone.

The kernels of selection and joiner play the week (`ab_week`). From the log: whether each draw met one version, whether
anybody who is held out met the candidate, and what both comparisons say, of the versions and of the holdout.

Beside it many weeks are judged by person and by query, without the kernels: where both versions are the same, how often
do bounds that are looked at all the time miss that?
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from load.figures import NONE, SHOWN, WITHOUT_UNIT, Better, Figures, Kind, at_least, at_most
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from load.scenarios.learning.ab_week import APPLICATION, CANDIDATE, INCUMBENT, MODEL, logged, visits
from policies import draw
from schemas import topics
from schemas.codec import Codec
from schemas.records import Decision, JoinStatus, Observation, Observations, Prediction, VersionLoss
from streams.promotion.holdout import HoldoutEvidence
from streams.promotion.versions import VersionEvidence
from streams.topology import is_held_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from load.harness.system import Stage
    from streams.operators.contract import Record

NAME = "ab"
BETTER, HOLDOUT, ALPHA = 0.2, 0.1, 0.05
_PEOPLE, _SHORT_PEOPLE = 1_500, 300
_RUNS, _SHORT_RUNS, _RUN_PEOPLE = 100, 40, 100
_LOOK: Final = 100  # observations between two looks

_SHARE = Kind(WITHOUT_UNIT, Better.LOWER, 0.0, 0.05)
FIGURES = Figures(
    Kind(WITHOUT_UNIT, Better.LOWER)("broken_draws", "held_out_with_candidate", "bounds_missed", must=NONE),
    SHOWN("difference", "lower", "upper", "saved", "saved_lower", "saved_upper", "held_out_share"),
    Kind(WITHOUT_UNIT)("people", "answers", "comparisons"),
    _SHARE("by_person_missed", must=at_most(ALPHA)),
    Kind(WITHOUT_UNIT, Better.HIGHER, 0.0, 0.2)("by_query_missed", must=at_least(0.15)),
)


async def run(stage: Stage) -> Result:
    """Play and read the week, then judge many."""
    sizes = (_SHORT_PEOPLE, _SHORT_RUNS) if stage.short else (_PEOPLE, _RUNS)
    return await asyncio.to_thread(measured, *sizes, stage.seed, stage.form)


def measured(people: int, runs: int, seed: int, form: str = "short") -> Result:
    """Return the figures of a week of so many people, and of so many weeks of a hundred."""
    figures = read(logged(people, seed, BETTER, HOLDOUT))
    weeks = [list(alike(_RUN_PEOPLE, seed + 1 + number)) for number in range(runs)]
    for name, by_person in (("by_person", True), ("by_query", False)):
        figures[f"{name}_missed"] = sum(misses(week, by_person=by_person) for week in weeks) / runs
    parameters: dict[str, float | str] = {
        "form": form,
        "people": people,
        "runs": runs,
        "better": BETTER,
        "holdout": HOLDOUT,
        "seed": seed,
    }
    return Result(NAME, figures, parameters)


def read(log: Sequence[Record]) -> dict[str, float]:
    """Return what a recorded week says, and how far that is from what is true of it."""
    codec, versions, holdout = Codec(), VersionEvidence(MODEL, CANDIDATE, INCUMBENT), HoldoutEvidence(APPLICATION)
    met, held_out, wrong, people = defaultdict[tuple[str | None, str], set[str]](set), 0, 0, set[str]()
    for record in (each for each in log if each.topic == topics.OBSERVATIONS):
        for seen in codec.decode(Observations, record.value).items:
            versions.take(seen, record.timestamp_us)
            holdout.take(seen, record.timestamp_us)
    for made in (codec.decode(Prediction, each.value) for each in log if each.topic == topics.PREDICTIONS):
        people.add(made.context or "")
        its = {output.version for output in made.outputs}
        if made.decision is not None and is_held_out(made.decision.state):
            held_out += 1
            wrong += CANDIDATE in its
        else:
            met[made.context, made.drawn] |= its
    found, whole = versions.evidence(ALPHA), holdout.report(ALPHA)
    saved = whole.evidence
    truths = ((found.lower, BETTER, found.upper), (saved.lower, BETTER * 0.5, saved.upper))
    return {
        "people": float(len(people)),
        "answers": float(whole.answers),
        "held_out_share": held_out / max(1, whole.answers),
        "broken_draws": float(sum(len(each) > 1 for each in met.values())),
        "held_out_with_candidate": float(wrong),
        "comparisons": float(found.pairs),
        "difference": found.difference,
        "lower": found.lower,
        "upper": found.upper,
        "saved": saved.difference,
        "saved_lower": saved.lower,
        "saved_upper": saved.upper,
        "bounds_missed": float(sum(not low <= truth <= high for low, truth, high in truths)),
    }


def alike(people: int, seed: int) -> Iterator[tuple[int, Observation]]:
    """Yield a week in which both versions are the same, as observations with their times."""
    rates, asked = visits(people, seed, 20.0)
    for number, (at_s, who, drawn) in enumerate(asked):
        version = CANDIDATE if draw.uniform(f"{seed}/{who}", "version") < 0.5 else INCUMBENT
        losses = (VersionLoss(MODEL, version, float(drawn < rates[who])),)
        yield int(at_s * 1e6), _OBSERVED._replace(query_id=str(number), context=str(who), drawn="/0", versions=losses)


def misses(week: Sequence[tuple[int, Observation]], *, by_person: bool) -> bool:
    """Tell whether bounds ever exclude that both versions are the same."""
    fold = VersionEvidence(MODEL, CANDIDATE, INCUMBENT)
    for number, (at_us, seen) in enumerate(week, 1):
        fold.take(seen if by_person else seen._replace(drawn=""), at_us)
        if number % _LOOK == 0 or number == len(week):
            found = fold.evidence(ALPHA)
            if not found.lower <= 0.0 <= found.upper:
                return True
    return False


_DECISION = Decision((0,), 0, APPLICATION, "single(arm=0)", (MODEL,), (1.0,))
_OBSERVED = Observation("", APPLICATION, None, _DECISION, (0.0,), 0.0, None, JoinStatus.JOINED, 0, 0)


def tables(result: Result) -> Sequence[Table]:
    """Return both comparisons of the week, and how often bounds have missed."""
    told = result.figures
    week = (
        ("version 2 against version 1", *(f"{told[name]:.3f}" for name in ("difference", "lower", "upper"))),
        ("policy against holdout", *(f"{told[name]:.3f}" for name in ("saved", "saved_lower", "saved_upper"))),
    )
    missed = [(who, f"{told[f'by_{who}_missed']:.0%}") for who in ("person", "query")]
    return (
        Table("The week, by its log", ("", "fewer errors a query", "at least", "at most"), week),
        Table("Two equal versions", ("counted by", "runs in which bounds missed that"), tuple(missed)),
    )


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "an A/B test by people with a holdout, read from its log: by person bounds hold, by query they do not",
    tables=tables,
    page="scenarios/learning/ab.md.j2",
    short=True,
    offline=True,
)
