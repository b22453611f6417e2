"""The simulator agrees with queueing theory, repeats itself, and has the rules of a deployment."""

import json

import numpy as np
import pytest

from load.research.operation import theory
from policies.registry import create
from workers.simulation import arrivals
from workers.simulation.errors import PlanError
from workers.simulation.legs import Leg, Legs
from workers.simulation.plan import SimulatedApplication, SimulatedModel, SimulationPlan
from workers.simulation.run import Run
from workers.simulation.service import Delayed, Line, Recorded, SimulatedService
from workers.simulation.simulator import simulate

CALL_US = 10_000
NEVER_LATE = SimulatedApplication(slo_us=10**12, margin_us=0)
EXPONENTIAL = Line(CALL_US, 0, noise=1.0)


def batches_of(rows: int, service: SimulatedService, replicas: int = 1, *, shared: bool = False) -> SimulatedModel:
    """Return a model whose workers take at most so many rows, and read all that there is."""
    return SimulatedModel("m", service, replicas, "fixed", {"rows": float(rows)}, queue_rows=1 << 30, shared=shared)


def simulated(
    rate: float, seconds: float, *models: SimulatedModel, application: SimulatedApplication = NEVER_LATE, seed: int = 1
) -> Run:
    """Simulate Poisson arrivals without legs."""
    of_arrivals, of_run = np.random.default_rng(seed).spawn(2)
    return simulate(SimulationPlan(arrivals.poisson(rate, seconds, of_arrivals), seconds, models, application), of_run)


def assert_mean_wait(run: Run, expected_us: float) -> None:
    """The mean wait is within four standard errors, by the means of 25 stretches that hardly depend on each other."""
    means = [float(part.mean()) for part in np.array_split(run.waits_us(0), 25)]
    error = float(np.std(means, ddof=1)) / 5
    assert abs(float(np.mean(means)) - expected_us) < 4 * error
    assert error < expected_us / 10, "too few queries to tell"


@pytest.mark.parametrize("rate", [40, 80])
def test_waits_are_those_of_one_server_with_constant_service(rate: int) -> None:
    """M/D/1: Pollaczek and Khinchine's mean, at a light and a heavy load."""
    run = simulated(rate, 300, batches_of(1, Line(CALL_US, 0)))
    assert_mean_wait(run, theory.md1_wait(rate / 1e6, CALL_US))


@pytest.mark.parametrize("rate", [40, 70])
def test_waits_are_those_of_one_server_with_exponential_service(rate: int) -> None:
    """M/M/1."""
    run = simulated(rate, 600, batches_of(1, EXPONENTIAL))
    assert_mean_wait(run, theory.mm1_wait(rate / 1e6, CALL_US))


@pytest.mark.parametrize(("rate", "servers"), [(150, 2), (330, 4)])
def test_waits_are_those_of_several_servers_with_one_queue(rate: int, servers: int) -> None:
    """M/M/k: Erlang's C formula."""
    run = simulated(rate, 300, batches_of(1, EXPONENTIAL, servers, shared=True))
    assert_mean_wait(run, theory.mmk_wait(rate / 1e6, CALL_US, servers))


@pytest.mark.parametrize("rate", [150, 600])
def test_waits_are_those_of_a_server_that_takes_all_that_wait(rate: int) -> None:
    """Bulk service of at most 8 rows in one exponential time."""
    run = simulated(rate, 200, batches_of(8, EXPONENTIAL))
    assert_mean_wait(run, theory.batch_wait(rate / 1e6, CALL_US, 8))


def test_batches_of_one_are_the_simple_case_of_batches() -> None:
    """With a cap of one the formula for batches is that of M/M/1, and one server of several is M/M/1."""
    assert theory.batch_wait(0.7, 1.0, 1) == pytest.approx(theory.mm1_wait(0.7, 1.0))
    assert theory.mmk_wait(0.7, 1.0, 1) == pytest.approx(theory.mm1_wait(0.7, 1.0))


def test_theory_has_no_answer_where_the_queue_grows_for_ever() -> None:
    """A load of one or more is refused."""
    with pytest.raises(PlanError, match="load is 1"):
        theory.mm1_wait(1.0, 1.0)


