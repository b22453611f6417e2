"""Reads environment variables: as YAML for a number, a list or a switch, else as plain text."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard, get_args

import yaml
from pydantic import BaseModel, SecretStr

from deploy.config.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

NOTHING = frozenset({"", "~", "null"})
QUOTES = "'\""
# Properties of Kafka are of any type; these are texts, whatever digits they consist of.
PROPERTIES = ("kafka", "properties")
TEXT_PROPERTIES = ("passw", "username", "mechanism", "protocol", "file", "secret", "token")


def value_of(location: Sequence[str], text: str) -> object:
    """Return what a variable says about the setting at a location, such as `("redis", "password")`.

    A text stays as it is, so that the password `0123` is not read as a number; quotes around all of it, as YAML has
    them, are taken off.

    Raises:
        yaml.YAMLError: it is no text, and no YAML.
    """
    if not _is_text(location):
        return yaml.safe_load(text)
    if text.strip().lower() in NOTHING:
        return None
    is_quoted = len(text) > 1 and text[0] == text[-1] and text[0] in QUOTES
    return yaml.safe_load(text) if is_quoted else text


def _is_text(location: Sequence[str]) -> bool:
    """Whether a setting is a text and cannot be anything else."""
    if tuple(location[:-1]) == PROPERTIES:
        return any(word in location[-1] for word in TEXT_PROPERTIES)
    section: object = Settings
    for key in location:
        if not _is_section(section):
            return False
        if key not in section.model_fields:
            return key.endswith("_file")  # the path of one with a secret
        section = section.model_fields[key].annotation
    kinds = set(get_args(section) or (section,)) - {type(None)}
    return bool(kinds) and kinds <= {str, SecretStr}


def _is_section(kind: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(kind, type) and issubclass(kind, BaseModel)
