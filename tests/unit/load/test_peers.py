"""The comparison with peers: who is asked at which rates, how answers are judged, what is made of it."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from load.research.peers import ceiling, grid, page
from load.research.peers import scenario as peers
from load.research.peers.answer_audit import Ledger, Tally
from load.research.peers.client import Part
from load.research.peers.contenders import CONTENDERS, DIRECT, SHORTEST, WHOLE
from load.research.peers.measurement import Plan, Seen, share_name
from load.research.peers.summary import Summary, behind, best, figures, spread
from load.research.peers.wire_formats import V2, Answer, Avro, Echo
from load.results.results import Result
from schemas.codec import Codec
from schemas.records import ModelOutput, Outcome, Prediction, Query, Status, Tensor

HAND = next(contender for contender in CONTENDERS if contender.kind == "hand")
PEER = next(contender for contender in CONTENDERS if contender.kind == "peer")
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


@pytest.mark.parametrize(
    ("latencies_ms", "defaults", "is_flat"),
    [
        ([5] * 10, 0, True),
        ([5] * 8 + [50] * 2, 0, True),
        ([5] * 8 + [60] * 2, 0, False),
        ([70] * 10, 0, True),
        ([5] * 9, 0, False),
        ([70] * 10, 1, False),
    ],
    ids=["even", "a little later", "growing", "slow but even", "one is missing", "one is a default"],
)
def test_a_backlog_is_flat_where_the_last_answers_waited_no_longer(
    latencies_ms: list[int], defaults: int, *, is_flat: bool
) -> None:
    """By 50 ms, in the middle of the last fifth and of the first half; nothing is missing or given up."""
    latencies_us = [1_000 * latency_ms for latency_ms in latencies_ms]
    tally = Tally(asked=10, answered=len(latencies_us), defaults=defaults, latencies_us=latencies_us)
    assert tally.is_flat is is_flat


def test_the_highest_rate_with_a_flat_backlog_is_kept() -> None:
    """Whatever order they were tried in."""
    found, flat, growing = Seen(), [5_000] * 10, [5_000] * 5 + [90_000] * 5
    for rate, latencies_us in ((100.0, flat), (400.0, growing), (200.0, flat)):
        tally = Tally(asked=10, answered=10, latencies_us=latencies_us)
        found.add(f"at_{rate:g}", Part(tally, 1.0, 1.0, 0, settled=True), rate, 1.0)
    assert (found.figures["flat_per_s"], found.figures["at_100_defaults_percent"]) == (200.0, 0.0)


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
    """Nobody is sent more than it can do, nor more than the harness can; that much, whoever can do it."""
    plan = Plan(2.0, 3.0, (500.0, 2_000.0), (0.25, 0.9), judged=(0.5,), ceiling_per_s=1_000)
    assert plan.common(400) == {}
    assert plan.common(900) == {"at_500": 500.0}
    assert plan.common(9_000) == {"at_500": 500.0, "at_1000": 1_000.0}
    assert plan.own(2_000) == {"at_25pct": 500.0}
    assert plan.to_judge(9_000) == {500}
    assert plan.to_judge(0) == set()


def test_the_row_without_a_system_is_sent_the_common_rates() -> None:
    """It is assumed to be fast enough before it has shown it."""
    assert Plan(2.0, 3.0, (500.0,)).common(DIRECT.backlog / 3) == {"at_500": 500.0}


def test_the_last_rate_that_was_tried_is_not_called_a_limit() -> None:
    """Only where the harness was seen to fail beyond it is it one."""
    clean, full = ({"rate_per_s": rate, "saturated": rate > 1_000} for rate in (1_000, 2_000))
    assert "The highest rate tried" in peers._limit(1_000, [clean])
    assert "saturated there" in peers._limit(1_000, [clean, full])
    assert "say nothing" in peers._limit(500, [full])


def test_the_ladder_ends_below_the_first_saturated_rate() -> None:
    """The ceiling is the highest rate that was clean at most of its looks; the lowest rate where none was."""
    looks = ((500, False), (1_000, True), (1_000, False), (1_000, False), (2_000, True), (2_000, False), (2_000, True))
    rows = [{"rate_per_s": rate, "saturated": bad} for rate, bad in looks]
    assert ceiling.ceiling_per_s(rows) == 1_000
    assert ceiling.ceiling_per_s([{"rate_per_s": 500, "saturated": True}]) == 500


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
    rows = ceiling.looks(client)  # type: ignore[arg-type] # it sends nothing
    assert [row["rate_per_s"] for row in rows] == [500] * 2 + [1_000] * 3 + [2_000] * 3
    assert ceiling.ceiling_per_s(rows) == 1_000


def test_of_settings_about_as_fast_the_one_that_answers_most_in_time_is_chosen() -> None:
    """A tenth of the rate is given for that, no more; of equals the shorter tail wins, and what fails never."""
    tried = (
        ("fast", 1_000, 400.0, 90.0),
        ("long", 960, 450.0, 20.0),
        ("near", 950, 450.0, 10.0),
        ("slow", 500, 490.0, 1.0),
        ("?", 990, None, None),
        ("broken", None, None, None),
    )
    names = ("setting", "rate_per_s", "goodput_per_s", "p99_ms")
    assert grid.choose([dict(zip(names, row, strict=True)) for row in tried])["setting"] == "near"


def test_settings_have_words() -> None:
    """An empty setting is called by its name."""
    assert (grid.words({"rows": 1, "wait_s": 0.5}), grid.words({})) == ("rows 1, wait_s 0.5", "defaults")


def seen(rate_per_s: float, cpu_us: float, p99_ms: float = 9.0) -> Seen:
    """Return a visit with one answer of each latency that a page shows."""
    found = Seen(capacity_per_s=rate_per_s, latencies_us={"at_500": [1_000] * 600})
    found.figures |= {"rate_per_s": rate_per_s, "cpu_us_per_query": cpu_us, "peak_mib": 100.0}
    found.figures |= {"at_500_p50_ms": 2.0, "at_500_p95_ms": 4.0, "at_500_p99_ms": p99_ms}
    found.figures |= {f"goodput_{objective_ms}ms_per_s": 480.0 for objective_ms in (20, 50, 100)}
    return found


@pytest.fixture
def summary() -> Summary:
    """Two rounds of everybody; a peer is ahead of the whole loop, one by hand of both lanes."""
    summary = Summary((DIRECT, HAND, SHORTEST, WHOLE, PEER))
    rates = (90_000, 20_000, 18_000, 8_000, 12_000)
    for contender, rate in zip(summary.contenders, rates, strict=True):
        for factor in (1.0, 1.2):
            summary.add(contender, seen(rate * factor, 1e6 / rate))
    return summary


def test_rows_are_median_least_and_most(summary: Summary) -> None:
    """Counts are added up over the rounds, figures are not."""
    row = summary.rows()[1]
    assert row["rate_per_s"] == [22_000, 20_000, 24_000]
    assert (row["rounds"], row["lost"], row["capacity_per_s"]) == (2, 0, 20_000)


def test_p999_is_taken_over_all_rounds(summary: Summary) -> None:
    """600 answers are too few for it, 1,200 are enough."""
    assert summary.rows()[0]["at_500_p999_ms"] == [1.0, 1.0, 1.0]
    short = Summary((DIRECT,))
    short.add(DIRECT, seen(1.0, 1.0))
    assert "at_500_p999_ms" not in short.rows()[0]


def test_ratios_are_to_the_best_of_each_kind(summary: Summary) -> None:
    """The row without a system is nobody's rival."""
    found = figures(summary.rows())
    assert found["skysail_shortest_to_hand_ratio_rate"] == pytest.approx(0.9)
    assert found["skysail_shortest_to_peer_ratio_rate"] == pytest.approx(1.5)
    assert found["skysail_whole_to_hand_ratio_cpu"] == pytest.approx(2.5)
    assert best(summary.rows(), "peer", "at_500_p50_ms") == 2.0


