r"""What people read, in a terminal or a log: names and texts of others are shown in it, and none of it is obeyed.

A version, a prefix or a context may hold what moves a terminal's cursor, names its window, turns letters around or
begins a line that looks like one of ours. All of that is shown as Python would write it: `\x1b`, `\n`, `\u202e`.
"""

from __future__ import annotations

import logging

import click


def plain(text: object) -> str:
    r"""Return a text as one line in which all can be seen.

    Examples:
        >>> plain("digits\n\x1b]0;owned\x07")
        'digits\\n\\x1b]0;owned\\x07'
    """
    said = str(text)
    if said.isprintable():
        return said
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in said)


def echo(*lines: object, err: bool = False, colour: str | None = None) -> None:
    """Print lines; what would begin another one is shown, not obeyed. Without any it prints an empty one.

    A colour is left out where the output is no terminal.
    """
    for line in lines or ("",):
        click.secho(plain(line), err=err, fg=colour)


class PlainFormatter(logging.Formatter):
    """Writes each message as one line, and a traceback's lines behind a margin."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        """Return a record's line."""
        return plain(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802
        """Return a traceback."""
        return behind_margin(super().formatException(ei))  # type: ignore[arg-type]  # what logging's own takes

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        """Return where a line was logged."""
        return behind_margin(stack_info)


def behind_margin(text: str) -> str:
    """Return lines that no one takes for those of a log or a command."""
    return "\n".join(f"  {plain(line)}" for line in text.split("\n"))
