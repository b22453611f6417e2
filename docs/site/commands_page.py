"""The page of commands: every verb with its help, options and examples, from the command line itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deploy.cli import VERBS, skysail

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """\
# Commands

Every verb explains itself: `skysail VERB --help`.
"""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Return every command with its words, such as `model add`; groups stand before what is in them."""
    top = click.Context(skysail, info_name="skysail")
    for verb in VERBS:
        found = skysail.get_command(top, verb)
        assert found is not None
        yield from _within(verb, found)


def _within(words: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=words)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _within(f"{words} {name}", found)


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *(_part(words, command) for words, command in commands())])


def _part(words: str, command: click.Command) -> str:
    level = "##" if " " not in words else "###"
    context = click.Context(command, info_name=f"skysail {words}", max_content_width=110, terminal_width=110)
    return f"{level} {words}\n\n```text\n{command.get_help(context).strip()}\n```\n"
