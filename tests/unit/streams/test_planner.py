"""The planner: what it plans for, when, and what it says; and how members follow it."""

from __future__ import annotations

from dataclasses import replace

from policies.packing.epochs import PlanPace
from schemas import topics
from schemas.records import Application, Model, Plan, Profile, Stage
from streams.planning.planner import MOST_LOADING_US, READ_US, Planner, Pool
from streams.planning.spread import spread

S = 1_000_000
HOSTS = {"small": ["host.small", "host.small@2", "host.small@3"]}


def _model(name: str, partitions: int = 1) -> Model:
    return Model(name, "1", "linear", "", "", "label", "float32", (4,), partitions=partitions)


def _planner() -> Planner:
    """Return a planner of one pool that knows the published models A, B and C."""
    planner = Planner(
        [Pool("small", 1 << 30)], lambda name: None if name == "alone" else "small", PlanPace(headroom=1.0)
    )
    measured = {"a": (50_000, 75_000, 100_000), "b": (50_000, 90_000, 125_000), "c": (60_000, 95_000, 125_000)}
    for name, p99_us in measured.items():
        planner.model(name, _model(name))
        planner.profile(name, Profile(name, "1", (4, 8, 16), p99_us, 400_000, 1 << 20))
        # Ten milliseconds of an objective are for the way.
        planner.application(
            f"of-{name}", Application(f"of-{name}", (name, "alone"), slo_ms=210.0 if name == "a" else 260.0)
        )
    planner.model("alone", _model("alone"))
    return planner


RATES = {"a": 64.0, "b": 32.0, "c": 32.0, "alone": 1_000.0}


def _homes(plan: Plan) -> dict[str, str]:
    return {place.model: place.host for place in plan.places}


def test_the_published_example_is_planned_from_what_is_published() -> None:
    """A and B share a host with a cycle of 125 ms, C has another. The third is not needed."""
    (plan,) = _planner().plan(RATES, HOSTS, 0)
    homes = _homes(plan)
    assert homes["a"] == homes["b"] != homes["c"]
    assert homes.keys() == {"a", "b", "c"}
    assert plan.needed == 2
    assert {(place.model, place.rows, place.duty_us) for place in plan.places} >= {("a", 8, 125_000), ("b", 4, 125_000)}


def test_nothing_is_planned_without_hosts_or_within_an_epoch() -> None:
    """A plan stands while rates stay, until the epoch is over."""
    planner = _planner()
    assert planner.plan(RATES, {}, 0) == []
    (first,) = planner.plan(RATES, HOSTS, S)
    assert planner.plan({**RATES, "a": 66.0}, HOSTS, 20 * S) == []
    (second,) = planner.plan(RATES, HOSTS, 31 * S)
    assert second.why == "the epoch is over"
    assert (second.places, second.changed_us) == (first.places, first.changed_us)


def test_a_rate_that_moves_is_planned_for_before_the_epoch_is_over() -> None:
    """After ten seconds twice the rate of B no longer fits beside A; one of the two moves, and the plan says why."""
    planner = _planner()
    planner.plan(RATES, HOSTS, 0)
    risen = {**RATES, "b": 96.0}
    assert planner.plan(risen, HOSTS, 9 * S) == []
    (plan,) = planner.plan(risen, HOSTS, 10 * S)
    assert "b is asked 96/s, and 32/s were provided for" in plan.why
    assert _homes(plan)["a"] != _homes(plan)["b"]
    assert any("moves from" in reason and "busy" in reason for reason in plan.reasons)


def test_a_host_that_is_gone_is_replaced_at_once() -> None:
    """Its models go elsewhere, the others stay."""
    planner = _planner()
    (first,) = planner.plan(RATES, HOSTS, 0)
    gone = _homes(first)["c"]
    (second,) = planner.plan(RATES, {"small": [host for host in HOSTS["small"] if host != gone]}, S)
    assert gone not in _homes(second).values()
    assert _homes(second)["a"] == _homes(first)["a"]


def test_what_moves_is_loaded_before_hosts_follow_the_plan() -> None:
    """The plan says when they do: after the longest load of what moves, within bounds."""
    for load_us, loading_us in ((400_000, 400_000), (6 * S, MOST_LOADING_US)):
        planner = _planner()
        for name in ("a", "b"):
            planner.profile(name, Profile(name, "1", (4, 8, 16), (50_000, 75_000, 100_000), load_us, 1 << 20))
        (first,) = planner.plan(RATES, HOSTS, 0)
        (second,) = planner.plan({**RATES, "a": 128.0, "b": 128.0}, HOSTS, 30 * S)
        assert first.from_us == 0
        assert _homes(first)["a"] == _homes(first)["b"]
        assert _homes(second)["a"] != _homes(second)["b"]
        assert second.from_us == 30 * S + READ_US + loading_us


