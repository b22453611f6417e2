"""Admission: what cannot be done in time is not asked, so that what is asked is done in time."""

from __future__ import annotations

import pytest

from schemas.records import Feedback, ModelPredictions, Outcome, Tensor
from streams.operators.join.observation import default_observation, observation
from streams.operators.selection.admission import FEW_ROWS, LOST_US, PROBE_US, Admission
from tests.cached import Cached
from tests.loops import row
from tests.overload import BATCH_US, CAPACITY, NOW, ROW_US, SLO_US, simulate

NOTHING = Tensor("int64", (0,), b"")


def report(rows: int, took_us: int, *, worker: str = "w", queued: int = 0, cap: int = 40) -> ModelPredictions:
    """Return a worker's report on a batch."""
    ids = tuple(map(str, range(rows)))
    return ModelPredictions(
        "m", "1", worker, ids, (Outcome.OK,) * rows, NOTHING, None, (0,) * rows, took_us, rows, cap, queued
    )


def overloaded(rows: int = 1_000) -> Admission:
    """Return admission that knows a model of 5 ms + 1 ms a row, of which so many rows have been asked."""
    admission = Admission()
    for size in (10, 40, 20, 40):
        admission.ask(("m",) * size, NOW + SLO_US, NOW)
        admission.report(report(size, BATCH_US + size * ROW_US), NOW)
    admission.ask(("m",) * rows, NOW + SLO_US, NOW)
    return admission


def test_without_reports_everything_is_admitted() -> None:
    """Nothing is known of a model that has not reported yet."""
    admission = Admission()
    admission.ask(("m",) * 10_000, NOW + SLO_US, NOW)
    assert admission.admits("m", NOW + SLO_US, NOW)
    assert admission.admits("other", NOW + SLO_US, NOW)


def test_what_a_row_and_a_batch_cost_is_learnt_from_the_reports() -> None:
    """Sizes that differ tell the fixed from the variable cost."""
    load = overloaded().load("m")
    assert load.batch_us == pytest.approx(BATCH_US, rel=0.01)
    assert load.row_us == pytest.approx(ROW_US, rel=0.01)


def test_a_wait_longer_than_the_time_left_is_refused_and_a_longer_objective_is_not() -> None:
    """1,000 rows ahead take 1.1 s: too long for 100 ms, not for 2 s."""
    admission = overloaded()
    assert admission.admits("m", NOW + SLO_US, NOW)  # the probe
    assert not admission.admits("m", NOW + SLO_US, NOW)
    assert admission.admits("m", NOW + 2_000_000, NOW)


def test_a_slow_first_batch_rejects_nothing_at_low_load() -> None:
    """A second for the first row, as a cold start takes, does not keep the next few from being asked."""
    admission = Admission()
    admission.ask(("m",), NOW + SLO_US, NOW)
    admission.report(report(1, 1_000_000), NOW)
    for _ in range(FEW_ROWS):
        assert admission.admits("m", NOW + SLO_US, NOW)
        admission.ask(("m",), NOW + SLO_US, NOW)


def test_a_probe_is_let_through_now_and_then() -> None:
    """An estimate that is too high meets the report that corrects it."""
    admission = overloaded()
    admitted = sum(admission.admits("m", NOW + step + SLO_US, NOW + step) for step in range(0, 500_000, 1_000))
    assert admitted == 500_000 // PROBE_US


def test_rows_that_are_never_reported_are_given_up() -> None:
    """The worker died with them; its successor's first reports open the way again."""
    admission = overloaded()
    for late_us in (300_000, 300_000 + LOST_US):
        admission.report(report(0, 0), NOW + late_us)
    assert admission.load("m").ahead == 0


def test_rows_that_others_asked_count() -> None:
    """What waits in the worker beyond our own rows is another selection process's."""
    admission = overloaded(rows=0)
    admission.report(report(20, BATCH_US + 20 * ROW_US, queued=500), NOW)
    assert admission.load("m").ahead == 500


def test_workers_share_the_load() -> None:
    """What is too much for one worker is admitted when a second one reports."""
    admission = overloaded(rows=100)
    admission.admits("m", NOW + SLO_US, NOW)  # the probe
    assert not admission.admits("m", NOW + SLO_US, NOW)
    admission.report(report(1, BATCH_US + ROW_US, worker="v"), NOW)
    assert admission.admits("m", NOW + SLO_US, NOW)


