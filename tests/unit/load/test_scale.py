"""What grows: who is asked, what is made of the figures, how the page shows them."""

import pytest

from load.harness.aggregates import cores
from load.harness.driving import Stretch
from load.harness.recorder import Recorder
from load.results.results import Result
from load.scenarios.scale import scale_tables
from load.scenarios.scale.scale import SIZES, growth, impossible_rates, ratios
from load.scenarios.scale.scaling import Chunk, Many, Size, by_role
from schemas.records import Status, Tensor

ENVIRONMENT = {"cores_usable": 2, "processor": "some processor", "broker": "Apache Kafka", "python": "3.11"}
ROW = Tensor((1,), "<f4", b"\0\0\0\0")


def test_applications_and_contexts_are_asked_in_turns() -> None:
    """Backlogs go on where the last one ended, and no id comes twice."""
    many = Many([ROW], [7], applications=2, contexts=3)
    first = [many(index, 5) for index in range(4)]
    many.asked = 4
    asked = [*first, many(0, 5)]
    assert [query.application for query, _ in asked] == ["app-0", "app-1", "app-0", "app-1", "app-0"]
    assert [query.context for query, _ in asked] == ["user-0", "user-1", "user-2", "user-0", "user-1"]
    assert len({query.query_id for query, _ in asked}) == 5
    assert {label for _, label in asked} == {7}


def test_without_labels_nobody_learns() -> None:
    """And without contexts there is one state for all."""
    (query, label) = Many([ROW])(0, 5)
    assert (query.context, label) == (None, None)


def test_figures_weigh_backlogs_by_their_queries() -> None:
    """The rate is all queries over all the time that they took; memory is that of the last one, by role."""
    chunks = (
        Chunk(100, 10.0, {"selection": 30.0, "worker.a": 10.0}, {"selection": 1.0, "worker.a": 2.0}, 0, 0),
        Chunk(300, 20.0, {"selection": 70.0, "worker.a": 10.0}, {"selection": 3.0, "worker.a": 2.0}, 1, 2, 40.0),
    )
    recorder = Recorder(0, 100_000)
    for number in range(4):
        recorder.sent(str(number), 0, 0)
    recorder.answered("0", 2_000, Status.COMPLETE)
    found = Size(5.0, chunks, 9.0, Stretch(recorder, {}, 0)).figures()
    assert (found["at_200_p50_ms"], found["at_200_p99_ms"], found["at_200_within_slo"]) == (2.0, 2.0, 0.25)
    assert (found["start_s"], found["drained_per_s"], found["cpu_us_per_query"]) == (5.0, 400 / 25, 70.0)
    assert (found["broker_cpu_us_per_query"], found["used_cores"]) == (30.0, pytest.approx(16 * 100 / 1e6))
    assert (found["selection_mib"], found["worker_mib"], found["all_mib"]) == (3.0, 2.0, 5.0)
    assert (found["lost"], found["defaults"]) == (1 + 3, 2)


def test_instances_of_a_role_are_added_up() -> None:
    """Workers are one role."""
    assert by_role({"worker.a": 1.0, "worker.b": 2.0, "joiner": 4.0}) == {"worker": 3.0, "joiner": 4.0}


def test_ratios_are_of_the_largest_to_the_smallest() -> None:
    """Of workers also how flat they are, and how their rate grows."""
    costs = ((2, 100.0, 10.0), (4, 90.0, 20.0), (8, 110.0, 38.0))
    rows = [{"part": "workers", "size": n, "cpu_us_per_query": cpu, "drained_per_s": rate} for n, cpu, rate in costs]
    rows += [{"part": "models", "size": n, "cpu_us_per_query": n, "drained_per_s": 1.0} for n in (1, 64)]
    found = ratios(rows)
    assert (found["workers_cpu_ratio"], found["models_cpu_ratio"]) == (1.1, 64)
    assert found["workers_cpu_off_mean"] == pytest.approx(0.1)
    assert (found["workers_rate_gain"], found["workers_rate_gain_ideal"]) == (3.8, 4)


def test_what_a_context_takes_follows_from_the_states_that_selection_keeps() -> None:
    """Contexts beyond its bound take nothing."""
    kept = ((1_000, 1_000, 90.0), (1_000_000, 100_000, 288.0))
    rows = [
        {"part": "contexts", "size": n, "cpu_us_per_query": 1.0, "states": states, "selection_mib": mib}
        for n, states, mib in kept
    ]
    assert ratios(rows)["contexts_selection_bytes_per_state"] == pytest.approx(198 * 2**20 / 99_000)


def test_a_rate_that_needs_more_cores_than_there_are_is_found() -> None:
    """212,785 queries a second at 44.7 us are 9.5 cores; what needs all of two is possible."""
    needed = [cores(212_785, 44.7), cores(40_000, 30.0, 20.0), cores(20_000, 30.0, 20.0)]
    assert needed == pytest.approx([9.5, 2.0, 1.0], rel=0.01)
    assert impossible_rates([{"used_cores": each} for each in needed], 2) == 1


def test_growth_counts_from_the_end_of_the_first_backlog() -> None:
    """What fills up first does not count."""
    rows = [{"queries": 900_000, "joiner_mib": 90.0}, {"queries": 500_000, "joiner_mib": 91.0}]
    assert growth(rows) == {"memory_joiner_mib": 91.0, "memory_joiner_mib_per_million": 2.0}


def test_the_page_has_a_table_for_each_part_that_was_measured() -> None:
    """Figures that a part has not are no columns of it."""
    sizes = [{"part": "workers", "size": 2, "drained_per_s": 1_000.0, "worker_mib": 150.0}]
    memory = [{"queries": 10, "joiner_mib": 90.0}, {"queries": 10, "joiner_mib": 90.5}]
    text = scale_tables.SCENARIO.written(
        Result("scale", {}, {"form": "full"}, {"sizes": sizes, "memory": memory, "coming": memory}),
        ENVIRONMENT,
    )
    assert "| workers | queries/s | workers MiB |" in text
    assert "| 2 | 1,000 | 150 |" in text
    assert "| 20 | 90.5 |" in text
    assert "### Models" not in text


def test_sizes_rise() -> None:
    """A ratio is of the last to the first."""
    assert all(list(sizes) == sorted(sizes) for sizes in SIZES.values())
