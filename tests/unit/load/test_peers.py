"""The comparison with peers: who is asked at which rates, how answers are judged, what is made of it."""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from load.errors import PeerFailedError, PeerUnavailableError
from load.harness.system import Stage
from load.research.peers import ceiling, environments, grid, loadgen, peers_tables
from load.research.peers import scenario as peers
from load.research.peers.answer_audit import Ledger, Tally, p999_ms
from load.research.peers.client import Part
from load.research.peers.contenders import CONTENDERS, DIRECT, SHORTEST, WHOLE, WHOLE_ONE, Contender
from load.research.peers.measurement import Plan, Seen
from load.research.peers.summary import (
    Summary,
    behind,
    best,
    figures,
    impossible_rates,
    judged_figures,
    no_default_rate,
    spread,
)
from load.research.peers.wire_formats import V2, Answer, Avro, Echo
from load.results.results import Result, joined
from schemas.codec import Codec
from schemas.records import ModelOutput, Outcome, Prediction, Query, Status, Tensor

FLOOR, TWO = (next(each for each in CONTENDERS if each.name == f"floor_confluent{end}") for end in ("", "_two"))
HAND = next(contender for contender in CONTENDERS if contender.kind == "hand")
PEER = next(contender for contender in CONTENDERS if contender.kind == "peer")
SLOW = next(contender for contender in CONTENDERS if contender.name == "mlserver")
ENVIRONMENT = {"cores_usable": 2, "processor": "some processor", "broker": "Apache Kafka", "python": "3.11"}


class Plain:
    """A wire_format whose answers are `id model label`; without a model, a default."""

    headers = ()

    def query(self, query: Query) -> bytes:
        """Return the id."""
        return query.query_id.encode()

    def answer(self, value: bytes) -> Answer:
        """Read the words."""
        query_id, *answer = value.decode().split()
        return Answer(query_id, ((answer[0], int(answer[1])),) if answer else ())


@pytest.fixture
def ledger() -> Ledger:
    """Queries `a` and `b` about rows 0 and 1, meant for 1,000 and 2,000 us; the model says 7 and 8 about them."""
    ledger = Ledger(Plain(), {"model": [7, 8]})
    ledger.asked("a", 0, 1_000)
    ledger.asked("b", 1, 2_000)
    return ledger


def test_right_answers_count_from_the_intended_send_time(ledger: Ledger) -> None:
    """Latency is arrival less the time when the query was meant to be sent."""
    tally = ledger.judge([(11_000, b"a model 7"), (92_000, b"b model 8")])
    assert (tally.answered, tally.missing, tally.latencies_us) == (2, 0, [10_000, 90_000])
    assert [tally.goodput_per_s(objective_ms, 2.0) for objective_ms in (20, 50, 100)] == [0.5, 0.5, 1.0]


def test_each_fault_is_counted_by_id(ledger: Ledger) -> None:
    """A second answer is a duplicate, another label is wrong, one without a model is a default."""
    tally = ledger.judge([(2_000, b"a model 8"), (3_000, b"a model 7"), (4_000, b"b"), (5_000, b"stranger model 7")])
    assert (tally.answered, tally.duplicates, tally.wrong, tally.defaults) == (2, 1, 1, 1)
    assert tally.right_us == []


def test_what_has_no_answer_is_missing(ledger: Ledger) -> None:
    """Nothing came: nothing has a latency."""
    tally = ledger.judge([])
    assert (tally.missing, tally.latency_ms(), tally.goodput_per_s(100, 1.0)) == (2, {}, 0.0)


def test_a_default_takes_for_ever(ledger: Ledger) -> None:
    """Whoever gives up at the deadline is not quick: a percentile among defaults is none."""
    tally = ledger.judge([(11_000, b"a model 7"), (12_000, b"b")])
    assert tally.latency_ms() == {"p50": 10.0, "p95": math.inf, "p99": math.inf}


