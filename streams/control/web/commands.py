"""What is asked for as words of the command line: the page shows and does what `skysail` would, and nothing else.

Values stand behind `=` or `--`, so none of them can be an option. No shell reads them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LONGEST: Final = 512  # characters of a value
_NAME: Final = re.compile(r"[\w.\-@:+]+")
_LETTERS: Final = ("topic", "cause", "application", "since")
_MOST_LETTERS: Final = 20  # shown whole at once
_SWITCHES: Final = ("dry_run", "anew")
_RATE: Final = 100  # records a second are sent again


def reading(path: str, query: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the command that answers a request; None = no command does.

    Raises:
        RequestRefusedError: something is missing, or is no value.
    """
    make = _READING.get(path)
    return None if make is None else make(query)


def acting(wish: Mapping[str, object]) -> tuple[str, ...]:
    """Return the command that an action is.

    Raises:
        RequestRefusedError: there is no such action, or something is missing.
    """
    said = {name: _text(name, value) for name, value in wish.items()}
    make = _ACTING.get(said.get("action", ""))
    if make is None:
        raise RequestRefusedError(400, f"`action` is one of {', '.join(sorted(_ACTING))}")
    return make(said)


def _text(name: str, value: object) -> str:
    """Return a field as the commands below take it: text, "" for null, a switch as its name or as nothing."""
    if name in _SWITCHES:
        if not isinstance(value, bool):
            raise RequestRefusedError(400, f"`{name}` is true or false")
        return name if value else ""
    if value is not None and not isinstance(value, str):
        raise RequestRefusedError(400, f"`{name}` is a text")
    return value or ""


def _story(query: Mapping[str, str]) -> tuple[str, ...]:
    named = _options(query, ("at", "context"))
    return ("story", "--json", *named, "--", _value(query, "id"))


def _context(query: Mapping[str, str]) -> tuple[str, ...]:
    return ("story", "--json", f"--application={_value(query, 'application')}", *_options(query, ("context",)))


def _contexts(query: Mapping[str, str]) -> tuple[str, ...]:
    return ("app", "contexts", "--json", "--", _name(query, "application"))


def _letters(query: Mapping[str, str]) -> tuple[str, ...]:
    return ("dlq", "list", "--json", *_options(query, _LETTERS))


def _lag(_: Mapping[str, str]) -> tuple[str, ...]:
    return ("topics", "lag", "--json")


def _letter(query: Mapping[str, str]) -> tuple[str, ...]:
    if "place" in query:
        return ("dlq", "show", "--json", "--", _value(query, "place"))
    return ("dlq", "show", "--json", f"--most={_MOST_LETTERS}", *_options(query, _LETTERS))


def _redrive(wish: Mapping[str, str]) -> tuple[str, ...]:
    dry = ("--dry-run",) if wish.get("dry_run") else ()
    anew = ("--anew",) if wish.get("anew") else ()
    common = ("dlq", "redrive", "--json", f"--rate={_RATE}", *dry, *anew)
    if "place" in wish:
        return (*common, "--", _value(wish, "place"))
    _value(wish, "topic")
    return (*common, *_options(wish, _LETTERS))


def _purge(wish: Mapping[str, str]) -> tuple[str, ...]:
    """Return what removes letters: those are meant that were there when somebody was asked, not what came since."""
    how = ("--dry-run",) if wish.get("dry_run") else ("--yes", f"--before={_value(wish, 'before')}")
    return ("dlq", "purge", "--json", f"--topic={_value(wish, 'topic')}", *how)


def _promote(wish: Mapping[str, str]) -> tuple[str, ...]:
    return ("model", "promote", "--json", "--", _name(wish, "model"))


def _rollback(wish: Mapping[str, str]) -> tuple[str, ...]:
    return ("model", "rollback", "--json", "--", _name(wish, "model"))


def _options(given: Mapping[str, str], names: tuple[str, ...]) -> tuple[str, ...]:
    found = tuple(f"--{name}={_value(given, name)}" for name in names if given.get(name))
    # An application that is given, and is nothing: letters that tell of none. Without it: all.
    return (*found, "--application=") if "application" in names and given.get("application") == "" else found


def _value(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "")
    if not value or len(value) > _LONGEST or not value.isprintable():
        raise RequestRefusedError(400, f"`{name}` is needed, at most {_LONGEST} printable characters")
    return value


def _name(given: Mapping[str, str], name: str) -> str:
    value = _value(given, name)
    if not _NAME.fullmatch(value):
        raise RequestRefusedError(400, f"`{name}` is no name: letters, digits and - _ . @ : +")
    return value


_READING: Final[Mapping[str, Callable[[Mapping[str, str]], tuple[str, ...]]]] = {
    "/api/story": _story, "/api/context": _context, "/api/contexts": _contexts, "/api/lag": _lag,
    "/api/letters": _letters, "/api/letter": _letter,
}  # fmt: skip
_ACTING: Final[Mapping[str, Callable[[Mapping[str, str]], tuple[str, ...]]]] = {
    "redrive": _redrive, "purge": _purge, "promote": _promote, "rollback": _rollback,
}  # fmt: skip
