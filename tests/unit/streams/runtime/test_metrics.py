"""Tests of reports and their exporter."""

from __future__ import annotations

import ast
import os
import random
import re
import socket
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from prometheus_client import Histogram as PeerHistogram

from deploy.cli import skysail
from deploy.config.settings import Metrics
from deploy.errors import StartError
from deploy.figures.declared import RULES
from deploy.process.metrics import exporting, ports
from schemas.records import Report
from streams.operators.statistics import SHARES, WITHIN, Durations
from streams.runtime.metrics import Composer, is_counter
from streams.runtime.process.prometheus import (
    MEANINGS,
    PrometheusExporter,
    _families,
    exposition,
    family_of,
    meaning,
    parse,
)
from streams.runtime.process.remedies import REMEDIES

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[4]


def test_counters_are_told_from_gauges_by_name() -> None:
    """Labels do not hide the ending."""
    assert is_counter("answers_total{status=default}")
    assert not is_counter("totals{kind=_total}")


def test_one_role_of_a_process_tells_what_it_costs() -> None:
    """So that the sum over all reports is what all processes cost; each says which process it runs in."""
    first, other = (Composer("1", role, tells_process=role == "selection") for role in ("selection", "joiner"))
    told, silent = (each.compose(7, {"a_total": 1.0}) for each in (first, other))
    assert {"cpu_seconds_total", "a_total"} == {*told.counters}
    assert {*silent.counters} == {"a_total"}
    assert ("resident_bytes" in told.gauges, "resident_bytes" in silent.gauges) == (True, False)
    assert told.gauges["pid"] == silent.gauges["pid"]


def test_a_report_holds_all_parts_and_the_costs_of_the_process() -> None:
    """Parts are added up; processor time and memory come on top."""
    report = Composer("s-1", "selection").compose(7, {"a_total": 1.0, "lag": 2.0}, {"a_total": 2})
    assert (report.instance, report.role, report.time_us) == ("s-1", "selection", 7)
    assert report.counters["a_total"] == 3
    assert report.counters["cpu_seconds_total"] > 0
    assert report.gauges["lag"] == 2
    assert report.gauges["resident_bytes"] > 1_000_000


def test_labels_are_parsed() -> None:
    """The form of reports becomes name and labels."""
    assert parse("answers_total{application=digits,status=default}") == (
        "answers_total",
        {"application": "digits", "status": "default"},
    )
    assert parse("lag") == ("lag", {})