def test_any_of_several_answers_may_be_right() -> None:
    """One that goes without a slow model says what the others say."""
    ledger = Ledger(Plain(), {"model": [frozenset({7, 8}), 9]})
    ledger.asked("a", 0, 0)
    ledger.asked("b", 0, 0)
    ledger.asked("c", 1, 0)
    assert ledger.judge([(1, b"a model 7"), (1, b"b model 6"), (1, b"c model 9")]).wrong == 1


def test_p999_is_of_ten_thousand_answers_or_more() -> None:
    """Ten of them are beyond it; of fewer nobody is told one."""
    few = [1_000.0] * 9_999
    assert p999_ms(few) is None
    assert p999_ms([*few, 5_000.0]) == 1.0
    assert p999_ms([*few, *[5_000.0] * 20]) == 5.0


def test_the_highest_rate_without_a_default_has_none_below_it_either() -> None:
    """One default in one round is enough; a higher rate that went well by luck does not count."""
    row: dict[str, list[float]] = {"at_500_defaults": [0, 0, 0], "at_3000_defaults": [0, 0, 0]}
    assert no_default_rate(row) == 3_000
    assert no_default_rate({**row, "at_10000_defaults": [0, 0, 0]}) == 10_000
    assert no_default_rate({**row, "at_3000_defaults": [0.5, 0, 1], "at_10000_defaults": [0, 0, 0]}) == 500
    assert no_default_rate({"at_500_defaults": [1, 1, 1]}) == no_default_rate({}) == 0


def test_avro_says_what_each_model_said() -> None:
    """Only outputs that are there speak; a default says nothing."""
    output = ModelOutput("logistic", "1", Outcome.OK, 7)
    late = ModelOutput("ridge", "1", Outcome.INVALID, None)
    given = Prediction("a", "digits", None, None, Status.COMPLETE, None, 7, 1.0, (output, late), 1, 2, 3, 4)
    default = given._replace(status=Status.DEFAULT)
    said = [Avro().answer(Codec().encode(prediction)) for prediction in (given, default)]
    assert said == [Answer("a", (("logistic", 7),)), Answer("a", ())]


def test_without_a_system_the_query_itself_arrives() -> None:
    """The echo of a query answers it, by a model that nobody judges."""
    query = Query("a", "digits", Tensor.of(np.zeros(2, np.float32)), None, 1)
    assert Echo().answer(Echo().query(query)) == Answer("a", (("", None),))


def test_v2_asks_one_row_in_json() -> None:
    """Shape, type and numbers of a row; the answer's first number is the label."""
    query = Query("a", "digits", Tensor.of(np.array([1, 2], np.float32)), None, 1)
    wire_format = V2("logistic")
    tensor = {"name": "rows", "shape": [1, 2], "datatype": "FP32", "data": [1.0, 2.0]}
    assert json.loads(wire_format.query(query)) == {"id": "a", "inputs": [tensor]}
    assert wire_format.answer(b'{"id": "a", "outputs": [{"data": [7]}]}') == Answer("a", (("logistic", 7),))


def test_rates_beyond_capacity_or_ceiling_are_left_out() -> None:
    """Nobody is sent nearly as much as it can do, nor more than the harness is known to do."""
    plan = Plan(10.0, 3.0, 10.0, (500.0, 3_000.0, 10_000.0), (500.0, 10_000.0), ceiling_per_s=4_000)
    assert plan.at(SHORTEST, 400) == {}
    assert plan.at(SHORTEST, 3_300) == {"at_500": 500.0}
    assert plan.at(SHORTEST, 90_000) == {"at_500": 500.0, "at_3000": 3_000.0}
    assert replace(plan, ceiling_per_s=20_000).at(PEER, 90_000) == {"at_500": 500.0, "at_10000": 10_000.0}
    assert plan.at(TWO, 90_000) == {}


def test_the_last_rate_that_was_tried_is_not_called_a_limit() -> None:
    """Only where the harness was seen to fail beyond it is it one."""
    clean, full = ({"rate_per_s": rate, "saturated": rate > 1_000} for rate in (1_000, 2_000))
    assert "the highest rate that it tried" in peers._limit(1_000, [clean])
    assert "saturated there" in peers._limit(1_000, [clean, full])
    assert "say nothing" in peers._limit(500, [full])