def test_a_plan_without_a_host_is_followed_at_once() -> None:
    """Nobody reads what the host read that is gone."""
    planner = _planner()
    (first,) = planner.plan(RATES, HOSTS, 0)
    (second,) = planner.plan(RATES, {"small": [host for host in HOSTS["small"] if host != _homes(first)["c"]]}, 30 * S)
    assert (second.changed_us, second.from_us) == (30 * S, 0)


def test_of_two_hosts_that_were_asked_for_both_have_work_although_one_came_later() -> None:
    """The first plan knows one host alone, and nobody has asked yet; both have a part before and after queries come."""
    planner = Planner([Pool("small", 1 << 30, hosts=2)], lambda _: "small", PlanPace())
    for name in "abcd":
        planner.model(name, _model(name))
    (alone,) = planner.plan({}, {"small": ["one"]}, 0)
    assert {*_homes(alone).values()} == {"one"}
    assert planner.plan({}, {"small": ["one", "two"]}, S) == []
    (idle,) = planner.plan({}, {"small": ["one", "two"]}, 10 * S)
    assert sorted(_homes(idle).values()) == ["one", "one", "two", "two"]
    (asked,) = planner.plan(dict.fromkeys("abcd", 5.0), {"small": ["one", "two"]}, 40 * S)
    assert _homes(asked) == _homes(idle)


def test_a_model_that_was_never_run_takes_what_its_package_says() -> None:
    """Two of 0.6 GiB do not share a host of 1 GiB."""
    planner = Planner([Pool("small", 1 << 30)], lambda _: "small", PlanPace())
    for name in ("a", "b"):
        planner.model(name, replace(_model(name), bytes=600 << 20))
    (plan,) = planner.plan({"a": 1.0, "b": 1.0}, HOSTS, 0)
    assert _homes(plan)["a"] != _homes(plan)["b"]


def test_a_stage_that_waits_for_two_has_its_time_after_the_later_one() -> None:
    """Of a second, 30 % are left after the scene; the way is taken off as of any other model."""
    planner = Planner([Pool("small", 1 << 30)], lambda _: "small", PlanPace(headroom=1.0))
    planner.model("a", _model("a"))
    stages = (
        Stage("detect", "detector", share=0.4),
        Stage("scene", "scene-net", share=0.7),
        Stage("cars", "", after="detect", input="detect.embedding, scene"),
    )
    planner.application("of-a", Application("of-a", ("a",), slo_ms=1_000.0, stages=stages))
    (work,) = planner.works(Pool("small", 1 << 30), {})
    planner.application("of-a", Application("of-a", ("a",), slo_ms=300.0))
    (alone,) = planner.works(Pool("small", 1 << 30), {})
    assert round(work.objective_us) == round(alone.objective_us)


def test_a_restart_goes_on_with_what_was_planned() -> None:
    """The last plan comes back from its topic, and nothing moves."""
    (first,) = _planner().plan(RATES, HOSTS, 0)
    restarted = _planner()
    restarted.past(first)
    assert restarted.plan(RATES, HOSTS, 5 * S) == []
    (second,) = restarted.plan(RATES, HOSTS, 31 * S)
    assert second.places == first.places
    assert second.changed_us == first.changed_us


def test_a_removed_model_leaves_the_plan() -> None:
    """It is planned anew without it."""
    planner = _planner()
    planner.plan(RATES, HOSTS, 0)
    planner.model("c", None)
    (plan,) = planner.plan(RATES, HOSTS, S)
    assert _homes(plan).keys() == {"a", "b"}


def test_members_read_what_is_planned_and_share_the_rest_evenly() -> None:
    """A planned host that is not there, and topics that no plan names, leave nothing unread."""
    (plan,) = _planner().plan(RATES, HOSTS, 0)
    partitions = {topics.model_queries(name): [0] for name in ("a", "b", "c", "new", "newer")}
    members = {"m-1": _homes(plan)["a"], "m-2": "host.small@9"}
    found = spread(partitions, members, plan)
    assert {topics.model_queries("a"), topics.model_queries("b")} <= found["m-1"].keys()
    assert {topics.model_queries("c"), topics.model_queries("new")} <= found["m-2"].keys()
    assert sorted(topic for its in found.values() for topic in its) == sorted(partitions)


def test_without_a_plan_partitions_are_spread_evenly() -> None:
    """Ten partitions for three members: four, three, three."""
    found = spread({"models.a.queries": range(10)}, {"x": "1", "y": "2", "z": "3"}, None)
    assert sorted(len(numbers) for its in found.values() for numbers in its.values()) == [3, 3, 4]
    assert spread({"models.a.queries": [0]}, {}, None) == {}
