"""`skysail simulate`: plans are checked key by key, and its answers are those of the simulator."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from deploy.cli import skysail
from deploy.config.plan import made, read
from deploy.errors import SettingsError, UsageError
from schemas import topics
from schemas.codec import Codec
from schemas.records import Query, Tensor
from streams.operators.contract import Record
from tests.unit.streams.trace.test_trace import write
from tests.unit.workers.test_calibration import log_of
from workers.simulation.calibration import calibrate

PLAN = """
arrivals: {poisson: 300}
models:
  m: {service: {a_ms: 5, b_ms: 1}}
application: {slo_ms: 50}
seconds: 5
"""


def written(folder: Path, text: str) -> Path:
    """Write a plan."""
    path = folder / "plan.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def simulate(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(skysail, ["simulate", *arguments])


def test_a_plan_is_answered_in_tables_and_plots(tmp_path: Path) -> None:
    """The share in time, the latencies, what workers do, and where the overheads come from."""
    found = simulate(str(written(tmp_path, PLAN)))
    assert found.exit_code == 0, found.output
    for word in (
        "in time",
        "latency ms",
        "throughput",
        "rows/batch",
        "share of the queries",
        "over time",
        "1.2 ms a leg",
    ):
        assert word in found.output


def test_a_plan_gives_the_same_bytes_twice(tmp_path: Path) -> None:
    """And others with another seed."""
    path = str(written(tmp_path, PLAN))
    first, second, other = (simulate(path, "--json", *more).output for more in ((), ("--seed", "1"), ("--seed", "2")))
    assert first == second
    assert first != other
    assert json.loads(first)["models"]["m"]["workers"] == 1


def test_the_least_number_of_workers_that_will_do_is_named(tmp_path: Path) -> None:
    """One is too few for this rate, two are enough."""
    text = PLAN.replace("300", "600").replace("a_ms: 5", "a_ms: 10")
    found = simulate(str(written(tmp_path, text)), "--workers", "1..3")
    assert "0.99 of the queries in 50 ms: 2" in found.output
    assert found.exit_code == 0


def test_where_no_number_will_do_the_command_says_so_and_fails(tmp_path: Path) -> None:
    """A model that takes longer than the objective stays too slow."""
    text = PLAN.replace("a_ms: 5", "a_ms: 60")
    found = simulate(str(written(tmp_path, text)), "--workers", "m=1..2")
    assert "none of these" in found.output
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("poisson", "poison", "arrivals.poison.*did you mean `poisson`"),
        ("seconds: 5", "second: 5", "`second`.*did you mean `seconds`"),
        ("a_ms: 5", "a_ms: five", "models.m.service.a_ms`.*must be a number"),
        ("slo_ms: 50", "slo_ms: 0", "application.slo_ms`.*greater than 0"),
        ("{poisson: 300}", "{poisson: 300, constant: 300}", "arrivals.*exactly one of poisson, constant, trace"),
        ("a_ms: 5, b_ms: 1", "b_ms: 1", "service.*exactly one of a_ms"),
        ("a_ms: 5", "a_ms: 5, nose: 1", "models.m.service.nose.*did you mean `noise`"),
        ("}}\n", "}, controller: amd}\n", "models.m.controller`.*must be one of 'aimd'"),
        ("}}\n", "}, parameters: {adds: 1}}\n", "no parameter 'adds'; did you mean 'add'"),
        ("slo_ms: 50", "slo_ms: 50, policy: timely", "timely goes by latencies"),
        ("{poisson: 300}", "{trace: nowhere.csv}", "arrivals.trace: cannot read .*nowhere.csv"),
    ],
)
def test_a_mistake_in_a_plan_is_named_with_what_is_allowed(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    """The key, and what may stand there."""
    assert before in PLAN
    with pytest.raises(SettingsError, match=message):
        made(read(written(tmp_path, PLAN.replace(before, after))), tmp_path)


@pytest.mark.parametrize("workers", ["0..3", "4..2", "many", "m:1..2"])
def test_a_wrong_number_of_workers_is_refused(tmp_path: Path, workers: str) -> None:
    """Before anything is simulated."""
    found = simulate(str(written(tmp_path, PLAN)), "--workers", workers)
    assert isinstance(found.exception, UsageError)


def test_workers_of_a_model_that_is_not_in_the_plan_are_refused(tmp_path: Path) -> None:
    """The message names the models."""
    found = simulate(str(written(tmp_path, PLAN)), "--workers", "other=1..2")
    assert isinstance(found.exception, UsageError)
    assert "there are: m" in str(found.exception)


def test_either_a_plan_or_a_calibration_is_asked_for() -> None:
    """Neither is a mistake."""
    assert isinstance(simulate().exception, UsageError)


def test_a_trace_beside_a_plan_is_refused(tmp_path: Path) -> None:
    """The message says how a plan names one."""
    found = simulate(str(written(tmp_path, PLAN)), "--from", str(tmp_path))
    assert isinstance(found.exception, UsageError)
    assert "arrivals.trace" in str(found.exception)


def test_a_file_of_times_is_played(tmp_path: Path) -> None:
    """Faster where the plan says so; the first time becomes 0."""
    (tmp_path / "times.txt").write_text("10.0\n10.5\n11.0\n", encoding="utf-8")
    text = PLAN.replace("{poisson: 300}", "{trace: times.txt, speed: 2}").replace("seconds: 5", "")
    plan, _ = made(read(written(tmp_path, text)), tmp_path)
    assert plan.arrivals_us.tolist() == [0, 250_000, 500_000]


def test_a_csv_trace_is_played(tmp_path: Path) -> None:
    """As `skysail load run --arrivals trace:FILE` takes it."""
    (tmp_path / "azure.csv").write_text(
        "TIMESTAMP,tokens\n2026-01-01 00:00:00,1\n2026-01-01 00:00:02,1\n", encoding="utf-8"
    )
    text = PLAN.replace("{poisson: 300}", "{trace: azure.csv}").replace("seconds: 5", "seconds: 60")
    plan, _ = made(read(written(tmp_path, text)), tmp_path)
    assert plan.arrivals_us.tolist() == [0, 2_000_000]


def test_a_trace_that_is_cut_is_told(tmp_path: Path) -> None:
    """How many of its queries are played, in the page, in the table and in the JSON; nothing if all are."""
    (tmp_path / "times.txt").write_text("0\n1\n7\n", encoding="utf-8")
    text = PLAN.replace("{poisson: 300}", "{trace: times.txt}")
    path = str(written(tmp_path, text))
    for more in ((), ("--workers", "1..2")):
        assert simulate(path, *more).output.startswith("2 of 3 queries of the trace (seconds: 5)\n")
    assert json.loads(simulate(path, "--json").output)["left_out"] == 1
    assert "of the trace" not in simulate(str(written(tmp_path, text.replace("seconds: 5", "")))).output


def test_the_spread_holds_every_query(tmp_path: Path) -> None:
    """Its last line is open: the slowest are there, too."""
    lines = (
        simulate(str(written(tmp_path, PLAN))).output.split("share of the queries\n")[1].split("\n\n")[0].splitlines()
    )
    assert "and above" in lines[-1]
    shares = [float(re.findall(r"(\d+\.\d)%", line)[0]) for line in lines]
    assert sum(shares) == pytest.approx(100.0, abs=0.05 * len(lines))


def recorded(folder: Path) -> list[int]:
    """Record 60 queries, their answers and batches as a trace; return when the queries were sent (us)."""
    codec, (answers, batches) = Codec(), log_of(60)
    records = []
    for offset, (answer, batch) in enumerate(zip(answers, batches, strict=True)):
        prediction = answer.prediction
        query = Query(prediction.query_id, "a", Tensor.of(np.zeros(1)), sent_us=prediction.sent_us)
        for topic, value, at_us in (
            (topics.QUERIES, query, prediction.sent_us),
            (topics.PREDICTIONS, prediction, prediction.answered_us),
            (topics.MODEL_PREDICTIONS, batch.batch, batch.timestamp_us),
        ):
            records.append(Record(topic, 0, offset, at_us, None, codec.encode(value)))
    write(folder, records)
    return [answer.prediction.sent_us for answer in answers]


def test_a_recorded_trace_is_played(tmp_path: Path) -> None:
    """Its queries come when they were sent."""
    sent_us = recorded(tmp_path / "trace")
    text = PLAN.replace("{poisson: 300}", "{trace: trace}").replace("seconds: 5", "")
    plan, _ = made(read(written(tmp_path, text)), tmp_path)
    assert plan.arrivals_us.tolist() == [at - min(sent_us) for at in sorted(sent_us)]


def test_a_recorded_trace_calibrates(tmp_path: Path) -> None:
    """The file that is written is one that a plan can name."""
    recorded(tmp_path / "trace")
    out = tmp_path / "overheads.json"
    found = simulate("--calibrate", str(out), "--from", str(tmp_path / "trace"))
    assert found.exit_code == 0, found.output
    assert "service times of: m" in found.output
    text = PLAN.replace("{a_ms: 5, b_ms: 1}", "{calibration: overheads.json}")
    plan, _ = made(read(written(tmp_path, text + "overheads: {calibration: overheads.json}\n")), tmp_path)
    assert plan.legs.source == "the trace trace"


def test_a_folder_without_a_trace_is_refused(tmp_path: Path) -> None:
    """The message comes from the trace's reader."""
    found = simulate("--calibrate", str(tmp_path / "out.json"), "--from", str(tmp_path))
    assert isinstance(found.exception, SettingsError)