def test_the_ladder_ends_below_the_first_saturated_rate() -> None:
    """The ceiling is the highest rate that was clean at most of its looks; half of the lowest where none was."""
    looks = ((500, False), (1_000, True), (1_000, False), (1_000, False), (2_000, True), (2_000, False), (2_000, True))
    rows = [{"rate_per_s": rate, "saturated": bad} for rate, bad in looks]
    assert ceiling.ceiling_per_s(rows) == 1_000
    assert ceiling.ceiling_per_s([{"rate_per_s": 500, "saturated": True}]) == 250


class _Stalling:
    """A client without a system: p99 of its looks at each rate, in turn (ms)."""

    def __init__(self, p99_ms: dict[float, list[float]]) -> None:
        self._p99_ms = p99_ms

    def stretch(self, rate: float, _seconds: float, _limit_s: float) -> SimpleNamespace:
        p99_ms = self._p99_ms[rate].pop(0) if rate in self._p99_ms else 0.0
        latency = {"p50": 1.0, "p99": p99_ms}
        return SimpleNamespace(tally=SimpleNamespace(latency_ms=lambda: latency, missing=0), late_us=50_000)


def test_two_looks_that_agree_decide_about_a_rate() -> None:
    """One stall is not the harness' doing; two are taken for it, and nothing faster is looked at."""
    client = _Stalling({500: [3, 4], 1_000: [90, 5, 6], 2_000: [5, 90, 40], 4_000: []})
    rows = ceiling.looks(client, (500, 1_000, 2_000, 4_000))  # type: ignore[arg-type] # it sends nothing
    assert [row["rate_per_s"] for row in rows] == [500] * 2 + [1_000] * 3 + [2_000] * 3
    assert ceiling.ceiling_per_s(rows) == 1_000


def test_each_measure_has_its_own_best_setting() -> None:
    """Quickest at a low rate, fastest through a backlog, most in time; what does not work is none of them."""
    tried = (("quick", 900, 1.0, 90.0), ("fast", 1_000, 9.0, 50.0), ("sure", 800, 2.0, 99.0), ("broken", *[None] * 3))
    names = ("setting", "rate_per_s", "p50_ms", "in_time_percent")
    rows = [{**dict(zip(names, row, strict=True)), "index": index} for index, row in enumerate(tried)]
    assert grid.choose(rows) == (0, 1, 2)  # type: ignore[arg-type]  # rows as they are found


def test_known_settings_are_one_for_latency_and_one_for_rates() -> None:
    """A linger of 5 ms stands in no latency; the floor has it for its rate alone."""
    assert FLOOR.known.latency["linger_ms"] == 0
    assert FLOOR.known.rate["linger_ms"] == 5
    assert (TWO.processes, TWO.known.rate) == (2, FLOOR.known.rate)


def test_floors_have_the_codec_and_what_is_written_by_hand_has_not() -> None:
    """Their names say so."""
    kinds = {each.kind: {bool(setting.get("codec")) for setting in each.grid} for each in CONTENDERS}
    assert (kinds["floor"], kinds["hand"]) == ({True}, {False})
    assert all("fastavro, scikit-learn" in each.label for each in CONTENDERS if each.kind == "hand")


def test_the_highest_rate_that_holds_is_found_by_halves() -> None:
    """None that holds: the lowest is where the judge is asked."""
    asked: list[int] = []

    def does(number: int) -> bool:
        asked.append(number)
        return number <= 7

    assert loadgen.highest(does, 13) == 7
    assert len(asked) <= 4
    assert loadgen.highest(lambda _: False, 13) == 0
    assert loadgen.highest(lambda _: True, 13) == 12