def test_whoever_is_ahead_is_named(summary: Summary) -> None:
    """For each lane and figure the best of the others, and who else is ahead; equals are not."""
    rows = [row for row in behind(summary.rows()) if row["figure"] == "rate_per_s"]
    assert [(row["lane"], row["by"], row["also"]) for row in rows] == [
        (SHORTEST.label, HAND.label, []),
        (WHOLE.label, HAND.label, [PEER.name]),
    ]


def test_the_page_shows_everybody_and_who_is_left_out(summary: Summary) -> None:
    """The row without a system stands beside the others; a failure stands with its reason; results survive JSON."""
    rows = summary.rows()
    tried = {"valid_per_s": 5.0, "tried": [{"rate_per_s": 5.0, "valid": True, "p99_ms": 1.0}]}
    judged = [{"system": "x", "label": "x", **tried}, {"system": DIRECT.name, "label": DIRECT.label, **tried}]
    failed = "LoadGen ended with 1"
    judged.append({"system": "z", "label": "z", "valid_per_s": 0.0, "tried": [], "failed": failed})
    series = {
        "systems": rows,
        "behind": behind(rows),
        "judged": judged,
        "grid": [
            {
                "label": "x",
                "setting": setting,
                "rate_per_s": rate,
                "goodput_per_s": rate,
                "p99_ms": None,
                "chosen": True,
            }
            for setting, rate in (("defaults", 5.0), ("other", None))
        ],
        "direct": [{"rate_per_s": 500, "p50_ms": 1.0, "p99_ms": 2.0, "late_ms": 0.1, "saturated": False}],
        "left_out": [{"system": "y", "label": "Y", "why": "cannot be installed: no wheel"}],
    }
    result = Result("peers", {}, {"form": "short"}, json.loads(json.dumps(series)), ("a note",))
    text = page.page(result, ENVIRONMENT)
    assert f"| {DIRECT.label} |  | 99,000 (90,000 to 108,000) |" in text
    assert "| Y | cannot be installed: no wheel |" in text
    assert "| x | defaults | 5 | 5 |  | yes |" in text
    assert "| x | other | does not work |  |  | yes |" in text
    assert f"| {DIRECT.label} | 5 | 5: valid (1.0) |\n| x | 5 |" in text
    assert "| x | 5 | 5: valid (1.0) |" in text
    assert "| z | 0 | LoadGen ended with 1 |" in text
    assert "\n- a note\n" in text