def test_a_canary_is_no_second_worker() -> None:
    """Its rows come back, and its speed is not the model's."""
    admission = overloaded()
    load = admission.load("m")
    before = load.batch_us, load.row_us
    for _ in range(10):
        admission.report(report(40, 1_000, worker="other"), NOW, is_beside=True)
    assert (load.batch_us, load.row_us) == before
    assert [admission.admits("m", NOW + SLO_US, NOW) for _ in range(2)] == [True, False]  # a probe, and no more


def test_the_lowest_priority_is_refused_first() -> None:
    """With 60 rows ahead a high priority still gets in, one below it no more; alone the low one would."""
    assert overloaded(60).admits("m", NOW + SLO_US, NOW, -1)
    admission = overloaded(60)
    assert admission.admits("m", NOW + SLO_US, NOW, 1)
    admission.load("m")._probed_us = NOW
    assert not admission.admits("m", NOW + SLO_US, NOW, 0)
    assert admission.admits("m", NOW + SLO_US, NOW, 1)


def test_goodput_at_three_times_overload_is_that_at_capacity_and_collapses_without() -> None:
    """With a worker that serves all it is sent in order: >= 90 % of capacity with admission, < 20 % without."""
    at_capacity = simulate(CAPACITY, is_admitting=True)
    assert at_capacity > 0.9 * CAPACITY
    assert simulate(3 * CAPACITY, is_admitting=True) >= 0.9 * at_capacity
    assert simulate(3 * CAPACITY, is_admitting=False) < 0.2 * at_capacity


def test_nothing_is_refused_at_low_load() -> None:
    """At a third of the capacity goodput is the rate."""
    assert simulate(CAPACITY / 3, is_admitting=True) == pytest.approx(CAPACITY / 3, rel=0.01)


class _Asks:
    """A selection kernel with admission whose models have so much ahead that nothing is in time."""

    def __init__(self, *models: str, busy: str = "m") -> None:
        self.cached = Cached(*models, admission=True)
        load = self.cached.kernel.serving.questions.admission.load(busy)  # type: ignore[union-attr]
        load.report(report(40, BATCH_US + 40 * ROW_US), self.cached.now_us)
        for _ in range(1_000):
            load.ask(self.cached.now_us, self.cached.now_us)
        load._probed_us = self.cached.now_us


def test_an_overloaded_model_costs_the_answer_at_once() -> None:
    """The default leaves with the query, `overloaded` is counted by model, and the model is not asked."""
    asks = _Asks("m")
    assert asks.cached.ask("q", row(1.0)) == ["q=overloaded"]
    found = asks.cached.kernel.statistics()
    assert found["overloaded_total{model=m}"] == 1
    assert found["answers_total{application=digits,status=default,reason=overloaded}"] == 1


def test_a_refused_query_teaches_nothing() -> None:
    """No model was asked: none is counted as asked, and feedback finds nothing decided."""
    asks = _Asks("m")
    before = asks.cached.kernel.statistics()["asked_total{application=digits,model=m}"]
    asks.cached.ask("q", row(1.0))
    (prediction,) = asks.cached.predictions[-1:]
    assert (prediction.decision, prediction.outputs) == (None, ())
    assert observation(prediction, Feedback("q", 7), "zero_one", {}, NOW) is None
    assert asks.cached.kernel.statistics()["asked_total{application=digits,model=m}"] == before


def test_a_refused_model_of_an_ensemble_loses_nothing() -> None:
    """The record names it; feedback teaches what the others cost, and nothing of a model that was not asked."""
    asks = _Asks("m", "n")
    asks.cached.ask("q", row(1.0))
    asks.cached.land("q", "n")
    (prediction,) = asks.cached.predictions[-1:]
    assert [output.outcome for output in prediction.outputs] == [Outcome.OVERLOADED, Outcome.OK]
    joined = observation(prediction, Feedback("q", 7), "zero_one", {}, NOW)
    ended = default_observation(prediction, 0.5, NOW)
    assert joined is not None
    assert ended is not None
    assert (joined.losses, ended.losses) == ((None, 0.0), (None, 0.5))


def test_what_the_cache_knows_is_answered_however_busy_the_model_is() -> None:
    """A hit asks nobody."""
    asks = _Asks("m")
    assert asks.cached.ask("q", row(-1.0)) == ["q=7"]


def test_an_ensemble_goes_on_without_its_overloaded_model() -> None:
    """The rest is asked, and its answer is partial, `overloaded`."""
    asks = _Asks("m", "n")
    assert asks.cached.ask("q", row(1.0)) == ["n?q"]
    assert asks.cached.land("q", "n") == ["q=overloaded"]
    found = asks.cached.kernel.statistics()
    assert found["answers_total{application=digits,status=partial,reason=overloaded}"] == 1