def test_a_plan_takes_overheads_and_service_times_from_a_calibration(tmp_path: Path) -> None:
    """Both name its file, relative to the plan's folder."""
    (tmp_path / "seen.json").write_text(json.dumps(calibrate(*log_of(100), "a test").as_dict()), encoding="utf-8")
    text = PLAN.replace("{a_ms: 5, b_ms: 1}", "{calibration: seen.json}") + "overheads: {calibration: seen.json}\n"
    plan, _ = made(read(written(tmp_path, text)), tmp_path)
    assert plan.legs.source == "a test"
    assert plan.models[0].service.sampler(np.random.default_rng(1))(1) == 10_000


def test_a_file_that_is_no_calibration_is_named(tmp_path: Path) -> None:
    """With the command that writes one."""
    (tmp_path / "seen.json").write_text("{}", encoding="utf-8")
    with pytest.raises(SettingsError, match=r"seen\.json.*--calibrate"):
        made(read(written(tmp_path, PLAN + "overheads: {calibration: seen.json}\n")), tmp_path)


def test_the_page_shows_what_its_plan_prints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word: the plan, and what both commands answer."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "simulation.md").read_text(encoding="utf-8")
    _, plan, _, swept, _, shown, *_ = page.split("```")
    written(tmp_path, plan.removeprefix("yaml\n"))
    monkeypatch.chdir(tmp_path)
    assert simulate("plan.yaml", "--workers", "1..4").output == swept.removeprefix("text\n")
    assert simulate("plan.yaml").output == shown.removeprefix("text\n")


