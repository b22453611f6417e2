"""The page that lists every setting, written from the settings' own models: `docs/settings.md`."""

from __future__ import annotations

import inspect
import json
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from deploy.config.settings import Settings
from policies import registry
from policies.batching import CONTROLLERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Node: TypeAlias = dict[str, Any]  # a piece of a JSON schema, which may hold anything JSON can


class HasName(Protocol):
    """A policy or batch controller."""

    name: ClassVar[str]


INTRODUCTION = """\
# Settings

Written by `skysail config reference > docs/settings.md`; edit `deploy/config/settings.py` instead.

Settings come from one YAML file: the one that `--config` or the variable `SKYSAIL_CONFIG` names, else `skysail.yaml`
where the command is started. Without a file every key has its default. Environment variables override the file. Their
name is `SKYSAIL_` and the key in capitals, with `__` between levels, and their value is YAML:

```sh
SKYSAIL_KAFKA__BOOTSTRAP=broker:9092 SKYSAIL_PARTITIONS=8 skysail run
```

`KEY_file: PATH` sets `KEY` to the content of a file; passwords belong there. An unknown key is an error that names the
nearest key. `skysail config show` prints the settings in force, passwords masked.
"""
BOUNDS = {"exclusiveMinimum": "> {}", "minimum": "≥ {}", "exclusiveMaximum": "< {}", "maximum": "≤ {}"}
WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def schema() -> Node:
    """Return the JSON schema of the settings file, for editors and checkers."""
    found: Node = Settings.model_json_schema()
    return found


def reference() -> str:
    """Return the page in Markdown."""
    document = schema()
    keys: Node = document["properties"]
    parts = [INTRODUCTION, *_tables("", keys, document["$defs"])]
    parts += [
        "## Policies, with the defaults of their `parameters`\n",
        _named(registry.POLICIES),
        "## Batch controllers, with the defaults of `worker.parameters`\n",
        _named(CONTROLLERS),
    ]
    return "\n".join(parts)


def _tables(prefix: str, keys: Mapping[str, Node], definitions: Node) -> Iterator[str]:
    """Yield the table of some keys, and a heading and the tables of each group among them."""
    sections = {name: _section(key, definitions) for name, key in keys.items() if "$ref" in json.dumps(key)}
    yield _table(prefix, {name: key for name, key in keys.items() if name not in sections or "items" in key})
    for name, section in sections.items():
        heading = prefix + (name if "$ref" in keys[name] else f"{name}[]" if "items" in keys[name] else f"{name}.NAME")
        yield f"## {heading}\n\n{section['description']}\n"
        yield from _tables(f"{heading}.", section["properties"], definitions)


def _section(key: Node, definitions: Node) -> Node:
    """Return the group of settings behind a key: its own, or that of each of its names."""
    inner = key if "$ref" in key else _values(key)
    found: Node = definitions[inner["$ref"].rpartition("/")[2]]
    return found


def _table(prefix: str, keys: Mapping[str, Node]) -> str:
    rows = ((f"`{prefix}{name}`", _kind(key), _default(key), _flat(key["description"])) for name, key in keys.items())
    return _rows(("key", "value", "default", "meaning"), rows)


def _kind(key: Node) -> str:
    """Say in a few words what a value may be."""
    if "anyOf" in key:
        kinds = [_kind(part) for part in key["anyOf"] if part.get("type") != "null"]
        return ", ".join(dict.fromkeys(kind for kind in kinds if kind != "password" or len(kinds) == 1))
    if "$ref" in key:
        return "keys of their own"
    if "enum" in key:
        return ", ".join(f"`{value}`" for value in key["enum"])
    match key["type"]:
        case "array":
            return f"list of {_kind(key['items'])}"
        case "object":
            inner = _values(key)
            return "JSON by name" if inner is True else f"{_kind(inner)} by name"
    bounds = [text.format(key[name]) for name, text in BOUNDS.items() if name in key]
    return " ".join([key["format"] if "format" in key else WORDS[key["type"]], ", ".join(bounds)]).strip()


def _values(key: Node) -> Any:
    """Return what the values of a mapping or of a list may be."""
    return key.get("items") or key.get("additionalProperties") or next(iter(key["patternProperties"].values()))


def _default(key: Node) -> str:
    default = key.get("default", {} if key.get("type") == "object" else None)
    return "" if default in (None, {}) else f"`{json.dumps(default)}`".replace('"', "")


def _named(found: Mapping[str, Callable[[], HasName]]) -> str:
    rows = ((f"`{_spec(make())}`", _flat((inspect.getdoc(make) or "").partition("\n\n")[0])) for make in found.values())
    return _rows(("name", "what it does"), rows)


def _spec(found: HasName) -> str:
    written = ", ".join(f"{name}: {getattr(found, name)}" for name in inspect.signature(type(found)).parameters)
    return f"{found.name} {{{written}}}" if written else str(found.name)


def _flat(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _rows(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join(_lines(tuple(heads), rows)) + "\n"


def _lines(heads: tuple[str, ...], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
