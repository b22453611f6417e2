"""Shared by all verbs: the settings option, the JSON option, printing."""

from __future__ import annotations

import difflib
import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from deploy.config.configuration import load
from deploy.terminal import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

R = TypeVar("R")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


class Examples:
    """Writes examples line by line: a command's own, or those of its group that name it."""

    epilog: str | None

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        lines = (self.epilog or "").splitlines()
        if not lines and ctx.parent is not None:
            lines = [line for line in (ctx.parent.command.epilog or "").splitlines() if ctx.command_path in line]
        with formatter.section("Examples"):
            for line in lines:
                formatter.write(f"  {line}\n")


class Verb(Examples, click.Command):
    """A command with examples."""


class VerbGroup(Examples, click.Group):
    """A group of commands with examples."""

    command_class = Verb

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; says which one may have been meant where there is none."""
        name, known = args[0], self.list_commands(ctx)
        if not (name.startswith("-") or ctx.resilient_parsing) and self.get_command(ctx, name) is None:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean: {ctx.command_path} {near[0]}?" if near else f"there are: {', '.join(known)}"
            ctx.fail(f"No such command {name!r}; {hint}")
        return super().resolve_command(ctx, args)


config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Settings file [default: SKYSAIL_CONFIG, else skysail.yaml].",
)


def with_settings(function: Callable[..., R]) -> Callable[..., R]:
    """Give a verb `--config` and pass it the loaded settings as its first argument."""

    @config_option
    @functools.wraps(function)
    def wrapped(*args: object, config: Path | None, **options: object) -> R:
        return function(load(config), *args, **options)

    return wrapped


def print_json(value: object) -> None:
    """Print a value as one JSON document."""
    click.echo(json.dumps(value, indent=2, default=str))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows in aligned columns; plain text, so that it can be piped. Heads that are all empty are no line."""
    lines = [[plain(cell) for cell in row] for row in ((heads, *rows) if any(heads) else rows)]
    widths = [max((len(line[column]) for line in lines), default=0) for column in range(len(heads))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
