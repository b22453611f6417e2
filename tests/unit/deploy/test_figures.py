"""Alert rules and dashboards name figures that there are, and Prometheus itself says when each rule holds."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.figures.declared import DASHBOARD, RULES
from deploy.figures.rendered import queries, rules, targets
from streams.runtime.process.prometheus import MEANINGS
from tests.prometheus import program

if TYPE_CHECKING:
    from pathlib import Path

    from deploy.figures.declared import AlertRule

ANSWERED = 'skysail_answers_total{application="digits",status="complete",reason=""}'
DEFAULTED = 'skysail_answers_total{application="digits",status="default",reason="deadline"}'
ASKED = 'skysail_gateway_requests_total{door="infer",status="%s"}'
ROWS = 'skysail_rows_total{model="svc",outcome="%s"}'
LAG = 'skysail_lag{instance_name="learner@1",role="learner"}'
WITHIN = 'skysail_answer_within_objective_total{application="digits"}'
COUNTED = 'skysail_answer_seconds_count{application="digits"}'
# What each rule is shown, a sample a minute: series with which it holds after ten.
HOLDS: dict[str, list[tuple[str, str]]] = {
    "SkysailRoleGone": [('up{job="skysail",instance="loop"}', "1x3 0x20")],
    "SkysailNoSelection": [('skysail_uptime_s{role="joiner"}', "1x20")],
    "SkysailDefaults": [(ANSWERED, "0+900x20"), (DEFAULTED, "0+100x20")],
    "SkysailLate": [(ANSWERED, "0+900x20"), ('skysail_late_answers_total{application="digits"}', "0+90x20")],
    "SkysailBurnsFast": [(WITHIN, "0+800x20"), (COUNTED, "0+1000x20")],
    "SkysailBurns": [(WITHIN, "0+920x40"), (COUNTED, "0+1000x40")],
    "SkysailFallsBehind": [(LAG, "0 1000 3000 9000 30000 90000 300000 900000 3e6 9e6 3e7 9e7")],
    "SkysailModelNotLoaded": [('skysail_model_not_loaded{model="svc"}', "1x20")],
    "SkysailVersionFailing": [('skysail_version_failing{model="svc",version="2"}', "1x20")],
    "SkysailDrift": [('skysail_drift_evidence{application="fraud",model=""}', "1x20")],
    "SkysailModelFails": [(ROWS % "failed", "0+100x20"), (ROWS % "ok", "0+900x20")],
    "SkysailRedisAway": [('skysail_store_failures_total{instance_name="learner@1"}', "0+5x20")],
    "SkysailLearningBlocked": [('skysail_store_blocked_partitions{instance_name="learner@1"}', "1x20")],
    "SkysailStatesSetAside": [('skysail_states_set_aside_total{instance_name="learner@1"}', "0x8 1x12")],
    "SkysailLessonsBounded": [('skysail_bounded_lessons_total{application="digits",by="teacher"}', "0+90x20")],
    "SkysailDeadLetters": [('skysail_dead_letters_total{topic="feedback",cause="late"}', "0x8 1+1x12")],
    "SkysailProgramFault": [('skysail_kernel_failures_total{instance_name="loop"}', "0x8 1+1x12")],
    "SkysailClockOff": [('skysail_clock_off_ms{instance_name="loop"}', "-900x20")],
    "SkysailOverload": [(ASKED % "503", "0+50x20"), (ASKED % "200", "0+900x20")],
    "SkysailTraceNotWritten": [("skysail_trace_missed", "0x5 0+9x15")],
}
WELL: list[tuple[str, str]] = [
    ('up{job="skysail",instance="loop"}', "1x20"),
    ('skysail_uptime_s{role="selection"}', "0+60x20"),
    (ANSWERED, "0+1000x20"),
    (DEFAULTED, "0+10x20"),
    ('skysail_late_answers_total{application="digits"}', "0+1x20"),
    (WITHIN, "0+998x40"),
    (COUNTED, "0+1000x40"),
    (LAG, "900 400 900 100 0 900 700 800 900 850 900 880"),
    ('skysail_model_not_loaded{model="svc"}', "0x20"),
    ('skysail_version_failing{model="svc",version="2"}', "0x20"),
    ('skysail_drift_evidence{application="fraud",model=""}', "0.4x20"),
    (ROWS % "failed", "0+1x20"),
    (ROWS % "ok", "0+900x20"),
    ('skysail_store_failures_total{instance_name="learner@1"}', "7x20"),
    ('skysail_store_blocked_partitions{instance_name="learner@1"}', "0x20"),
    ('skysail_states_set_aside_total{instance_name="learner@1"}', "1x20"),
    ('skysail_bounded_lessons_total{application="digits",by="teacher"}', "700x20"),
    ('skysail_dead_letters_total{topic="feedback",cause="late"}', "12x20"),
    ('skysail_kernel_failures_total{instance_name="loop"}', "3x20"),
    ('skysail_clock_off_ms{instance_name="loop"}', "20x20"),
    (ASKED % "503", "5x20"),
    (ASKED % "200", "0+900x20"),
    ("skysail_trace_missed", "9x20"),
    ('skysail_trace_write_failures_total{instance_name="record"}', "2x20"),
]


@pytest.fixture(scope="module")
def promtool() -> str:
    """Prometheus' own tool."""
    return program("promtool")


