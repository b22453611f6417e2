"""What executions take, by the last ten of each class of rows."""

from __future__ import annotations

from tests.clockworks import RESNET50
from workers.kernel.schedule.profiles import UNLOADED_US, UNPROFILED_US, Profiles


def test_the_estimate_is_the_largest_of_the_last_ten_of_a_class() -> None:
    """Three and four rows are one class; the eleventh execution drives out the first."""
    profiles = Profiles()
    assert profiles.estimate("a", 1) == UNPROFILED_US
    for took_us in (9_000, *[1_000] * 9):
        profiles.observe("a", 3, took_us)
    assert profiles.estimate("a", 4) == 9_000
    profiles.observe("a", 4, 1_000)
    assert profiles.estimate("a", 4) == 1_000


def test_a_profile_names_the_most_rows_that_were_run_of_a_class() -> None:
    """So nobody takes what five rows took for the time of eight."""
    profiles = Profiles()
    for rows, took_us in ((1, 1_000), (5, 5_000), (6, 6_000)):
        profiles.observe("a", rows, took_us)
    assert profiles.kept("a")[2:4] == ((1, 6), (1_000, 6_000))
    assert profiles.estimate("a", 8) == 6_000


def test_a_class_never_run_is_reckoned_from_its_neighbours() -> None:
    """More rows take no longer than in proportion; fewer take as long."""
    profiles = Profiles()
    profiles.observe("a", 2, 1_000)
    assert profiles.estimate("a", 1) == 1_000
    assert profiles.estimate("a", 16) == 8_000


def test_predicted_stands_beside_actual() -> None:
    """The first execution was not predicted; of the others it is told how many took longer, or less time."""
    profiles = Profiles()
    for took_us in (1_000, 1_000, 1_500, 1_200):
        profiles.observe("a", 1, took_us)
    assert profiles.errors() == (3, 1, 1, 500, 300)


def test_a_profile_survives_a_restart_and_yields_to_what_is_measured() -> None:
    """The published one comes back as it was; after a new version it is forgotten."""
    profiles = Profiles()
    profiles.restore(RESNET50)
    assert profiles.kept("resnet50") == RESNET50
    profiles.observe("resnet50", 1, 2_000)
    profiles.restore(RESNET50._replace(p99_us=(1, 2, 3, 4, 5)))
    assert profiles.estimate("resnet50", 16) == 15_670
    profiles.switched("resnet50", "2")
    assert profiles.estimate("resnet50", 16) == UNPROFILED_US
    assert profiles.load_us("resnet50") == UNLOADED_US
