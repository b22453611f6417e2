"""Graphs in the settings: what cannot be run is refused before anything starts, and the time is split over the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.config.settings import Settings
from deploy.errors import UsageError
from deploy.state import desired
from policies.errors import PolicyError
from schemas.records import Profile

if TYPE_CHECKING:
    from pathlib import Path

DETECT: dict[str, Any] = {"model": "detector"}
CARS: dict[str, Any] = {"after": "detect", "where": "label == car"}


def settings(stages: dict[str, dict[str, Any]], **changes: Any) -> Settings:
    """Return settings with one application."""
    application = {"models": ["car-net"], "policy": "single", "slo_ms": 200, "stages": stages}
    return Settings.model_validate({"applications": {"traffic": application | changes}})


def refused(stages: dict[str, dict[str, Any]], **changes: Any) -> str:
    """Return why an application is refused."""
    with pytest.raises((UsageError, PolicyError)) as error:
        desired.applications(settings(stages, **changes))
    return str(error.value)


def test_stages_are_published_in_their_order_with_all_that_they_say() -> None:
    """One record has the whole graph; all its models are known to be asked."""
    (record,) = desired.applications(settings({"detect": DETECT, "cars": {**CARS, "crop": "box", "most": 4}}))
    assert [(stage.name, stage.model, stage.after, stage.crop, stage.most) for stage in record.stages] == [
        ("detect", "detector", "", "", 16),
        ("cars", "", "detect", "box", 4),
    ]
    assert record.asks == ("car-net", "detector")


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ({"detect": DETECT | {"after": "cars"}, "cars": CARS}, "go round in a circle: detect after cars after detect"),
        ({"detect": DETECT, "cars": {"after": "detekt"}}, "no stage 'detekt'; did you mean 'detect'?"),
        ({"detect": DETECT, "cars": {"model": "car-net", "after": "detect"}}, "one stage must name no model"),
        ({"detect": {}, "cars": CARS}, "detect, cars do not name one"),
        ({"detect": DETECT, "cars": {"after": "detect", "where": "label = car"}}, "'label = car' is no condition"),
        ({"detect": DETECT | {"where": "label == car"}, "cars": CARS}, "are about the answer of an earlier stage"),
        ({"detect": DETECT, "cars": {"after": "detect", "input": "query.box"}}, "a query has no fields"),
        ({"detect": DETECT | {"input": "cars"}, "cars": CARS}, "go round in a circle"),
        ({"detect": DETECT, "cars": CARS | {"input": ["detect.box", "scene"]}}, "there is no stage 'scene'"),
        ({"detect": DETECT, "cars": CARS | {"input": ["detect.box", "cars"]}}, "circle: cars after cars"),
        ({"detect": DETECT, "cars": CARS | {"input": ["detect", "query.box"]}}, "a query has no fields"),
        ({"detect": DETECT, "cars": CARS | {"input": "detect, "}}, "before and after each comma"),
        ({"detect": DETECT, "cars": CARS | {"input": []}}, "name the query, a stage or STAGE.FIELD"),
        ({"detect": DETECT, "cars": CARS | {"input": ["detect", "detect.box"], "crop": "box"}}, "cuts the query's"),
        ({"two words": DETECT, "cars": {}}, "its name must be a word"),
        ({"detect": DETECT | {"share": 0.5}, "cars": CARS | {"share": 0.4}}, "leave one of the shares out"),
    ],
)
def test_what_cannot_be_walked_is_refused_and_the_message_says_why(stages: dict[str, dict[str, Any]], why: str) -> None:
    """Circles, unknown names, wrong conditions and whatever else would fail at every query."""
    assert why in refused(stages)


@pytest.mark.parametrize("policy", ["exp4", "cascade", "ridge"])
def test_a_policy_that_does_not_choose_one_model_is_refused(policy: str) -> None:
    """One model is to answer."""
    assert "does not choose one model" in refused({"detect": DETECT, "cars": CARS}, policy=policy)


def test_hedging_and_parity_are_refused() -> None:
    """They ask about queries, not about rows of stages."""
    assert "`hedge` is not for applications with stages" in refused({"detect": DETECT, "cars": CARS}, hedge=0.05)


def test_without_profiles_the_time_is_split_evenly() -> None:
    """Two stages have half each; the last may take what is left."""
    (record,) = desired.applications(settings({"detect": DETECT, "cars": CARS}))
    assert [stage.share for stage in record.stages] == [0.5, 1.0]


def test_with_profiles_the_stage_that_gains_more_has_more_of_the_time() -> None:
    """Six cars a picture: their model is asked more often, and its batches are to be larger."""
    long, short = {1: 10, 2: 19, 4: 37, 8: 73}, {1: 10, 2: 11, 4: 13, 8: 17, 16: 25, 32: 41, 64: 73}
    stages = {"detect": DETECT | {"profile_ms": long}, "cars": CARS | {"items": 6, "profile_ms": short}}
    (record,) = desired.applications(settings(stages, rate=200))
    detect, cars = record.stages
    assert detect.share < 0.35
    assert cars.share == 1.0


def test_profiles_that_hosts_have_measured_are_gone_by_where_the_settings_say_nothing() -> None:
    """Of several models that may answer, the slowest counts; where one is not known, the time is split evenly."""
    known = {
        "detector": Profile("detector", "1", (1, 2, 4, 8), (10_000, 19_000, 37_000, 73_000)),
        "car-net": Profile("car-net", "1", (1, 8, 64), (9_000, 17_000, 73_000)),
        "old-net": Profile("old-net", "1", (1, 64), (10_000, 73_000)),
    }
    its = settings({"detect": DETECT, "cars": CARS | {"items": 6}}, rate=200, models=["car-net", "old-net@1"])
    measured, partly = (
        desired.applications(its, known)[0],
        desired.applications(its, {name: known[name] for name in ("detector", "car-net")})[0],
    )
    assert measured.stages[0].share < 0.35
    assert partly.stages[0].share == 0.5


def test_profiles_of_some_stages_alone_are_said_to_be_of_no_use() -> None:
    """Those of all, or of none, or where hosts have measured the others, are as they should be."""
    profile: dict[str, Any] = {"profile_ms": {1: 10, 8: 70}}
    half = settings({"detect": DETECT | profile, "cars": CARS})
    (warning,) = desired.half_known(half)
    assert "split evenly, as it is not known what batches of cars take: set `profile_ms` of every stage" in warning
    assert [*desired.half_known(half, {"car-net": Profile("car-net", "1", (1, 8), (9_000, 17_000))})] == []
    assert [*desired.half_known(settings({"detect": DETECT | profile, "cars": CARS | profile}))] == []
    assert [*desired.half_known(settings({"detect": DETECT, "cars": CARS}))] == []


def test_a_stage_has_its_time_after_all_that_it_waits_for() -> None:
    """Without profiles the longest path counts, and a short way to it may take as long."""
    scene: dict[str, Any] = {"model": "scene-net"}
    both = CARS | {"input": ["detect.embedding", "scene.mood"]}
    stages = {"fine": {"model": "fine-net", "after": "cars"}, "cars": both, "scene": scene, "detect": DETECT}
    (record,) = desired.applications(settings(stages))
    share = {stage.name: round(stage.share, 2) for stage in record.stages}
    assert share == {"fine": 1.0, "cars": 0.67, "scene": 0.33, "detect": 0.33}
    assert record.stages[1].input == "detect.embedding, scene.mood"
    late = stages | {"scene": scene | {"share": 0.8}}
    assert "cars must answer by 0.666665 of the time, and scene, which comes before it, by 0.8" in refused(late)


def test_the_command_shows_by_when_each_stage_must_answer(tmp_path: Path) -> None:
    """`skysail config check` starts nothing, and exits with 1 where the graph cannot be walked."""
    file = tmp_path / "skysail.yaml"
    stages = "{detect: {model: d}, cars: {after: NAME}}"
    text = f"applications:\n  traffic: {{models: [car-net], policy: single, slo_ms: 200, stages: {stages}}}\n"
    file.write_text(text.replace("NAME", "detect"))
    good = CliRunner().invoke(skysail, ["config", "check", "--config", str(file)])
    assert good.exit_code == 0
    assert "detect (d): within 100 ms of the query" in good.output
    assert "not among `models`: car-net, d; deploy with: skysail model add PACKAGE" in good.output
    file.write_text(text.replace("NAME", "nobody"))
    bad = CliRunner().invoke(skysail, ["config", "check", "--config", str(file)])
    assert bad.exit_code != 0


def test_the_command_shows_the_batches_and_workers_that_the_time_is_split_for(tmp_path: Path) -> None:
    """Where `profile_ms` is known of all stages; a stage without a batch in time is named."""
    file = tmp_path / "skysail.yaml"
    profile = "profile_ms: {1: 10, 8: 24}"
    stages = f"{{detect: {{model: d, {profile}}}, cars: {{after: detect, items: 3, {profile}}}}}"
    text = (
        f"applications:\n  traffic: {{models: [car-net], policy: single, slo_ms: SLO, rate: 200, stages: {stages}}}\n"
    )
    file.write_text(text.replace("SLO", "200"))
    good = CliRunner().invoke(skysail, ["config", "check", "--config", str(file)])
    assert "batches of 8 keep 0.6 workers busy" in good.output  # 200 rows a second, eight in 24 ms
    assert "batches of 8 keep 1.8 workers busy" in good.output
    file.write_text(text.replace("SLO", "20"))
    assert "no batch is in time" in CliRunner().invoke(skysail, ["config", "check", "--config", str(file)]).output