def noisy_plan(seed: int) -> Run:
    """Simulate two models, an ensemble, recorded legs and early drop: everything that draws or waits."""
    slow, fast = SimulatedModel("slow", Line(8_000, 900, 0.2), 2), SimulatedModel("fast", Line(2_000, 200, 0.5), 3)
    random = np.random.default_rng(seed)
    times = np.cumsum(random.integers(1, 5_000, 500))
    leg = Leg.recorded(times.tolist(), random.integers(300, 3_000, 500).tolist())
    of_arrivals, of_run = random.spawn(2)
    application = SimulatedApplication("exp4", slo_us=40_000)
    plan = SimulationPlan(
        arrivals.poisson(900, 5, of_arrivals), 5, (slow, fast), application, Legs(leg, leg, leg, leg), selections=2
    )
    return simulate(plan, of_run)


def test_one_seed_gives_one_run_to_the_last_byte() -> None:
    """Twice the same figures, written down; another seed gives others."""
    first, second, other = (json.dumps(noisy_plan(seed).as_dict()) for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_every_query_has_one_outcome() -> None:
    """Queries are answered by models or by default, each counted once; a model predicts no more than it was asked."""
    run = noisy_plan(3)
    figures = run.figures()
    assert figures["queries"] == len(run.plan.arrivals_us)
    assert figures["answered_per_s"] * 5 + figures["defaults"] == pytest.approx(figures["queries"])
    for model in range(2):
        predicted = sum(run.journals[model].rows)
        assert predicted + int(run.expired[model].sum()) == figures["queries"]


def test_no_answer_comes_before_its_cause() -> None:
    """Selection has a query after it was sent, its answer after that, and the client after that."""
    run = noisy_plan(4)
    assert (run.received_us >= run.plan.arrivals_us).all()
    assert (run.answered_us >= run.received_us).all()
    assert (run.latency_us >= run.answered_us - run.plan.arrivals_us).all()


def test_no_model_is_free_while_a_row_waits() -> None:
    """A row that has waited was taken the moment that the batch before it was over."""
    run = simulated(600, 10, batches_of(8, Line(5_000, 500, noise=0.5)))
    journal = run.journals[0]
    ended = {started + took for started, took in zip(journal.started_us, journal.took_us, strict=True)}
    waited_us = np.array(journal.waited_us)
    started_us = (run.received_us + waited_us)[waited_us > 0]
    assert len(started_us) > 1_000
    assert set(started_us.tolist()) <= ended


def test_an_answer_leaves_a_margin_before_the_deadline_with_what_is_there() -> None:
    """Of an ensemble with a model that is always late, answers are partial and in time."""
    late, quick = SimulatedModel("late", Line(500_000, 0)), SimulatedModel("quick", Line(1_000, 0))
    run = simulated(1, 20, late, quick, application=SimulatedApplication("exp4", slo_us=100_000))
    figures = run.figures()
    assert figures["partial"] == figures["queries"]
    assert figures["share_in_time"] == 1.0
    assert figures["max_ms"] <= 95.0


def test_a_model_that_is_asked_alone_and_late_leaves_the_default() -> None:
    """Nothing is there by the deadline."""
    run = simulated(1, 20, SimulatedModel("late", Line(500_000, 0)), application=SimulatedApplication(slo_us=100_000))
    assert run.figures()["defaults"] == run.figures()["queries"]


def test_what_cannot_be_in_time_is_dropped_early() -> None:
    """Asked three times what it can do, the worker's own early drop keeps most of its goodput."""
    model = SimulatedModel("m", Line(5_000, 1_000), controller="fixed", parameters={"rows": 40.0})
    application = SimulatedApplication(slo_us=150_000)
    at_capacity, over = (simulated(rate, 20, model, application=application).figures() for rate in (889, 2_667))
    assert over["in_time_per_s"] > 0.9 * at_capacity["in_time_per_s"]
    assert over["defaults"] > 0


def test_the_controller_finds_the_largest_batch_that_fits() -> None:
    """5 ms and 0.1 ms a row under 20 ms: 150 rows fit, and AIMD settles near them under overload."""
    model = SimulatedModel("m", Line(5_000, 100), objective_us=20_000)
    run = simulated(9_000, 6, model, application=SimulatedApplication(slo_us=10**9))
    assert 130 <= np.median(run.journals[0].cap[-100:]) <= 150


def test_three_workers_of_four_partitions_are_uneven() -> None:
    """Kafka gives one of them two partitions; a fifth worker of four partitions has none."""
    assert SimulatedModel("m", EXPONENTIAL, 3).owners() == (0, 0, 1, 2)
    assert SimulatedModel("m", EXPONENTIAL, 5, partitions=4).owners() == (0, 1, 2, 3)


def test_a_full_queue_leaves_rows_unread() -> None:
    """Rows that come to a full worker wait in the topic, and are read when there is room: none is refused or lost."""
    model = SimulatedModel("m", Line(1_000, 0), controller="fixed", parameters={"rows": 4.0}, queue_rows=8)
    run = simulated(5_000, 2, model)
    assert max(run.journals[0].queued) <= 8
    assert sum(run.journals[0].rows) == len(run.plan.arrivals_us)


def test_queries_of_the_warm_up_do_not_count() -> None:
    """They are simulated all the same."""
    of_run = np.random.default_rng(1)
    plan = SimulationPlan(arrivals.constant(100, 10), 10, (batches_of(1, Line(1_000, 0)),), warm_up_us=4_000_000)
    run = simulate(plan, of_run)
    assert run.figures()["queries"] == 600
    assert run.figures()["answered_per_s"] == pytest.approx(100)


def test_models_are_drawn_as_the_policy_draws_them() -> None:
    """Each model is asked as often as its propensity says."""
    models = tuple(SimulatedModel(name, Line(100, 0)) for name in "abc")
    run = simulated(1_000, 20, *models, application=SimulatedApplication("epsilon_greedy", {"epsilon": 0.3}))
    policy = create("epsilon_greedy", {"epsilon": 0.3})
    expected = policy.propensities(policy.init(3), 3)
    assert run.drawn is not None
    found = np.bincount(run.drawn, minlength=3) / len(run.drawn)
    assert found == pytest.approx(expected, abs=0.02)


def test_a_policy_that_goes_by_what_is_not_simulated_is_refused() -> None:
    """The message names what it goes by."""
    with pytest.raises(PlanError, match="latencies"):
        simulated(1, 1, SimulatedModel("m", EXPONENTIAL), application=SimulatedApplication("timely"))


def test_recorded_batches_are_played_and_sizes_between_them_interpolated() -> None:
    """Of 2 and 4 rows 10 and 20 ms were measured: 2 take 10, 3 take 15, and 6 take 30."""
    draw = Recorded.of({2: [10_000.0], 4: [20_000.0]}).sampler(np.random.default_rng(1))
    assert [draw(rows) for rows in (1, 2, 3, 4, 6)] == [10_000, 10_000, 15_000, 20_000, 30_000]


def test_measured_delays_are_added_to_the_time_of_a_batch() -> None:
    """Each of those that were measured comes as often as the others."""
    draw = Delayed(Line(1_000, 100), (0, 500)).sampler(np.random.default_rng(1))
    drawn = [draw(2) for _ in range(1_000)]
    assert set(drawn) == {1_200, 1_700}
    assert 400 < drawn.count(1_700) < 600


def test_samples_must_be_positive_times() -> None:
    """Nothing to play is an error."""
    with pytest.raises(PlanError, match="positive"):
        Recorded.of({})


def test_a_recorded_stall_delays_what_is_sent_during_it_and_nothing_else() -> None:
    """Records sent while nothing moves arrive together, in order, and the next one takes the usual time."""
    leg = Leg.recorded([0, 10_000, 11_000, 20_000, 21_000, 30_000], [1_000, 1_000, 10_000, 1_000, 1_000, 1_000])
    sent = np.array([5_000, 11_000, 15_500, 20_000, 25_000])
    found = leg.arrivals_us(sent)
    assert found.tolist() == [6_000, 21_000, 21_000, 21_000, 26_000]
    assert [at + leg.delay_us(at) for at in sent.tolist()] == found.tolist()


def test_a_recording_repeats() -> None:
    """What is sent after its end meets its beginning again."""
    leg = Leg.recorded([100, 200, 300], [1, 5, 9])
    assert leg.delay_us(450) == leg.delay_us(50)
    assert leg.shifted(50).delay_us(0) == leg.delay_us(50)
