"""Commands over traces that somebody else has written: one sentence or an answer, and nothing that a terminal obeys."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

import pytest

from deploy.cli import main
from streams.topology import RECORDED
from streams.trace.manifest import FILE, TraceManifest
from streams.trace.writer import TraceWriter
from tests.loops import CODEC
from tests.traces import trace_of
from tests.unit.streams.replay.test_what_if import loop
from tests.unit.streams.trace.test_foreign_traces import change, container, deflated, part_of, pretend
from tests.unit.streams.trace.test_trace import ABOUT, query, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streams.operators.contract import Record

OSC = "\x1b]0;owned\x07\nskysail: all is well\u202e"
COMMANDS = {
    "trace show": ["trace", "show", "{folder}"],
    "trace show, as JSON": ["trace", "show", "{folder}", "--json"],
    "replay": ["replay", "{folder}"],
    "replay offline": ["replay", "--offline", "{folder}"],
    "what if": ["replay", "--offline", "{folder}", "--set", "policy=exp3"],
    "evaluate": ["evaluate", "{folder}", "--policy", "exp3"],
    "record": ["record", "{folder}", "--topics", "queries"],
    "simulate": ["simulate", "{folder}/../plan.yaml"],
    "calibrate": ["simulate", "--calibrate", "{folder}/../calibration.json", "--from", "{folder}"],
}
PLAN = """
seconds: 1
arrivals: {trace: trace}
models: {a: {service: {constant_ms: 1}}}
application: {models: [a], slo_ms: 100}
"""


def _pipe(folder: Path) -> None:
    import os

    part_of(folder).unlink()
    os.mkfifo(folder / "queries-0000-000000000000.avro")


BAD: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda folder: (folder / FILE).unlink(),
    "deep JSON": lambda folder: (folder / FILE).write_text("[" * 200_000),
    "noise": lambda folder: (folder / FILE).write_bytes(random.Random(1).randbytes(500)),
    "a pipe": _pipe,
    "no container": lambda folder: pretend(folder, b"noise" * 100),
    "a header of noise": lambda folder: pretend(folder, b"Obj\x01\x02\xff\xff" + random.Random(2).randbytes(100)),
    "a header that is cut": lambda folder: pretend(folder, part_of(folder).read_bytes()[:40]),
    "a bomb": lambda folder: pretend(folder, container("deflate", deflated(64 << 20)), 1),
    "another file": lambda folder: change(folder, "topics.queries.parts.0.file", "../thesis.txt"),
    "a topic that is none": lambda folder: change(folder, "topics.queries.name", OSC),
    "a prefix": lambda folder: change(folder, "prefix", 5),
}


def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]) -> tuple[int, str]:
    """Run a command; returns how it ended and what it printed."""
    monkeypatch.setattr(sys, "argv", ["skysail", *arguments])
    code = 0
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    out, err = capsys.readouterr()
    return code, out + err


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a sound trace, in a folder where no broker answers."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SKYSAIL_KAFKA__BOOTSTRAP", "127.0.0.1:1")
    (tmp_path / "plan.yaml").write_text(PLAN)
    (tmp_path / "thesis.txt").write_text("all of it")
    write(tmp_path / "trace", [query(at) for at in range(20)], about=ABOUT)
    return tmp_path / "trace"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("fault", BAD)
@pytest.mark.timeout(60)
def test_a_bad_folder_is_one_sentence(
    folder: Path, command: str, fault: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No command hangs over it, shows a traceback or touches another file."""
    BAD[fault](folder)
    code, text = said(capsys, monkeypatch, [word.format(folder=folder) for word in COMMANDS[command]])
    assert code == 1, text
    lines = [line for line in text.splitlines() if line.strip()]
    assert lines[0].startswith("skysail: "), text
    assert all(line.isprintable() for line in lines)
    assert (folder.parent / "thesis.txt").read_text() == "all of it"


def nasty(record: Record, draw: random.Random) -> Record:
    """Return a record as nobody meant it: its value, key, time or headers are others."""
    value = bytearray(record.value or b"")
    for _ in range(draw.choice([1, 1, 3])):
        if value:
            value[draw.randrange(len(value))] = draw.randrange(256)
    changes = [{"value": bytes(value)}, {"key": OSC.encode()}, {"timestamp_us": draw.choice([-1, 0, 1 << 62])}]
    return record._replace(**draw.choice([*changes, {"value": None}, {"headers": ((OSC, OSC.encode()),)}]))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.timeout(300)
def test_records_of_others_are_shown_and_none_is_obeyed(
    folder: Path, seed: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command answers or says why not, whatever stands in records, names and the manifest."""
    draw, there = random.Random(seed), folder.parent / "other"
    trace = trace_of(loop("exp4").driver)
    with TraceWriter(there, TraceManifest(OSC, OSC, {OSC: OSC}, source=OSC), CODEC) as writer:
        for topic in RECORDED:
            writer.expect(topic, {0: 0}, {0: 0})
            writer.add([nasty(one, draw) if draw.random() < 0.2 else one for one in trace.records(topic)])
    (folder.parent / "plan.yaml").write_text(PLAN.replace("trace: trace", "trace: other"))
    for name, command in COMMANDS.items():
        code, text = said(capsys, monkeypatch, [word.format(folder=there) for word in command])
        assert code in {0, 1}, (name, text)
        assert all(line.isprintable() for line in text.splitlines()), (name, text)
        assert "\nskysail: all is well" not in text
