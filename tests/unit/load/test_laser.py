"""Scenario `laser`: made-up clicks, what is compared of them, two speeds, the slow server, and the page."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from load.errors import MissingDataError
from load.research.harness.slow_server import slowed
from load.research.models import clicks
from load.research.recommend import laser, laser_tables, two_speeds
from load.results.results import Result
from schemas.records import ModelOutput, Outcome, Prediction, Status, Tensor


def some_replay(count: int = 400) -> laser.ClickReplay:
    """Ask so often about ten users and five pages."""
    return laser.ClickReplay(clicks.impressions(count, 10, 5, seed=1), 1, lambda: None)


def predicted(query_id: str, score: float, *, is_imputed: bool = False) -> Prediction:
    """Make an answer with these log-odds after 3 ms."""
    output = ModelOutput("clicks", "1", Outcome.OK, 0, Tensor.of(np.array([0.0, score])))
    made = Prediction(query_id, "app", None, None, Status.COMPLETE, None, 0, 1.0, (output,), 10, 10, 200_010, 3_010)
    return made._replace(imputed=("lately",) if is_imputed else ())


def test_the_area_under_the_curve_is_that_of_all_pairs() -> None:
    """Equal scores count half."""
    random = np.random.default_rng(3)
    scores, clicked = random.integers(0, 8, 200).astype(float), random.random(200) < 0.3
    pairs = scores[clicked][:, None] - scores[~clicked][None, :]
    assert clicks.area(scores, clicked) == pytest.approx(float(((pairs > 0) + 0.5 * (pairs == 0)).mean()))
    assert clicks.area(scores, np.zeros(200, dtype=bool)) == 0.5


def test_applications_are_asked_about_the_same_and_the_source_is_closed_once() -> None:
    """Who knows sends all features; the others send those of the page, and an empty row."""
    replay, closed = some_replay(), []
    replay.close = lambda: closed.append("closed")
    asked = [replay(index, 10 + index).query for index in range(3 * 400)]
    assert closed == ["closed"]
    assert {query.application for query in asked} == {*laser.APPLICATIONS}
    knows, waits, _ = asked[:3]
    assert isinstance(knows.input, Tensor)
    assert isinstance(waits.input, Tensor)
    assert (knows.input.shape, waits.input.shape) == ((8,), (0,))
    assert knows.input.numpy().tolist()[clicks.USER :] == list(waits.features)


def test_what_imputation_costs_is_the_difference_of_the_areas() -> None:
    """Who knows all has the best score; a score that says nothing loses all but a half."""
    replay = some_replay()
    asked = [replay(index, 10 + index).query for index in range(3 * 400)]
    truth = replay.shown.log_odds
    replay.judge(
        [
            predicted(
                query.query_id,
                float(truth[index // 3]) if query.application == laser.KNOWS else 0.0,
                is_imputed=query.application == laser.WAITS,
            )
            for index, query in enumerate(asked)
        ]
    )
    found = laser.answered(replay)
    assert found["in_time"] == 1.0
    assert found["knows_auc"] > found["means_auc"] > 0.5
    assert found["waits_auc_lost"] == pytest.approx(found["knows_auc"] - 0.5)
    assert (found["waits_imputed"], found["hurries_imputed"]) == (1.0, 0.0)
    assert found["waits_p50_ms"] == pytest.approx(3.0)
    assert laser.waited(replay)[0]["share"] == 0.0
    assert laser.waited(replay)[-1]["share"] == 1.0


def test_two_speeds_earn_more_than_either_where_items_have_changed() -> None:
    """In a market of which the truth is known, and less than whoever knows it."""
    cold, warm, both = (float(two_speeds.earned(lane, 900, seed=2)[300:].mean()) for lane in two_speeds.LANES)
    assert both > max(cold, warm)
    assert both < two_speeds.best(900, seed=2)


def test_open_bandit_is_judged_before_it_teaches() -> None:
    """What the log's own policy has earned lies in its interval; every speed has an estimate."""
    try:
        found = two_speeds.open_bandit("men", 300)
    except MissingDataError as missing:
        pytest.skip(str(missing))
    assert found.keys() == {"logged", *two_speeds.LANES}
    for one in (one for estimates in found.values() for one in estimates.values()):
        assert one.low <= one.value <= one.high
    assert found["logged"].keys() == {"ipw", "snipw"}


async def test_a_slow_server_passes_answers_on_in_time_and_closes() -> None:
    """Each waits for what was drawn; after the end nobody is let in."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.read(100)).upper())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    behind = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = behind.sockets[0].getsockname()[1]
    with slowed(f"redis://:secret@127.0.0.1:{port}/0", lambda: 0.0) as server:
        assert server.url.startswith("redis://:secret@127.0.0.1:")
        place = int(server.url.rpartition(":")[2].partition("/")[0])
        reader, writer = await asyncio.open_connection("127.0.0.1", place)
        writer.write(b"ask")
        assert await reader.read(100) == b"ASK"
        assert server.delays_s == [0.0]
        writer.close()
        await writer.wait_closed()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", place)
    behind.close()
    await behind.wait_closed()


def test_the_page_has_the_figures_and_says_when_to_use_it_first() -> None:
    """With a picture of three panels."""
    figures = {figure.name: 1.0 for figure in laser.FIGURES if "*" not in figure.name}
    names = [
        f"obd_{campaign}_{lane}_snipw" for campaign in two_speeds.CAMPAIGNS for lane in ("logged", *two_speeds.LANES)
    ]
    figures |= {name + end: value for name in names for end, value in (("", 0.005), ("_low", 0.001), ("_high", 0.01))}
    parameters = {"form": "short", "queries": 1_200, "rate": 90.0, "seed": 1, "open_bandit": "there"}
    result = Result("laser", figures, parameters, series={"waits": [{"ms": 0.0, "share": 0.5}]})
    text = laser_tables.SCENARIO.written(result, {"processor": "a processor"})  # type: ignore[typeddict-item]  # all that it uses
    assert text.startswith("## Figures")
    assert "**This is the short form.**" in text
    assert max(map(len, text.splitlines())) < 250
    assert laser_tables.plots(result)["features.png"].startswith(b"\x89PNG")