@pytest.mark.parametrize(
    ("begins", "holds_to", "clean_to", "asked"),
    [
        (5_700, 11_300, 11_300, [5_700, 8_000, 11_300, 16_000]),
        (16_000, 8_000, 8_000, [16_000, 11_300, 8_000]),
        (16_000, 16_000, 8_000, [16_000, 11_300, 8_000, 22_600]),
        (8_000, 16_000, 8_000, [8_000, 11_300, 16_000, 22_600]),
        (16_000, 22_600, 500, [16_000, 11_300, 8_000, 5_700, 4_000, 2_800]),
        (1_000, 1_400, 500, [1_000, 1_400, 2_000]),
        (22_600, 2_800, 2_800, [22_600, 16_000, 11_300, 8_000, 5_700, 4_000]),
        (1_000, 500, 500, [1_000]),
        (64_000, 64_000, 64_000, [64_000]),
    ],
)
def test_the_judge_is_asked_until_it_has_answered_on_both_sides_of_both_readings(
    begins: int, holds_to: int, clean_to: int, asked: list[int]
) -> None:
    """Six minutes at most, and no rate twice; the strict reading comes first."""
    tried: list[dict[str, float | bool]] = []
    index: int | None = loadgen.RATES.index(begins)
    while index is not None:
        rate = loadgen.RATES[index]
        tried.append({"rate_per_s": rate, "valid": rate <= holds_to, "defaults": rate > clean_to})
        index = loadgen.next_rate(tried)
    assert [said["rate_per_s"] for said in tried] == asked


def test_a_run_of_the_judge_is_read_in_two_ways() -> None:
    """As peers are judged, one answer in a hundred may have been a default or late; strictly none was a default."""
    said = [(4_000, False, 9), (2_800, True, 3), (2_000, True, 0)]
    tried = [{"rate_per_s": rate, "valid": valid, "defaults": defaults} for rate, valid, defaults in said]
    assert loadgen.verdict(tried) == (2_800, 2_000)
    assert loadgen.verdict(tried[:2]) == (2_800, 0)
    assert loadgen.verdict(()) == (0, 0)


def test_a_rate_holds_with_99_percent_in_time_and_nothing_missing() -> None:
    """As the judge sees it: a default is not in time."""
    good = Tally(asked=100, answered=100, latencies_us=[1.0] * 100, right_us=[1] * 99 + [60_000])
    assert loadgen.holds(good)
    assert not loadgen.holds(replace(good, right_us=[1] * 98 + [60_000] * 2))
    assert not loadgen.holds(replace(good, answered=99))


def test_settings_have_words() -> None:
    """An empty setting is called by its name."""
    assert (grid.words({"rows": 1, "wait_s": 0.5}), grid.words({})) == ("rows 1, wait_s 0.5", "defaults")


def seen(rate_per_s: float, cpu_us: float, p99_ms: float = 9.0) -> Seen:
    """Return a visit with one answer of each latency that a page shows."""
    found = Seen(capacity_per_s=rate_per_s, latencies_us={"at_500": [1_000] * 6_000})
    found.figures |= {"drained_per_s": rate_per_s, "cpu_us_per_query": cpu_us, "peak_mib": 100.0}
    found.figures |= {"at_500_p50_ms": 2.0, "at_500_p95_ms": 4.0, "at_500_p99_ms": p99_ms}
    found.figures["all_cores"] = rate_per_s * cpu_us / 1e6
    return found


@pytest.fixture
def summary() -> Summary:
    """Two rounds of everybody; a peer is ahead of the whole loop, the floor of both lanes."""
    summary = Summary((FLOOR, HAND, SHORTEST, WHOLE, PEER))
    rates = (40_000, 20_000, 18_000, 8_000, 12_000)
    for contender, rate in zip(summary.contenders, rates, strict=True):
        for factor in (1.0, 1.2):
            summary.add(contender, seen(rate * factor, 1e6 / rate))
    return summary


def test_rows_are_median_least_and_most(summary: Summary) -> None:
    """Counts are added up over the rounds, figures are not."""
    row = summary.rows()[1]
    assert row["drained_per_s"] == [22_000, 20_000, 24_000]
    assert (row["rounds"], row["lost"], row["capacity_per_s"]) == (2, 0, 20_000)


