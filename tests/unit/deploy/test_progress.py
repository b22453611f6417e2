"""What a start tells: moving in a terminal, line by line elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from deploy.process.progress import shown


class Screen(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        """Tell that it is one."""
        return True


def told(*, terminal: bool, coloured: bool = False) -> str:
    """Tell a start with two roles; returns what was written."""
    out = Screen() if terminal else io.StringIO()
    with shown(Console(file=out, force_terminal=terminal or coloured, width=200)) as progress:
        progress.waits("the roles:", "joiner, selection")
        progress.done("joiner is ready [1]")
        progress.waits("the roles:", "selection")
        progress.done("selection is ready")
        progress.waits("the live page")
    return out.getvalue()


def test_without_a_terminal_there_is_a_line_for_each_thing() -> None:
    """What is waited for once, what is reached with its time; a log can be read, and nothing is taken for markup."""
    lines = told(terminal=False).splitlines()
    assert [lines[0], lines[3]] == ["waiting for the roles: joiner, selection", "waiting for the live page"]
    assert lines[1].endswith(" s  joiner is ready [1]")
    assert lines[2].endswith(" s  selection is ready")
    assert len(lines) == 4


def test_in_a_terminal_what_is_reached_stays_and_what_is_waited_for_moves() -> None:
    """The waiting is gone at the end."""
    text = told(terminal=True)
    assert "selection is ready" in text
    assert text.index("joiner is ready") < text.index("selection is ready")


def test_a_file_gets_lines_although_colours_are_forced() -> None:
    """A notebook sets FORCE_COLOR for all that it starts; a moving line would fill a log with its positions."""
    text = told(terminal=False, coloured=True)
    assert len(text.splitlines()) == 4
    assert "\x1b" not in text