WHOLE = """
arrivals: {constant: 40}
models:
  finds: {service: {a_ms: 4, b_ms: 1}, answers: ['[{"label": "car"}]', '[]']}
  names: {service: {a_ms: 2, b_ms: 1}, load_ms: 20, mib: 90}
hosts:
  small: {models: [names], memory_mib: 100, controller: clockwork}
application:
  slo_ms: 100
  models: [names]
  stages:
    find: {model: finds}
    name: {after: find, where: label == car}
seconds: 2
"""


def test_a_plan_with_hosts_and_a_graph_is_simulated_by_the_kernels(tmp_path: Path) -> None:
    """About half of the pictures have a car; all are answered in time."""
    found = simulate(str(written(tmp_path, WHOLE)), "--json")
    assert found.exit_code == 0, found.output
    figures = json.loads(found.output)
    assert figures["queries"] == 80
    assert 0 < figures["models"]["names"]["batches"] < figures["models"]["finds"]["batches"]
    assert figures["share_in_time"] > 0.9


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("[names], memory", "[nobody], memory", "no model nobody; there are: finds, names"),
        ("memory_mib: 100", "memory: 100", "hosts.small.memory.*did you mean `memory_mib`"),
        ("where: label", "wher: label", "stages.name.wher.*did you mean `where`"),
        ("after: find", "after: fond", "fond"),
        ("seconds: 2", "selection: {replicas: 2}\nseconds: 2", "one selection process"),
    ],
)
def test_a_mistake_in_what_only_kernels_know_is_named_too(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    """Before anything is simulated."""
    assert before in WHOLE
    with pytest.raises(SettingsError, match=message):
        made(read(written(tmp_path, WHOLE.replace(before, after))), tmp_path)
