"""The account: samples become steps, records become legs, both become a page that adds up."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from load.harness.driving import Stretch
from load.harness.recorder import Recorder
from load.harness.wire import Arrival
from load.research.account import account_tables
from load.research.account.account_tables import DONE
from load.research.account.measured import Measured, accounted, with_legs
from load.research.account.profile import Profile, Spent, Window, spent_by
from load.research.account.steps import OTHER, STEPS, step_of
from load.research.account.traffic import LEGS, Traffic, legs_ms
from load.results.results import Result
from schemas import topics
from schemas.codec import Codec
from schemas.records import ModelOutput, Outcome, Prediction, Status
from streams.runtime.process.cpu_profiler import LOOP, THREADS

WINDOW = Window(1_000, 2_000)
ENVIRONMENT = {"cores_usable": 2, "processor": "some", "broker": "Kafka", "python": "3.11", "packages": {}}


@pytest.mark.parametrize(
    ("stack", "step"),
    [
        (("schemas.decoders:read", "streams.operators.selection.kernel:Selection.on_records"), "decode"),
        (("numpy:stack", "policies.draw:uniform", "streams.operators.selection.kernel:Selection.on_records"), "select"),
        (("streams.operators.selection.kernel:Selection.on_timer",), "heap"),
        (
            (
                "streams.operators.selection.state_view:__create_fn__.<locals>.__eq__",
                "streams.runtime.role.accumulator:Lane.add",
            ),
            "append",
        ),
        (
            (
                "sklearn.base:predict",
                "workers.runtimes.sklearn:SklearnRuntime.predict_batch",
                "workers.inputs.rows:_attempt",
            ),
            "predict",
        ),
        (("numpy:max", "workers.inputs.rows:validate", "workers.executors.thread:ThreadExecutor.run_quick"), "stack"),
        (
            ("workers.executors.thread:ThreadExecutor.run_quick", "workers.executors.models:ModelExecutors._run_quick"),
            "hand over",
        ),
        (("asyncio.events:Handle._run",), "loop"),
        ((LOOP,), "loop"),
        ((THREADS,), "predict"),
        (("somebody:else",), OTHER),
    ],
)
def test_a_stack_belongs_to_the_innermost_step(stack: tuple[str, ...], step: str) -> None:
    """What a step calls in a library is its own; of rules that fit, the longest counts; made methods are nobody's."""
    assert step_of(stack) == step


def test_every_step_has_words() -> None:
    """A large entry has a paragraph, whichever it is."""
    assert set(DONE) == set(STEPS)


def test_only_samples_of_the_window_count() -> None:
    """Time is added up by step; what no step knows is kept by its innermost function."""
    profile = Profile(
        (("schemas.decoders:read",), ("somebody:else",)),
        ((999, 0, 1_000), (1_000, 0, 2_000), (1_500, 1, 3_000), (2_000, 1, 4_000)),
    )
    spent = spent_by(profile, WINDOW)
    assert spent.steps == {"decode": 2e-6, OTHER: 3e-6}
    assert (dict(spent.unknown), spent.samples, spent.cpu_s) == ({"somebody:else": 3e-6}, 2, pytest.approx(5e-6))


def test_threads_are_the_model_only_in_a_worker() -> None:
    """A worker's thread is split between stacking and the model; elsewhere nobody knows what threads do."""
    profile = Profile(((THREADS,),), ((1_500, 0, 1_000),))
    assert spent_by(profile, WINDOW).steps == {OTHER: 1e-6}
    assert spent_by(profile, WINDOW, 0.75).steps == pytest.approx({"stack": 0.25e-6, "predict": 0.75e-6})


def test_what_ran_on_the_event_loops_thread_is_not_split_again() -> None:
    """Its stacks have told stacking and the model apart."""
    stacks = ((THREADS,), ("workers.inputs.rows:validate",), ("workers.runtimes.sklearn:SklearnRuntime.predict_batch",))
    profile = Profile(stacks, ((1_500, 0, 1_000), (1_500, 1, 2_000), (1_500, 2, 4_000)))
    assert spent_by(profile, WINDOW, 0.75).steps == pytest.approx({"stack": 2.25e-6, "predict": 4.75e-6})


def test_a_profile_is_read_as_the_sampler_writes_it(tmp_path: Path) -> None:
    """Stacks and samples come back as tuples."""
    path = tmp_path / "1.json"
    path.write_text(json.dumps({"stacks": [["a:b"]], "samples": [[1, 0, 2]]}))
    assert Profile.read(path) == Profile((("a:b",),), ((1, 0, 2),))


def answered(query_id: str) -> Prediction:
    """Return an answer that was sent at 0, received at 1,000 and given at 7,000 us."""
    output = ModelOutput("m", "1", Outcome.OK, 1)
    return Prediction(query_id, "a", None, None, Status.COMPLETE, None, 1, 1.0, (output,), 0, 1_000, 9_000, 7_000)