def tell(promtool: str, folder: Path, series: list[tuple[str, str]], fired: list[AlertRule], minutes: int = 10) -> str:
    """Return what promtool says of the rules where these of them are to hold after some minutes, and no other."""
    (folder / "rules.yaml").write_text(rules())
    expected: list[dict[str, Any]] = [
        {"eval_time": f"{minutes}m", "alertname": rule.name, "exp_alerts": []} for rule in RULES
    ]
    shown = [{"series": name, "values": values} for name, values in series]
    file = folder / "test.yaml"
    asked = [each for each in expected if each["alertname"] not in {rule.name for rule in fired}]
    tests = [{"interval": "1m", "input_series": shown, "alert_rule_test": asked}]
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    return done.stdout + done.stderr


def test_prometheus_takes_the_rules(promtool: str, tmp_path: Path) -> None:
    """All of them, by its own check."""
    file = tmp_path / "rules.yaml"
    file.write_text(rules())
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rules found" in done.stdout


def test_where_all_is_well_no_rule_holds(promtool: str, tmp_path: Path) -> None:
    """Figures of a deployment at work, with what it has met long ago."""
    assert "SUCCESS" in tell(promtool, tmp_path, WELL, [])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_each_rule_holds_where_its_trouble_is_and_alone(promtool: str, tmp_path: Path, rule: AlertRule) -> None:
    """The same figures with its own in trouble: it holds, and the others do not."""
    trouble = HOLDS[rule.name]
    named = {name for name, _ in trouble}
    absent = {'skysail_uptime_s{role="selection"}'} if rule.name == "SkysailNoSelection" else set()
    series = [(name, values) for name, values in WELL if name not in named | absent] + trouble
    minutes = 17 if rule.hold == "15m" else 10
    assert "SUCCESS" in tell(promtool, tmp_path, series, [rule], minutes)
    said = tell(promtool, tmp_path, series, [], minutes)
    assert rule.name in said
    assert "FAILED" in said


def test_all_figures_of_panels_and_rules_are_exported_with_their_meaning() -> None:
    """Else a chart stays empty, and nobody knows why."""
    ends = ("_seconds", "_seconds_count", "_within_objective_total", "_objective_seconds")
    known = {*MEANINGS, *(f"{name}{end}" for name in ("answer", "gateway", "model") for end in ends)}
    shown = {name for its in DASHBOARD.values() for panel in its for name in panel.figures}
    watched = {name for rule in RULES for name in rule.figures}
    assert shown | watched <= known
    for rule in RULES:
        assert {*re.findall(r"skysail_(\w+)", rule.expr)} == {*rule.figures}


def test_a_dashboard_has_each_panel_once_and_none_over_another() -> None:
    """Places in Grafana's grid of 24 columns; expressions are whole."""
    shown = json.loads(CliRunner().invoke(skysail, ("metrics", "dashboard")).stdout)
    panels = [each for each in shown["panels"] if each["type"] == "timeseries"]
    assert [each["title"] for each in panels] == [panel.title for its in DASHBOARD.values() for panel in its]
    cells = [
        (x, y)
        for each in shown["panels"]
        for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
        for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert all(x < 24 for x, _ in cells)
    assert all(target["expr"].count("(") == target["expr"].count(")") for each in panels for target in each["targets"])


def test_prometheus_takes_every_expression_of_the_dashboard(promtool: str, tmp_path: Path) -> None:
    """As recording rules, with an interval in the place of Grafana's variable."""
    lines = [expr for its in DASHBOARD.values() for panel in its for expr, _ in queries(panel)]
    made = [{"record": f"line:{at}", "expr": expr.replace("$__rate_interval", "1m")} for at, expr in enumerate(lines)]
    file = tmp_path / "lines.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "lines", "rules": made}]}))
    done = subprocess.run([promtool, "check", "rules", file], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_processes_are_targets_by_name() -> None:
    """As Prometheus reads them from a file; an address of version 6 has its brackets."""
    assert json.loads(targets("::1", {"loop": 9464})) == [
        {"targets": ["[::1]:9464"], "labels": {"job": "skysail", "process": "loop"}}
    ]
