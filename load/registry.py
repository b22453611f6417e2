"""All scenarios, by their permanent names."""

from __future__ import annotations

import difflib
from importlib.util import find_spec
from typing import TYPE_CHECKING

from load.scenario import Scenario
from load.scenarios import (
    agreement,
    batching,
    cache,
    controllers,
    delayed,
    figure8,
    floor,
    hostile,
    idle,
    latecomer,
    learn,
    lock,
    loop,
    overload,
    parm,
    personal,
    policies,
    recall,
    replicas,
    rollout,
    runtimes,
    scale,
    seeds,
    specialists,
    straggler,
    takeover,
)
from load.scenarios.parts import scale_page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def _research() -> Sequence[Scenario]:
    """Return those that compare it with others; an installed package has none."""
    if find_spec("load.research") is None:
        return ()
    from load.research.registry import RESEARCH

    return RESEARCH


SCENARIOS: Mapping[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            floor.NAME,
            "hand-written loops and a bare chain of four legs: what everything else is measured by",
            floor.run,
            any_arrivals=True,
        ),
        Scenario(
            loop.NAME,
            "the whole system: sustained rate, CPU a query, latency at 200 and 500/s, against the floor",
            loop.run,
            any_arrivals=True,
        ),
        Scenario(
            figure8.NAME, "the best model breaks and feedback tells: exp3, exp4 and single side by side", figure8.run
        ),
        Scenario(
            personal.NAME,
            "users with a model each: a state a user, bandit and full information, against one for all of them",
            personal.run,
            short=True,
        ),
        Scenario(
            agreement.NAME,
            "an ensemble's error by how many of its models agree, and with one of them missing",
            agreement.run,
            short=True,
        ),
        Scenario(
            specialists.NAME,
            "models that know different classes: a weight for each class that a model answers, against one a model",
            specialists.run,
            short=True,
        ),
        Scenario(
            straggler.NAME,
            "ensembles of 1 to 16 models, some late at random: answers by the deadline against waiting for all",
            straggler.run,
            short=True,
        ),
        Scenario(
            latecomer.NAME,
            "an ensemble of which one model is always late: waited for, replaced by its running mean, not asked",
            latecomer.run,
            short=True,
        ),
        Scenario(
            batching.NAME,
            "batch controllers: settling and backing off on a model of known cost, the best of them on real ones",
            batching.run,
            short=True,
        ),
        Scenario(
            controllers.NAME,
            "six models: time by batch size, rows a second by each batch controller and in batches of one",
            controllers.run,
            short=True,
        ),
        Scenario(
            delayed.NAME,
            "a free model waits a moment for more rows: rows a batch, the model's time a row, latency",
            delayed.run,
            short=True,
        ),
        Scenario(
            lock.NAME,
            "a forest in a thread beside the event loop, in each runtime: how late the loop is, how slow the forest",
            lock.run,
        ),
        Scenario(
            runtimes.NAME,
            "trees and linear models under scikit-learn and all that they can be converted to: time by batch size",
            runtimes.run,
            tables=runtimes.tables,
            page=runtimes.page,
        ),
        Scenario(
            parm.NAME,
            "ParM's published MNIST network: every answer and logit as direct torch, any batch limits",
            parm.run,
        ),
        Scenario(
            cache.NAME,
            "the keys of a production cache as queries: hits beside plain LRU and CLOCK, and what a cache costs",
            cache.run,
            short=True,
        ),
        Scenario(
            overload.NAME,
            "a slow model asked three times what it can do: goodput with and without admission, by priority",
            overload.run,
            any_arrivals=True,
        ),
        Scenario(
            learn.NAME,
            "join and learn: observations a second and core; memory of a million pending predictions",
            learn.run,
            short=True,
        ),
        Scenario(
            recall.NAME,
            "feedback learnt a second, four models asked each time, with the prediction cache and without",
            recall.run,
            short=True,
        ),
        Scenario(
            replicas.NAME,
            "one to four workers of a model that leaves the processor alone: how the rate scales",
            replicas.run,
            short=True,
        ),
        Scenario(
            rollout.NAME,
            "a model's next version under load, as a canary, there and back: nothing lost, late or under a wrong name",
            rollout.run,
            seconds=rollout.SECONDS,
        ),
        Scenario(
            takeover.NAME,
            "one of two workers is killed, hangs or stands still: how long its queries go unanswered, and none lost",
            takeover.run,
            seconds=takeover.SECONDS,
        ),
        Scenario(
            scale.NAME,
            "what grows with workers, models, applications, contexts and time: CPU a query, memory, start time",
            scale.run,
            tables=scale_page.tables,
            page=scale_page.page,
            parts=scale.PARTS,
            short=True,
        ),
        Scenario(
            seeds.NAME,
            "hours of whole deployments in virtual time, with faults drawn from seeds: what must hold of every run",
            seeds.run,
            short=True,
            offline=True,
        ),
        Scenario(
            hostile.NAME,
            "attacks and accidents beside an honest client: its answers, roles that end, memory, what is learnt",
            hostile.run,
            tables=hostile.tables,
            parts=hostile.PARTS,
            short=True,
        ),
        Scenario(
            policies.NAME,
            "every policy on the same recorded answers: models that stay, break, know one user, feedback that is late",
            policies.run,
            tables=policies.tables,
            page=policies.page,
            short=True,
            offline=True,
        ),
        Scenario(idle.NAME, "resident memory of each role, CPU of all roles when nothing happens", idle.run),
        *_research(),
    )
}


def find(name: str) -> Scenario:
    """Return a scenario.

    Raises:
        LookupError: there is none of that name; the message names the nearest.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.0)[0]
    raise LookupError(f"there is no scenario {name!r}; the nearest is {near!r}. See `skysail load list`")