def test_ways_are_those_of_queries_that_went_all_of_it() -> None:
    """A query whose worker was not seen has no legs."""
    traffic = Traffic()
    for query_id in ("whole", "half"):
        arrival = Arrival(topics.PREDICTIONS, 0, 7_000, b"key", Codec().encode(answered(query_id)))
        traffic.add(arrival, Codec())
    traffic.worked["whole"] = (2_000, 3_000, 5_000)
    ways = traffic.ways({"whole": 8_000, "half": 8_000, "stranger": 8_000})
    assert ways == [(0, 1_000, 2_000, 3_000, 5_000, 7_000, 8_000)]
    assert traffic.volumes[topics.PREDICTIONS].records == 2
    assert {leg: p50 for leg, (p50, _) in legs_ms(ways).items()} == dict(zip(LEGS, (1, 1, 1, 2, 2, 1), strict=True))


def test_without_ways_there_are_no_legs() -> None:
    """Nothing was answered, nothing is said."""
    assert legs_ms([]) == {}


@dataclass
class Account:
    """A result with one stretch, and what it was made of."""

    result: Result
    spent: dict[str, Spent]


@pytest.fixture
def account() -> Account:
    """Two queries in 100 us of selection and 60 us of a worker; the samples miss a tenth of it."""
    recorder = Recorder(start_us=0, slo_us=100_000)
    for query_id in ("a", "b"):
        recorder.sent(query_id, 0, 0)
        recorder.answered(query_id, 4_000, Status.COMPLETE)
    measured = Measured(Stretch(recorder, {"selection": 100e-6, "worker.m": 60e-6}, 0), WINDOW, {"a": 8_000})
    spent = {
        "selection": Spent({"decode": 60e-6, OTHER: 30e-6}, {"somebody:else": 30e-6}, 90),
        "worker.m": Spent({"predict": 54e-6}, {}, 54),
    }
    traffic = Traffic(worked={"a": (2_000, 3_000, 5_000)}, answered={"a": (0, 1_000, 7_000)})
    traffic.volumes[topics.QUERIES].records, traffic.volumes[topics.QUERIES].size_bytes = 2, 600
    traffic.rows["m"], traffic.batches["m"] = 6, 2.0
    result = Result("account", {}, {"backlog": 2, "rate": 500})
    for stretch in ("backlog", "at_500"):
        result = accounted(result, stretch, measured, measured, spent, traffic)
    return Account(with_legs(result, "at_500", measured, traffic), spent)


def test_the_steps_add_up_to_what_was_sampled(account: Account) -> None:
    """Microseconds per query over all steps and processes are the samples' sum; shares make one."""
    rows = account.result.series["backlog_steps"]
    assert sum(row["cpu_us"] for row in rows) == pytest.approx((90 + 54) / 2)
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    figures = account.result.figures
    assert figures["backlog_cpu_us_per_query"] == pytest.approx(80)
    assert figures["backlog_accounted"] == pytest.approx(0.9)
    assert figures["backlog_other"] == pytest.approx(30 / 144)
    assert (figures["backlog_lost"], figures["backlog_cpu_us_worker_m"]) == (0, pytest.approx(30))


def test_the_page_has_each_step_and_a_paragraph_on_the_large_ones(account: Account) -> None:
    """Steps by role with their sum, volumes, batches, legs, and words."""
    text = account_tables.SCENARIO.written(account.result, ENVIRONMENT)
    prose = " ".join(text.split())
    assert "| decode | 30.0 |  | 30.0 | 41.7% |" in text
    assert "| all | 45.0 | 27.0 | 72.0 | 100.0% |" in text
    assert "| queries | 1.000 | 300 |" in text
    assert "| m | 3.0 |" in text
    assert "| in the worker's batch | 2.00 | 2.00 |" in text
    assert "add up to 90.0% of it (90.0% to 90.0% of each process)" in prose
    assert (
        "**decode** (bytes to records). Share: 42% draining a backlog of 2 queries, 42% at 500 queries a second."
        in prose
    )


def test_the_screen_shows_the_tables_of_the_page(account: Account) -> None:
    """Steps, volumes and batches of both stretches; legs of one."""
    assert [len(table.rows) for table in account_tables.tables(account.result)] == [4, 2, 1, 4, 2, 1, 7]


def test_the_page_says_how_much_went_by_columns(account: Account) -> None:
    """By role, behind the stretches; nothing where nobody has said."""
    assert "columns](" not in account_tables.SCENARIO.written(account.result, ENVIRONMENT)
    result = replace(account.result, figures=account.result.figures | {"by_columns_joiner": 0.9375})
    assert "columns](runtimes.md) took: joiner 93.8%." in account_tables.SCENARIO.written(result, ENVIRONMENT)