def test_p999_is_taken_over_all_rounds(summary: Summary) -> None:
    """6,000 answers are too few for it, 12,000 are enough."""
    assert summary.rows()[0]["at_500_p999_ms"] == [1.0, 1.0, 1.0]
    short = Summary((FLOOR,))
    short.add(FLOOR, seen(1.0, 1.0))
    assert "at_500_p999_ms" not in short.rows()[0]


def test_ratios_are_to_the_best_of_each_kind(summary: Summary) -> None:
    """Floors, loops by hand and peers each have a best one."""
    found = figures(summary.rows(), 2)
    assert found["skysail_shortest_to_floor_ratio_drained"] == pytest.approx(0.45)
    assert found["skysail_shortest_to_hand_ratio_drained"] == pytest.approx(0.9)
    assert found["skysail_shortest_to_peer_ratio_drained"] == pytest.approx(1.5)
    assert found["skysail_whole_to_hand_ratio_cpu"] == pytest.approx(2.5)
    assert best(summary.rows(), "peer", "at_500_p50_ms") == 2.0


def test_a_percentile_among_defaults_is_no_figure_and_the_page_says_so() -> None:
    """A run that compares with it finds it gone."""
    summary = Summary((SHORTEST,))
    summary.add(SHORTEST, seen(9_000, 10.0, p99_ms=math.inf))
    rows = summary.rows()
    assert "skysail_shortest_at_500_p99_ms" not in figures(rows, 2)
    text = peers_tables.SCENARIO.written(Result("peers", {}, {}, {"systems": rows}), ENVIRONMENT)
    assert f"| {SHORTEST.label} | 2 | 4 | default |" in text


def test_a_rate_that_needs_more_cores_than_there_are_is_counted(summary: Summary) -> None:
    """What all of them measured here cost is one core; on half of one none of it would be true."""
    rows = summary.rows()
    assert impossible_rates(rows, 2) == 0
    rows[0]["all_cores"] = [2.01, 1.9, 2.2]
    assert impossible_rates(rows, 2) == 1


def test_the_judge_asks_those_that_learn_and_the_floor_and_peer_that_keep_most(summary: Summary) -> None:
    """A minute each: not everybody."""
    rows = summary.rows()
    slower = {**rows[-1], "name": "slower", "at_10000_within_50ms_percent": [99.0, 99.0, 99.0]}
    assert peers.to_judge([*rows, slower]) == {FLOOR.name, WHOLE_ONE.name, "slower"}
    assert peers.to_judge(summary.rows()) == {FLOOR.name, WHOLE_ONE.name, PEER.name}


def said(contender: Contender, in_time: float, clean: float) -> dict[str, object]:
    """Return what the judge said about a contender that was asked at two rates."""
    tried = [{"rate_per_s": rate, "valid": True, "p99_ms": 40.0, "defaults": rate > clean} for rate in (clean, in_time)]
    return {"system": contender.name, "label": contender.label, "kind": contender.kind, "tried": tried}


def test_the_page_of_both_parts_has_both_readings_beside_each_other(summary: Summary) -> None:
    """The judge runs by itself; its ratios, its table and who is ahead stand with the rest."""
    rows, judged = summary.rows(), [said(WHOLE_ONE, 16_000, 8_000), said(PEER, 32_000, 32_000), said(FLOOR, 0.0, 0.0)]
    machine: Any = ENVIRONMENT
    parts = [
        Result("peers", figures(rows, 2), {"form": "full"}, {"systems": rows, "behind": behind(rows)}),
        Result("peers", judged_figures(judged), {"form": "full"}, {"judged": judged}),
    ]
    [(result, _)] = joined([(part, machine) for part in parts])
    assert result.figures["skysail_whole_one_to_peer_ratio_judged"] == 0.5
    assert result.figures["skysail_whole_one_to_peer_ratio_judged_no_default"] == 0.25
    assert set(judged_figures(judged)).isdisjoint(figures(rows, 2))
    text = peers_tables.SCENARIO.written(result, machine)
    first = " ".join(text.split("\n\n")[1].split())
    assert f"holds 16,000 queries a second: 0.50 times what the best peer holds ({PEER.label})" in first
    assert f"it holds 8,000, which is 0.25 times what the best peer holds ({PEER.label})" in first
    assert f"| {WHOLE_ONE.label} | 16,000 | 8,000 | 8,000: valid (40.0), 16,000: valid (40.0, 1 defaults) |" in text
    assert f"| {WHOLE_ONE.label} | judged_no_default_per_s | 8,000 | 32,000 | {PEER.label} |  |" in text


