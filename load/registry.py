"""All scenarios, by their permanent names. Those of `load.research` are there in a checkout of the repository alone."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from typing import TYPE_CHECKING

from load.scenario import Scenario
from load.scenarios import (
    agreement,
    azure,
    batching,
    cache,
    cascade,
    cascade_page,
    clockwork,
    clockwork_page,
    conformal,
    conformal_page,
    controllers,
    delayed,
    elb,
    evaluation,
    figure8,
    floor,
    freshness,
    freshness_page,
    gpu,
    graph,
    graph_page,
    hedge,
    hedge_page,
    hostile,
    hosts,
    idle,
    images,
    laser,
    laser_page,
    latecomer,
    learn,
    linear,
    lock,
    loop,
    many_models_page,
    nexus,
    nexus_page,
    overload,
    parm,
    parm_page,
    personal,
    policies,
    prefix,
    prefix_page,
    pretzel,
    pretzel_page,
    processes,
    promotion,
    published,
    recall,
    replayed,
    replicas,
    rollout,
    runtimes,
    scale,
    scale_page,
    seeds,
    simulated,
    site,
    site_page,
    specialists,
    spread,
    steps_page,
    straggler,
    takeover,
    turns,
    velox,
    velox_page,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.harness.environment import Environment
    from load.results.results import Result

# Pages of several scenarios, by name: a page of their results, each with its machine.
COLLECTED: Mapping[str, Callable[[Sequence[tuple[Result, Environment]]], str]] = {
    each.name: each.page for each in (many_models_page.PAGE, steps_page.PAGE)
}
RESEARCH = ("account", "peers", "forest", "trio", "paper")
_MODULE = "load.research.registry"

_OWN = (
    Scenario(
        floor,
        "hand-written loops and a bare chain of four legs: what everything else is measured by",
        any_arrivals=True,
    ),
    Scenario(
        loop,
        "the whole system: sustained rate, CPU a query, latency at 200 and 500/s, against the floor",
        any_arrivals=True,
    ),
    Scenario(azure, "a production trace twenty times as fast, 20 ms for an answer: how many come in time", short=True),
    Scenario(
        elb, "two weeks of a load balancer's counts in four minutes: no id lost or doubled, lag back to 0", short=True
    ),
    Scenario(figure8, "the best model breaks and feedback tells: exp3, exp4 and single side by side"),
    Scenario(
        personal,
        "users with a model each: a state a user, bandit and full information, against one for all of them",
        short=True,
    ),
    Scenario(
        agreement, "an ensemble's error by how many of its models agree, and with one of them missing", short=True
    ),
    Scenario(
        specialists,
        "models that know different classes: a weight for each class that a model answers, against one a model",
        short=True,
    ),
    Scenario(
        linear,
        "models that suit different features, users who differ a little: linucb and linear_thompson beside exp3",
        short=True,
    ),
    Scenario(
        hedge,
        "one replica of three stands still now and then: what a second question to another one saves",
        tables=hedge_page.tables,
        page=hedge_page.page,
        plots=hedge_page.plots,
        short=True,
        any_arrivals=True,
    ),
    Scenario(
        graph,
        "a detector, then models of cars and faces: rates with the time split by what batches take, and evenly",
        tables=graph_page.tables,
        page=graph_page.page,
        plots=graph_page.plots,
        parts=graph.PARTS,
        short=True,
    ),
    Scenario(
        straggler,
        "ensembles of 1 to 16 models, some late at random: answers by the deadline against waiting for all",
        short=True,
    ),
    Scenario(
        latecomer,
        "an ensemble of which one model is always late: waited for, replaced by its running mean, not asked",
        short=True,
    ),
    Scenario(
        batching,
        "batch controllers: settling and backing off on a model of known cost, the best of them on real ones",
        short=True,
    ),
    Scenario(
        controllers,
        "six models: time by batch size, rows a second by each batch controller and in batches of one",
        tables=controllers.tables,
        page=controllers.page,
        short=True,
    ),
    Scenario(
        delayed, "a free model waits a moment for more rows: rows a batch, the model's time a row, latency", short=True
    ),
    Scenario(
        lock, "a forest in a thread beside the event loop, in each runtime: how late the loop is, how slow the forest"
    ),
    Scenario(
        runtimes,
        "trees and linear models under scikit-learn and all that they can be converted to: time by batch size",
        tables=runtimes.tables,
        page=runtimes.page,
    ),
    Scenario(
        gpu,
        "large networks in a worker beside the bare torch loop, on a GPU where there is one: rates, aimd, overlap",
        tables=gpu.tables,
        page=gpu.page,
        short=True,
        offline=True,
    ),
    Scenario(published, "ParM's published MNIST network: every answer and logit as direct torch, any batch limits"),
    Scenario(
        parm,
        "late outputs decoded from a parity model's, beside as many workers more and none: p99.9, accuracy",
        tables=parm_page.tables,
        page=parm_page.page,
        plots=parm_page.plots,
        parts=parm.PARTS,
        short=True,
    ),
    Scenario(
        cache,
        "the keys of a production cache as queries: hits beside plain LRU and CLOCK, and what a cache costs",
        short=True,
    ),
    Scenario(
        overload,
        "a slow model asked three times what it can do: goodput with and without admission, by priority",
        any_arrivals=True,
    ),
    Scenario(
        learn, "join and learn: observations a second and core; memory of a million pending predictions", short=True
    ),
    Scenario(
        recall,
        "feedback learnt a second, four models asked each time, with the prediction cache and without",
        short=True,
    ),
    Scenario(
        processes,
        "the loop as a process for each role, as one, and with its models inside: latency, CPU of roles and broker",
        tables=processes.tables,
        seconds=8.0,
        short=True,
    ),
    Scenario(
        images,
        "JPEG images of 150 KB and tensors of 602 KB through the whole system, beside one bare hop of the same bytes",
        any_arrivals=True,
        tables=images.tables,
        seconds=images.SECONDS,
        short=True,
        any_processes=True,
    ),
    Scenario(
        replayed,
        "a deployment recorded while roles are killed, and replayed offline: decisions, observations, states, speed",
        short=True,
        any_processes=True,
    ),
    Scenario(
        replicas, "one to four workers of a model that leaves the processor alone: how the rate scales", short=True
    ),
    Scenario(
        rollout,
        "a model's next version under load, as a canary, there and back: nothing lost, late or under a wrong name",
        seconds=rollout.SECONDS,
    ),
    Scenario(
        promotion,
        "a better version takes over on evidence, a worse one goes back: 20 seeds in virtual time, 20 live",
        seconds=promotion.SECONDS,
        parts=promotion.PARTS,
        tables=promotion.tables,
        short=True,
    ),
    Scenario(
        takeover,
        "one of two workers is killed, hangs or stands still: how long its queries go unanswered, and none lost",
        seconds=takeover.SECONDS,
    ),
    Scenario(
        scale,
        "what grows with workers, models, applications, contexts and time: CPU a query, memory, start time",
        tables=scale_page.tables,
        page=scale_page.page,
        parts=scale.PARTS,
        short=True,
    ),
    Scenario(
        site,
        "several processes of each role, three brokers, TLS: cost of a query; what 100,000/s take, and what breaks",
        tables=site_page.tables,
        page=site_page.page,
        parts=site.LANES,
        short=True,
    ),
    Scenario(
        cascade,
        "a cheap model first, a dear one where it is in doubt: error and cost beside the dear model alone",
        short=True,
        tables=cascade_page.tables,
        page=cascade_page.page,
        plots=cascade_page.plots,
    ),
    Scenario(
        conformal,
        "sets of labels while inputs change: coverage promised and held by windows, beside fixed sets",
        short=True,
        tables=conformal_page.tables,
        page=conformal_page.page,
        plots=conformal_page.plots,
    ),
    Scenario(
        nexus,
        "a day of thirty models, simulated: hosts needed for 99 % in time, planned, spread, and a worker a model",
        tables=nexus_page.tables,
        page=nexus_page.page,
        plots=nexus_page.plots,
        parts=nexus.PARTS,
        short=True,
    ),
    Scenario(
        seeds,
        "hours of whole deployments in virtual time, with faults drawn from seeds: what must hold of every run",
        short=True,
        offline=True,
        any_processes=True,
        hosted=True,
    ),
    Scenario(
        clockwork,
        "200 models on a host of which a tenth fit: Clockwork's schedule beside fifo with aimd, and a worker a model",
        tables=clockwork_page.tables,
        page=clockwork_page.page,
        plots=clockwork_page.plots,
        parts=clockwork.PARTS,
        short=True,
    ),
    Scenario(
        simulated,
        "the simulator: queries a second, against theory, and its predictions against live deployments",
        parts=simulated.PARTS,
        seconds=simulated.SECONDS,
        short=True,
    ),
    Scenario(
        hostile,
        "attacks and accidents beside an honest client: its answers, roles that end, memory, what is learnt",
        tables=hostile.tables,
        parts=hostile.PARTS,
        short=True,
        any_processes=True,
        hosted=True,
    ),
    Scenario(
        policies,
        "every policy on the same recorded answers: models that stay, break, know one user, feedback that is late",
        tables=policies.tables,
        page=policies.page,
        short=True,
        offline=True,
    ),
    Scenario(
        hosts,
        "1,000 models known to one host, a quarter of them in memory: what they take, hot and cold queries, a restart",
        short=True,
    ),
    Scenario(
        prefix,
        "models with one trunk in a host: rows a second, memory and latency beside the same models whole",
        tables=prefix_page.tables,
        page=prefix_page.page,
        plots=prefix_page.plots,
        short=True,
    ),
    Scenario(
        pretzel,
        "250 pipelines in one process that shares equal steps: memory, cold and hot latency, beside scikit-learn",
        tables=pretzel_page.tables,
        page=pretzel_page.page,
        plots=pretzel_page.plots,
        short=True,
        offline=True,
    ),
    Scenario(
        velox,
        "films rated by users who have weights each: error by history, features trained anew meanwhile, 100,000 users",
        tables=velox_page.tables,
        page=velox_page.page,
        plots=velox_page.plots,
        short=True,
    ),
    Scenario(
        laser,
        "features looked up by the deadline although their source is slower, then closed; two speeds beside one",
        tables=laser_page.tables,
        page=laser_page.page,
        plots=laser_page.plots,
        short=True,
    ),
    Scenario(
        freshness,
        "feedback written until the first decision by what it has taught, at 100, 1,000 and 5,000/s, seen from outside",
        tables=freshness_page.tables,
        page=freshness_page.page,
        plots=freshness_page.plots,
        seconds=freshness.SECONDS,
        short=True,
    ),
    Scenario(
        turns,
        "the longest turn of the event loop at 10,000 queries/s, once joiner and learner know ten million ids",
        seconds=turns.SECONDS,
        short=True,
        offline=True,
    ),
    Scenario(
        spread,
        "contexts that start from what those of their partition have taught, beside what all have",
        tables=spread.tables,
        short=True,
        offline=True,
    ),
    Scenario(
        evaluation,
        "off-policy estimates and intervals against published values and known truths; bandits beside other libraries",
        short=True,
        offline=True,
    ),
    Scenario(idle, "resident memory of each role, CPU of all roles when nothing happens"),
)


def _research() -> tuple[Scenario, ...]:
    """Return the scenarios of `load.research`; an installed package comes without that folder."""
    if importlib.util.find_spec("load.research") is None:
        return ()
    found: tuple[Scenario, ...] = importlib.import_module(_MODULE).SCENARIOS
    return found


SCENARIOS: Mapping[str, Scenario] = {scenario.name: scenario for scenario in (*_OWN, *_research())}


def find(name: str) -> Scenario:
    """Return a scenario.

    Raises:
        LookupError: there is none of that name; the message names the nearest, or says where it is to be had.
    """
    if name in SCENARIOS:
        return SCENARIOS[name]
    if name in RESEARCH:
        raise LookupError(
            f"scenario {name!r} compares Skysail with other systems or with a paper, and is not part of the installed"
            " package; run it from a checkout of the repository"
        )
    near = difflib.get_close_matches(name, SCENARIOS, n=1, cutoff=0.0)[0]
    raise LookupError(f"there is no scenario {name!r}; the nearest is {near!r}. See `skysail load list`")
