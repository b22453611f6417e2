"""What others have named is shown by commands and in logs, and none of it is obeyed."""

from __future__ import annotations

import ast
import io
import logging
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.cli.common import print_table
from deploy.process.progress import Shown
from deploy.terminal import PlainFormatter, behind_margin, echo, plain

OSC, CSI, C1, NEWLINE = "\x1b]0;owned\x07", "\x1b[2J", "\x9b2J", "a\nskysail: all is well"
NASTY = [OSC, CSI, C1, NEWLINE, "\r", "\b", "\u202eevil", "\u2066x", "\u2028", "\x85", "\x7f", "\u200b", "\ud800", "\0"]
CLI = Path(__file__).parents[3] / "deploy"


@pytest.mark.parametrize("text", NASTY)
def test_each_of_them_is_shown(text: str) -> None:
    """Nothing that a terminal obeys, that begins a line or turns letters around is left."""
    assert plain(f"x{text}y").isprintable()


@given(st.text())
def test_whatever_can_be_seen_stays(text: str) -> None:
    """And the rest is what Python reads back as the same text."""
    shown = plain(text)
    assert shown.isprintable()
    assert not text.isprintable() or shown == text
    assert "\\" in text or _read(shown) == text


def _read(shown: str) -> str:
    """Return what Python makes of escapes."""
    import re

    return re.sub(r"\\(?:[nrt]|x..|u....|U.{8})", lambda found: ast.literal_eval(f"'{found[0]}'"), shown)


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), max_size=4))
def test_a_row_of_a_table_is_one_line(rows: list[list[str]]) -> None:
    """However its cells are named."""
    out, before = io.StringIO(), sys.stdout
    sys.stdout = out
    try:
        print_table(("a", "b"), rows)
        echo(*[row[0] for row in rows])
    finally:
        sys.stdout = before
    lines = out.getvalue().split("\n")
    assert len(lines) == 1 + len(rows) + max(1, len(rows)) + 1
    assert all(line.isprintable() for line in lines)


@pytest.mark.parametrize("text", NASTY)
def test_a_log_has_one_line_for_a_message(text: str) -> None:
    """A traceback's lines stand behind a margin, whatever the error says."""
    about: dict[str, object] = {
        "levelname": "WARNING",
        "msg": "model %s",
        "args": (text,),
        "stack_info": f"Stack:\n{text}",
    }
    about |= {"exc_info": (ValueError, ValueError(text), None)}
    written = PlainFormatter("%(levelname)s %(message)s").format(logging.makeLogRecord(about))
    lines = written.split("\n")
    assert all(line.isprintable() for line in lines)
    heads = [line for line in lines if line and not line.startswith("  ")]
    assert [head.split()[0] for head in heads] == ["WARNING"]


@pytest.mark.parametrize("text", NASTY)
def test_progress_shows_names(text: str) -> None:
    """Line by line where there is no terminal."""
    from rich.console import Console

    out = io.StringIO()
    progress = Shown(Console(file=out), None)
    progress.waits(f"model {text}", text)
    progress.done(text)
    assert [line.isprintable() for line in out.getvalue().split("\n")] == [True] * 3


def test_no_command_prints_past_it() -> None:
    """Commands print by `echo` and `print_table`; whole documents of our own and JSON are printed as they are."""
    past = {}
    for file in sorted(CLI.rglob("*.py")):
        if file.parent.name == "demo" or file.name in {"terminal.py", "die_with_parent.py"}:
            continue
        calls = [one for one in ast.walk(ast.parse(file.read_text())) if isinstance(one, ast.Call)]
        named = [ast.unparse(call.func) for call in calls]
        count = sum(name in {"click.echo", "click.secho", "print", "sys.stdout.write"} for name in named)
        if count:
            past[str(file.relative_to(CLI))] = count
    assert past == {"cli/common.py": 2, "cli/config.py": 1, "cli/load.py": 1, "cli/metrics.py": 2, "local/server.py": 2}


def test_a_margin_is_before_each_line() -> None:
    """Lines of others stand out as such."""
    assert behind_margin("a\nskysail: b") == "  a\n  skysail: b"