@pytest.mark.parametrize(
    ("only", "names"), [((), [WHOLE_ONE.name, "floor_aiokafka", "kafka_streams"]), (("quix", "bytewax"),) * 2]
)
async def test_the_judge_asks_those_that_are_named_and_what_it_can_do_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, only: tuple[str, ...], names: list[str]
) -> None:
    """It is a part of its own, which measures nothing else; one that fails costs the others nothing."""
    judged: list[str] = []

    @asynccontextmanager
    async def refused(contender: Contender, *_: object) -> AsyncIterator[None]:
        judged.append(contender.name)
        raise PeerFailedError(f"{contender.label} did not start")
        yield

    async def search(_comparison: object) -> None:
        pass

    monkeypatch.setattr(environments, "ensure", lambda *_: None)
    monkeypatch.setattr(peers, "_ground", lambda _: None)
    monkeypatch.setattr(peers._Comparison, "search", search)
    monkeypatch.setattr(loadgen, "asked", refused)
    stage = Stage("", None, tmp_path, only=(peers.JUDGE, *only))  # type: ignore[arg-type]  # nothing is launched
    result = await peers.run(stage)
    assert judged[0] == DIRECT.name
    assert set(judged[1:]) == set(names)
    assert result.parameters == peers._parameters(replace(stage, only=()))
    assert list(result.series) == ["judged"]
    text = peers_tables.SCENARIO.written(result, ENVIRONMENT)
    assert all(f"| {row['label']} | 0 | 0 | {row['label']} did not start |" in text for row in result.series["judged"])


