"""What a watched folder makes of a model: its versions are the whole list."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from deploy.watch.aspired import Aspired, AspirePolicy, aspired, in_order
from schemas.records import Model


def version(name: str, place: str = "folder", shape: tuple[int, ...] = (1,)) -> Model:
    """Make the record of a version's package."""
    return Model("digits", name, "function", f"{place}/{name}", f"d{name}", "label", "float32", shape)


def versions(*names: str) -> list[Model]:
    """Make several."""
    return list(map(version, names))


def served(outcome: Aspired) -> Model:
    """Return the record that is published."""
    assert outcome.serving is not None
    return outcome.serving


def test_the_highest_version_of_a_new_model_serves_and_the_others_stand_by() -> None:
    """As many as are aspired; numbers count as numbers."""
    outcome = aspired(versions("9", "10", "2"), [], None, AspirePolicy(latest=2))
    assert (served(outcome).version, served(outcome).standby, outcome.before) == ("10", ("9", "10"), "")
    assert [model.version for model in outcome.news] == ["9", "10"]


def test_a_version_that_comes_takes_over_and_the_one_before_stands_by() -> None:
    """The third is unloaded: it is not in the list."""
    outcome = aspired(versions("1", "2", "3"), versions("1", "2"), version("2"), AspirePolicy(latest=2))
    assert (served(outcome).version, served(outcome).standby) == ("3", ("2", "3"))
    assert (outcome.before, [model.version for model in outcome.news]) == ("2", ["3"])


def test_a_rollback_of_an_operator_stands() -> None:
    """The highest version is known: it is not new, and does not take over again."""
    outcome = aspired(versions("1", "2"), versions("1", "2"), version("1"), AspirePolicy(latest=2))
    assert served(outcome).version == "1"


def test_a_version_that_leaves_the_list_serves_no_longer() -> None:
    """The highest that is left serves, as the whole list says."""
    outcome = aspired(versions("1"), versions("1", "2"), version("2"), AspirePolicy())
    assert (served(outcome).version, outcome.news) == ("1", ())


def test_named_versions_are_aspired_and_no_others() -> None:
    """The highest of these serves."""
    outcome = aspired(versions("1", "2", "3"), [], None, AspirePolicy(named=("1", "2")))
    assert (served(outcome).version, served(outcome).standby) == ("2", ("1", "2"))


def test_all_versions_are_aspired() -> None:
    """Where that is said."""
    assert served(aspired(versions("3", "1", "2"), [], None, AspirePolicy(latest=0))).standby == ("1", "2", "3")


def test_a_version_that_takes_other_inputs_is_refused_and_the_others_are_served() -> None:
    """Unless it is forced."""
    found = [*versions("1", "2"), version("3", shape=(2,))]
    outcome = aspired(found, versions("1"), version("1"), AspirePolicy())
    assert served(outcome).version == "2"
    assert "today's queries would be answered by default" in outcome.refused["3"]
    assert served(aspired(found, versions("1"), version("1"), AspirePolicy(force=True))).version == "3"


def test_a_version_that_is_another_package_already_is_refused_and_what_runs_goes_on() -> None:
    """So that answers distinguish the two; it may be loaded, and no other version takes over."""
    other = replace(version("2"), digest="other")
    outcome = aspired([version("1"), other], versions("1", "2"), version("2"), AspirePolicy(latest=2))
    assert "is another package already" in outcome.refused["2"]
    assert (served(outcome).version, served(outcome).digest) == ("2", "d2")
    assert served(outcome).standby == ("1", "2")
    assert outcome.news == ()


def test_two_packages_of_one_version_are_not_guessed_between() -> None:
    """The second is refused."""
    outcome = aspired([version("1", "a"), version("1", "b")], [], None, AspirePolicy())
    assert "leave one of them" in outcome.refused["1"]
    assert served(outcome).path == "a/1"


def test_a_new_model_that_can_have_no_version_is_not_published() -> None:
    """Nothing of it is."""
    outcome = aspired(versions("1"), [], None, AspirePolicy(named=("7",)))
    assert (outcome.serving, outcome.news) == (None, ())


def test_shadows_and_labels_stay_and_canaries_end_where_another_version_takes_over() -> None:
    """As with any other way to add a version."""
    serving = replace(version("1"), shares={"x": 0.0, "y": 0.3}, labels={"nightly": "1"}, partitions=2)
    found = served(aspired(versions("2"), versions("1"), serving, AspirePolicy()))
    assert (found.shares, found.labels, found.partitions) == ({"x": 0.0}, {"nightly": "1"}, 2)


NAMES = st.lists(st.sampled_from([str(number) for number in range(1, 8)]), unique=True, min_size=1)


@given(NAMES, NAMES, st.integers(0, 4))
def test_what_is_published_is_aspired_again_without_a_change(names: list[str], known: list[str], latest: int) -> None:
    """A second look at the same folder changes nothing."""
    policy, listed = AspirePolicy(latest=latest), versions(*known)
    first = aspired(versions(*names), listed, listed[-1], policy)
    published = {model.version: model for model in (*listed, *first.news)}
    again = aspired(versions(*names), [*published.values()], first.serving, policy)
    assert (again.serving, again.news) == (first.serving, ())
    assert served(first).version in [model.version for model in policy.chosen(in_order(versions(*names)))]
