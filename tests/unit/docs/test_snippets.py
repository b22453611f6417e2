"""No page shows code that cannot be: settings are taken, Python compiles, commands have these options.

What is run besides, from top to bottom: the pages of HTTP, of graphs, of extending, of runtimes, of simulation, of
Personalizer and of security by tests of their own; the path of five steps by `tests/integration/test_path.py`.
"""

from __future__ import annotations

import ast
import json
import tomllib
from typing import Any

import click
import pytest
import yaml

from deploy.cli import skysail
from deploy.cli.feedback import _TELL
from deploy.config.plan import PlanOf
from deploy.config.settings import Settings
from streams.mapping.spec import TopicMapping
from tests.snippets import Snippet, commands, snippets

SNIPPETS = snippets()
SHELL = ("sh", "console")
# What is no settings file, by its page and first key; somebody else checks it.
OTHER_YAML = {
    ("figures.md", "scrape_configs"): "the settings of Prometheus",
    ("kubernetes.md", "image"): "values of the chart, which tests/unit/deploy/test_chart.py renders",
    ("kubernetes.md", "minReplicaCount"): "what test_chart.py finds in the rendered chart",
    ("replay.md", "application"): "a mapping for `trace import`, which tests/unit/streams/trace reads",
}
# Kinds that are only shown, or are run by Sphinx when the site is built.
SHOWN = {"text", "{eval-rst}"}
# Words in place of a verb.
WORDS = {"VERB", "…", "..."}


def of(*kinds: str) -> list[Any]:
    """Return the snippets of these kinds as parameters."""
    return [pytest.param(one, id=str(one)) for one in SNIPPETS if one.kind in kinds]


def test_every_block_says_its_language() -> None:
    """Else nobody would know how to check it."""
    known = {"python", "yaml", "toml", "json", "span", *SHELL, *SHOWN}
    assert [str(one) for one in SNIPPETS if one.kind not in known] == []


@pytest.mark.parametrize("snippet", of("python"))
def test_python_compiles(snippet: Snippet) -> None:
    """With `await` outside of functions, as in a notebook."""
    compile(snippet.text, str(snippet), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)


@pytest.mark.parametrize("snippet", of("yaml"))
def test_settings_are_taken(snippet: Snippet) -> None:
    """Each is a settings file, a part of an application, or a plan."""
    found = yaml.safe_load(snippet.text)
    if "arrivals" in found:
        PlanOf.model_validate(found)
    elif {"from", "to", "feedback"} & found.keys():
        assert TopicMapping.of(found).reads
    elif "stages" in found:
        Settings.model_validate({"applications": {"any": {"models": ["any"], **found}}})
    elif (snippet.page, next(iter(found))) not in OTHER_YAML:
        Settings.model_validate(_without_files(found))


def _without_files(found: Any) -> Any:
    """Leave out passwords and tokens, which are in files of another machine."""
    if not isinstance(found, dict):
        return found
    return {key: _without_files(value) for key, value in found.items() if not str(key).endswith("_file")}


@pytest.mark.parametrize("snippet", of("toml", "json"))
def test_tables_are_read(snippet: Snippet) -> None:
    """By the library that reads such files."""
    assert (tomllib.loads if snippet.kind == "toml" else json.loads)(snippet.text)


@pytest.mark.parametrize("snippet", of(*SHELL, "span"))
def test_commands_have_these_options(snippet: Snippet) -> None:
    """Every verb is there and takes what is written; nothing is run."""
    for words in commands(snippet):
        try:
            _parse(skysail, words)
        except click.BadOptionUsage:
            assert snippet.kind == "span", snippet.text
            _parse(skysail, [*words, "value"])  # a sentence names the option alone


def test_commands_that_cannot_be_are_found() -> None:
    """Else the test above would pass whatever a page says."""
    for line in ("skysail modle list", "skysail model list --jsn", "A=1 skysail run --rol x | cat", "skysail demo 1"):
        (words,) = commands(Snippet("page", 1, "sh", line))
        with pytest.raises((click.ClickException, AssertionError)):
            _parse(skysail, words)
    assert not [*commands(Snippet("page", 1, "console", "skysail modle is an output"))]


def _parse(command: click.Command, words: list[str], named: str = "skysail") -> None:
    """Parse a command's options as it would; values, files and whether arguments are missing are not looked at."""
    context = click.Context(command, info_name=named)
    if isinstance(command, click.Group):
        if not words or words[0] in WORDS or words[0].startswith("-"):
            return
        if named == "skysail feedback" and words[0] not in command.commands:
            words = [_TELL, *words]
        within = command.get_command(context, words[0])
        assert within is not None, f"{named} has no {words[0]}"
        _parse(within, words[1:], f"{named} {words[0]}")
    else:
        _, left, _ = command.make_parser(context).parse_args(words)
        assert not left, f"{named} takes no {left}"