async def test_latencies_are_of_five_rounds_in_turn_and_backlogs_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody is in the first one; who is sent nothing at a rate has no visit without a backlog."""
    visited: list[list[tuple[str, bool]]] = []

    async def visit(contender: Contender, _ground: object, _chosen: object, plan: Plan, _capacity: float) -> Seen:
        visited[-1].append((contender.name, plan.drains))
        found = seen(contender.backlog / 3, 10.0)
        if not plan.drains:
            del found.figures["drained_per_s"]
        return found

    monkeypatch.setattr(peers, "visit", visit)
    everybody = [FLOOR, TWO, HAND, SHORTEST, WHOLE, WHOLE_ONE, PEER, SLOW]
    comparison, summary = peers._Comparison(None, peers._PLAN, everybody), Summary(CONTENDERS)  # type: ignore[arg-type]
    for index in range(peers._ROUNDS):
        visited.append([])
        await comparison.round(summary, index, 1)
    rounds = {
        each.name: [drains for turn in visited for name, drains in turn if name == each.name] for each in everybody
    }
    assert rounds == {
        **dict.fromkeys((FLOOR.name, SHORTEST.name, WHOLE.name, WHOLE_ONE.name, PEER.name), [True] * 2 + [False] * 3),
        **dict.fromkeys((TWO.name, HAND.name), [True] * 2),
        SLOW.name: [True],
    }
    assert all(len({name for name, _ in turn}) == len(turn) for turn in visited)
    assert len({tuple(turn) for turn in visited[2:]}) == 3
    latencies = [row["at_500_p99_ms"] for row in summary.visits() if row["name"] == WHOLE_ONE.name]
    assert len(latencies) == 5


def test_whoever_is_ahead_is_named(summary: Summary) -> None:
    """For each lane and figure the best of the others, and who else is ahead; equals are not."""
    rows = [row for row in behind(summary.rows()) if row["figure"] == "drained_per_s"]
    assert [(row["lane"], row["by"], row["also"]) for row in rows] == [
        (SHORTEST.label, FLOOR.label, [HAND.name]),
        (WHOLE.label, FLOOR.label, [HAND.name, PEER.name]),
    ]


def test_the_page_shows_everybody_and_who_is_left_out(summary: Summary) -> None:
    """A failure stands with its reason; results survive JSON."""
    rows = summary.rows()
    tried = {"tried": [{"rate_per_s": 5.0, "valid": True, "p99_ms": 1.0, "defaults": 2}]}
    failed = "LoadGen ended with 1"
    judged = [{"system": "x", "label": "x", "kind": "peer", **tried}]
    judged.append({"system": "z", "label": "z", "kind": "floor", "tried": [], "failed": failed})
    given = (("defaults", 5.0, "rate"), ("other", None, ""))
    series = {
        "systems": rows,
        "behind": behind(rows),
        "judged": judged,
        "grid": [
            {
                "label": "x",
                "setting": setting,
                "rate_per_s": rate,
                "p50_ms": None,
                "in_time_percent": rate,
                "chosen": chosen,
            }
            for setting, rate, chosen in given
        ],
        "direct": [{"rate_per_s": 500, "p50_ms": 1.0, "p99_ms": 2.0, "late_ms": 0.1, "saturated": False}],
        "left_out": [{"system": "y", "label": "Y", "why": "cannot be installed: no wheel"}],
    }
    result = Result("peers", figures(rows, 2), {"form": "short"}, json.loads(json.dumps(series)), ("a note",))
    text = peers_tables.SCENARIO.written(result, ENVIRONMENT)
    assert f"| {FLOOR.label} | at least once | 1 | 44,000 (40,000 to 48,000) |" in text
    assert "| Y | cannot be installed: no wheel |" in text
    assert "| x | defaults | 5 |  | 5 | rate |" in text
    assert "| x | other | does not work |  |  |  |" in text
    assert "| x | 5 | 0 | 5: valid (1.0, 2 defaults) |" in text
    assert "| z | 0 | 0 | LoadGen ended with 1 |" in text
    assert "\n- a note\n" in text
    assert "- Target missed: skysail_shortest_to_floor_ratio_drained is 0.45, and should be >= 0.6.\n" in text


def test_the_page_begins_with_the_ratio_to_the_best_floor(summary: Summary) -> None:
    """In sentences that the run fills; what it has not measured is said to be so."""
    rows = summary.rows()
    text = peers_tables.SCENARIO.written(Result("peers", figures(rows, 2), {}, {"systems": rows}), ENVIRONMENT)
    first, second = text.split("\n\n")[1].split("\n- ")[:2]
    assert f"best floor ({FLOOR.label})" in first
    assert "does (not measured) of the queries" in first
    assert second.startswith("The shortest path, one model without feedback, does 0.45 of that floor's rate")
    assert "{" not in text


def test_the_page_says_how_to_run_it() -> None:
    """The short and the full form stand on it."""
    text = peers_tables.SCENARIO.written(Result("peers", {}, {}, {"systems": []}), ENVIRONMENT)
    assert "skysail load run peers --short" in text


def test_the_short_form_names_contenders_that_exist() -> None:
    """Floors in one and two processes, all lanes, a peer."""
    assert set(peers.SHORT) <= set(peers.NAMES)
    assert {FLOOR.name, TWO.name, SHORTEST.name, WHOLE.name, WHOLE_ONE.name} < set(peers.SHORT)


def test_missing_answers_are_lost_once_nothing_more_comes() -> None:
    """While answers are still coming they are merely not there in time: unanswered."""
    found = Seen()
    part = peers_part(settled=True)
    found.add("at_500", part)
    found.drained(peers_part(settled=False))
    assert (found.counts["lost"], found.counts["unanswered"]) == (1, 1)


def peers_part(*, settled: bool) -> Part:
    """Return a part with one answer of two."""
    return Part(Tally(asked=2, answered=1, latencies_us=[1], right_us=[1]), 1.0, 1.0, 0, settled)


def test_what_learns_has_its_rate_when_all_is_learnt() -> None:
    """The rate of its answers stands beside it; cores follow from the former, and from broker and Redis too."""
    found, tally = Seen(), Tally(asked=2, answered=2, latencies_us=[1, 1])
    found.drained(Part(tally, 50_000.0, 6e-5, 0, settled=True, services_cpu_s=4e-5, learnt_per_s=20_000.0))
    assert (found.figures["drained_per_s"], found.figures["answered_per_s"]) == (20_000, 50_000)
    assert (found.figures["own_cores"], found.figures["all_cores"]) == pytest.approx((0.6, 1.0))


def test_spread_of_one_value_is_that_value() -> None:
    """A single round has no range."""
    assert spread([3.0]) == [3.0, 3.0, 3.0]


def test_without_maven_the_peer_on_the_jvm_is_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The page says why, and everybody else is measured."""
    monkeypatch.setenv("SKYSAIL_CACHE", str(tmp_path))
    monkeypatch.setattr(environments.shutil, "which", lambda program: None if program == "mvn" else f"/bin/{program}")
    with pytest.raises(PeerUnavailableError, match="there is no mvn here"):
        environments.ensure("kafka_streams", print)