def test_the_exporter_shows_the_latest_report_on_localhost() -> None:
    """Prometheus reads what the last second brought, one family a name."""
    exporter = PrometheusExporter(0)
    try:
        for count in (1.0, 2.0):
            exporter(Report("s-1", "selection", 0, {"answers_total{status=default}": count}, {"lag": 3.0}))
        exporter(Report("j-1", "joiner", 0, {"answers_total": 1.0}, {"lag": 4.0}))
        with urlopen(f"http://127.0.0.1:{exporter.port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    finally:
        exporter.stop()
    assert 'skysail_answers_total{instance_name="s-1",role="selection",status="default"} 2.0' in lines
    assert 'skysail_answers_total{instance_name="j-1",role="joiner"} 1.0' in lines
    assert lines.count("# TYPE skysail_answers_total counter") == 1, "one family a name, whatever its labels are"
    assert 'skysail_lag{instance_name="j-1",role="joiner"} 4.0' in lines
    assert lines.count("# TYPE skysail_lag gauge") == 1
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", exporter.port)) != 0


def test_each_figure_that_is_written_somewhere_has_a_meaning_and_no_other() -> None:
    """Prometheus' HELP says what a figure is: its name is there already."""
    program = [
        path.read_text(encoding="utf-8")
        for folder in ("streams", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if path.name != "remedies.py"
    ]
    written = {
        name for text in program for name in (*re.findall(r'"([a-z_]+_total)"', text), *figures(ast.parse(text)))
    }
    assert {"joined_total", "windows_held", "queue_bytes", "uptime_s", "ready_s"} <= written
    assert {name for name in written if not name.startswith("_")} - MEANINGS.keys() == set()
    assert {name for name in MEANINGS if not any(f'"{name}' in text for text in program)} - {"stopped"} == set()
    assert meaning("answer_p99_us").startswith("99th percentile of the time from a query's sending")
    assert meaning("new_figure") == "new figure"


def test_what_to_do_stands_behind_the_meaning_and_its_commands_are_there() -> None:
    """For each figure that an alert watches, too: HELP is read where no rule is."""
    assert meaning("lag").endswith(
        "if it grows, the role is too slow: start another process of it, `skysail run --role ROLE`"
    )
    assert meaning("answer_seconds").startswith("time from a query's sending to its answer's leaving selection, in sec")
    known = {*MEANINGS, *(f"{name}{end}" for name in ("answer", "gateway", "model") for end in ("_seconds", WITHIN))}
    assert {*REMEDIES} <= known
    watched = {family_of(name) for rule in RULES for name in rule.figures} - {"uptime_s"}
    assert watched - {*REMEDIES} == set()
    asked = {tuple(words.split()[:2]) for text in REMEDIES.values() for words in re.findall(r"`skysail ([^`]+)`", text)}
    for verb, more in (words if len(words) == 2 else (*words, "") for words in sorted(asked)):
        line = (verb, more, "--help") if more.islower() and more.isalpha() else (verb, "--help")
        assert CliRunner().invoke(skysail, line).exit_code == 0, line


def test_a_histogram_is_one_family_of_prometheus_that_its_quantiles_are_right_of() -> None:
    """Buckets as Prometheus' own client writes them, of the same durations and bounds."""
    drawn = random.Random(7)
    took_us = [int(drawn.lognormvariate(10, 1)) for _ in range(500)]
    durations = Durations("answer", "application")
    durations.aim({"digits": 40_000})
    places = [0, 3, 14, 15, 200, 500]  # few at a time, and many
    for begin, end in pairwise(places):
        durations.add("digits", took_us[begin:end], 1)
    oracle = PeerHistogram("skysail_answer_seconds", "", buckets=[share * 0.04 for share in SHARES], registry=None)
    for each in took_us:
        oracle.observe(each / 1e6)
    (peer,) = oracle.collect()
    expected = [sample.value for sample in peer.samples if sample.name.endswith("_bucket")]
    report = Composer("s", "selection").compose(1, durations.rendered())
    family, *others = (one for one in _families([report]) if one.name.startswith("skysail_answer"))
    shown = {sample.labels["le"]: sample.value for sample in family.samples if sample.name.endswith("_bucket")}
    assert family.type == "histogram"
    assert [*shown.values()] == expected
    assert [float(bound) for bound in shown][:-1] == pytest.approx([share * 0.04 for share in SHARES])
    assert report.counters["answer_within_objective_total{application=digits}"] == shown["0.04"]
    assert report.gauges["answer_objective_seconds{application=digits}"] == 0.04
    assert {one.type for one in others} == {"counter", "gauge"}
    text = exposition([report]).decode()
    assert 'skysail_answer_seconds_count{application="digits",instance_name="s",role="selection"} 500.0' in text
    assert sum(took_us) / 1e6 == pytest.approx(report.counters["answer_seconds_sum{application=digits}"])


def figures(program: ast.Module) -> Iterator[str]:
    """Yield the figures that a module names where it makes its part of a report."""
    for node in ast.walk(program):
        names: list[ast.expr | None] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "render" and isinstance(node.args[0], ast.Tuple):
            names = node.args[0].elts[:1]
        elif isinstance(node, ast.FunctionDef) and node.name.strip("_") in {
            "statistics",
            "rendered",
            "gauges",
            "compose",
        }:
            made = [*ast.walk(node)]
            names = [key for each in made if isinstance(each, ast.Dict) for key in each.keys]
            names += [each.slice for each in made if isinstance(each, ast.Subscript)]
            names += [each.key for each in made if isinstance(each, ast.DictComp)]
        for name in names:
            start = name.values[0] if isinstance(name, ast.JoinedStr) else name
            if isinstance(start, ast.Constant) and isinstance(start.value, str):
                yield start.value.partition("{")[0]


def test_nothing_is_served_unless_the_settings_say_where() -> None:
    """No port, no hook, no thread."""
    with exporting(Metrics()) as hooks:
        assert hooks == ()


def test_a_port_that_is_taken_is_an_error_that_names_the_setting() -> None:
    """The message says which address, and what to set."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with (
            pytest.raises(
                StartError, match=rf"127\.0\.0\.1:{port} is taken by process {os.getpid()} .*set metrics\.port"
            ),
            exporting(Metrics(port=port)),
        ):
            pass


def test_a_port_that_another_role_has_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that is started by hand beside a deployment shows its figures at the next free port."""
    monkeypatch.setattr("deploy.process.metrics.is_ours", lambda port: True)
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with exporting(Metrics(port=port)) as (exporter,):
            assert isinstance(exporter, PrometheusExporter)
            assert port < exporter.port < port + 100


def test_processes_of_one_machine_take_ports_in_turn_and_workers_the_last() -> None:
    """A model that comes or goes moves no other role's port."""
    instances = ("selection", "worker.b", "worker.a", "joiner")
    assert ports(Metrics(port=9464), instances) == {
        "selection": 9464,
        "joiner": 9465,
        "worker.b": 9466,
        "worker.a": 9467,
    }
    assert ports(Metrics(), instances) == {}