def test_the_page_says_how_to_run_it() -> None:
    """The short and the full form stand on it."""
    text = page.page(Result("peers", {}, {}, {"systems": []}), ENVIRONMENT)
    assert "skysail load run peers --short" in text


def test_the_short_form_names_contenders_that_exist() -> None:
    """Both hand loops, both lanes, two peers."""
    assert set(peers.SHORT) <= set(peers.NAMES)
    assert {SHORTEST.name, WHOLE.name} < set(peers.SHORT)


def test_missing_answers_are_lost_once_nothing_more_comes() -> None:
    """While answers are still coming they are merely not there in time: unanswered."""
    found = Seen()
    part = peers_part(settled=True)
    found.add("at_500", part, 500.0, 1.0)
    found.drained(peers_part(settled=False))
    assert (found.counts["lost"], found.counts["unanswered"]) == (1, 1)


def peers_part(*, settled: bool) -> Part:
    """Return a part with one answer of two."""
    return Part(Tally(asked=2, answered=1, latencies_us=[1], right_us=[1]), 1.0, 1.0, 0, settled)


def test_shares_have_names_without_signs() -> None:
    """They are parts of the names of figures."""
    assert (share_name(0.25), share_name(0.9)) == ("at_25pct", "at_90pct")


def test_spread_of_one_value_is_that_value() -> None:
    """A single round has no range."""
    assert spread([3.0]) == [3.0, 3.0, 3.0]