def test_every_environment_has_a_file_that_pins_it() -> None:
    """Of pip, or of Maven; those of clients of the gateway are named by the tests that use them."""
    pinned = {path.stem for path in environments.REQUIREMENTS.iterdir()}
    texts = [path.read_text() for path in (Path(__file__).parents[2] / "integration").glob("*.py")]
    clients = {name for text in texts for name in re.findall(r'"(gateway-[a-z]+)"', text)}
    assert {each.environment for each in CONTENDERS if each.environment} | {loadgen.ENVIRONMENT} | clients == pinned


def test_both_parts_of_the_full_form_take_less_than_half_an_hour() -> None:
    """By what each part took on two cores: whoever adds a contender or a rate sees what it costs.

    In seconds: a start with its warm-up 8, a backlog 8 and what the plan adds for learning, what a stretch takes beside
    its length 0.6, a look at a setting 11, the harness alone 41, a judged contender 40 and 65 for each rate.
    """

    def visit_s(contender: Contender, *, drains: bool = True) -> float:
        plan = peers._PLAN
        rates = plan.at(contender, contender.backlog / 3)
        starts = 2 if drains and len(contender.grid) > 1 and rates else 1
        drain_s = 8 + (plan.learn_s - plan.drain_s) * contender.feedback
        return (8 * starts + len(rates) * (plan.seconds + 0.6) if rates else 8 * drains) + drain_s * drains

    near = peers.nearest([{"name": e.name, "kind": e.kind, "drained_per_s": [e.backlog]} for e in CONTENDERS])
    again = [each for each in CONTENDERS if each.name in near]
    rounds_s = sum(map(visit_s, CONTENDERS)) + sum(map(visit_s, again)) * (peers._DRAINED - 1)
    rounds_s += sum(visit_s(each, drains=False) for each in again) * (peers._ROUNDS - peers._DRAINED)
    looks_s = 11 * sum(len(each.grid) for each in CONTENDERS if len(each.grid) > 1)
    assert (rounds_s + looks_s + 41) / 60 == pytest.approx(22, abs=1.5)
    assert (len(peers.JUDGED) + 1) * (40 + 65 * loadgen._TRIES) / 60 < 30
    short = [each for each in CONTENDERS if each.name in peers.SHORT]
    assert (sum(map(visit_s, short)) + 25) / 60 < 6


def test_what_a_peers_environment_imports_is_there(tmp_path: Path) -> None:
    """It has numpy, fastavro and clients of its own, and of Skysail what measures and the schemas."""
    modules = "load.harness.wire, load.harness.workload, load.research.peers.loadgen_case"
    code = f"import sys, {modules}, load.research.peers.wire_formats; print(*sys.modules)"
    environment = {"PYTHONPATH": str(environments.python_path(tmp_path)), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        (sys.executable, "-P", "-c", code), env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    ours = {name.partition(".")[0] for name in done.stdout.split()}
    assert ours.isdisjoint({"streams", "workers", "policies", "deploy"})
