"""A plan on the roles' own kernels: every query is answered, one seed gives one run, and each part does its work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.records import Stage
from workers.simulation import arrivals
from workers.simulation.legs import Leg, Legs
from workers.simulation.plan import HostedModels, RolePlan, SimulatedApplication, SimulatedModel, SimulationPlan
from workers.simulation.service import Line
from workers.simulation.simulator import simulate

if TYPE_CHECKING:
    from workers.simulation.run import Run

LEG = Leg.constant(1_200)
LEGS = Legs(LEG, LEG, LEG, LEG)
MODEL = SimulatedModel("m", Line(5_000, 1_000), controller="fixed", parameters={"rows": 8.0})
OTHER = replace(MODEL, name="n")


def plan(rate: float, roles: RolePlan | None, *models: SimulatedModel, policy: str = "single") -> SimulationPlan:
    """Return two seconds of queries, answered within 60 ms."""
    times_us = arrivals.poisson(rate, 2.0, np.random.default_rng(3))
    application = SimulatedApplication(policy, slo_us=60_000)
    return SimulationPlan(times_us, 2.0, models or (MODEL,), application, LEGS, roles=roles)


def run(rate: float, roles: RolePlan | None, *models: SimulatedModel, policy: str = "single") -> Run:
    """Simulate it."""
    return simulate(plan(rate, roles, *models, policy=policy), np.random.default_rng(1))


def rows(found: Run, model: int = 0) -> int:
    """Return how many rows a model has predicted."""
    return sum(found.journals[model].rows)


@pytest.mark.parametrize("rate", [50.0, 300.0, 900.0])
def test_a_plain_plan_has_the_figures_of_the_quick_simulator(rate: float) -> None:
    """Both have the worker's own batcher between the same legs: idle, busy, and far beyond what it can do."""
    quick, whole = run(rate, None).figures(), run(rate, RolePlan()).figures()
    assert whole["queries"] == quick["queries"]
    assert whole["share_in_time"] == pytest.approx(quick["share_in_time"], abs=0.05)
    assert whole["p50_ms"] == pytest.approx(quick["p50_ms"], rel=0.1)


def test_one_seed_gives_one_run_and_every_query_has_an_answer() -> None:
    """Also where the worker cannot answer all."""
    first, again = run(900.0, RolePlan()), run(900.0, RolePlan())
    assert first.as_dict() == again.as_dict()
    assert (first.latency_us < 1_000_000).all()


def test_replicas_share_the_rows_of_their_model() -> None:
    """Two do what one cannot."""
    one, two = run(900.0, RolePlan()), run(900.0, RolePlan(), replace(MODEL, replicas=2))
    assert two.figures()["share_in_time"] > one.figures()["share_in_time"] + 0.1


def test_a_model_inside_selection_saves_two_legs() -> None:
    """Its rows are on no way."""
    quick = replace(MODEL, service=Line(200, 10))
    outside, inside = (run(50.0, roles, quick).figures() for roles in (RolePlan(), RolePlan(frozenset({"m"}))))
    assert outside["p50_ms"] - inside["p50_ms"] == pytest.approx(2.4, abs=0.3)


def test_models_of_a_host_that_do_not_fit_together_keep_queries_waiting() -> None:
    """Each query asks both; with memory for one, one of them always has to be loaded."""
    loads = {"m": (30_000, 1 << 20), "n": (30_000, 1 << 20)}
    both = RolePlan(hosts=(HostedModels("small", ("m", "n"), 2 << 20),), loads=loads)
    one = replace(both, hosts=(HostedModels("small", ("m", "n"), 1 << 20),))
    roomy, crowded = (run(40.0, roles, MODEL, OTHER, policy="exp4").figures() for roles in (both, one))
    assert roomy["partial"] <= roomy["queries"] * 0.05
    assert crowded["partial"] + crowded["defaults"] > crowded["queries"] * 0.2


def test_a_stage_is_asked_about_each_item_of_the_one_before_it() -> None:
    """Two cars a picture."""
    stages = (Stage("detect", "m", share=0.5), Stage("cars", "", "detect", where="label == car"))
    roles = RolePlan(stages=stages, asked=("n",), answers={"m": ('[{"label": "car"}, {"label": "car"}]',)})
    found = run(30.0, roles, MODEL, OTHER)
    assert rows(found, 1) == 2 * rows(found, 0) > 0
    assert found.figures()["share_in_time"] > 0.95


def test_the_cache_answers_inputs_that_were_asked_before() -> None:
    """Ten inputs: nearly nothing is left to ask."""
    cold, warm = (run(200.0, RolePlan(cache_bytes=size, inputs=10)) for size in (0, 1 << 20))
    assert rows(warm) < 0.2 * rows(cold)


def test_admission_answers_at_once_what_would_be_late() -> None:
    """Who is refused has the default output long before the deadline."""
    found = run(2_000.0, RolePlan(admission=True))
    is_default = found.outputs == 0
    assert is_default.any()
    assert np.median(found.latency_us[is_default]) < 10_000 < np.median(run(2_000.0, RolePlan()).latency_us)


def test_a_hedge_asks_slow_rows_again() -> None:
    """No more than its share."""
    noisy = replace(MODEL, service=Line(5_000, 1_000, noise=1.0), replicas=3)
    plain, hedged = (run(60.0, RolePlan(hedge=share), noisy) for share in (0.0, 0.2))
    assert rows(plain) < rows(hedged) <= 1.3 * rows(plain)


def test_a_cascade_asks_the_dear_model_about_what_is_in_doubt() -> None:
    """All queries ask the first one."""
    found = run(40.0, RolePlan(), MODEL, OTHER, policy="cascade")
    assert rows(found, 0) == found.figures()["queries"]
    assert rows(found, 1) <= rows(found, 0)
