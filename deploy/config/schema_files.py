"""Files with schemas of topics that are not Skysail's own: settings name them, the application's record has them.

schema: registry          each record names its own
schema: orders.avsc       a file with an Avro schema, as JSON
schema: orders.proto      one with a Protobuf schema, which is compiled; it may import others beside it
schema: {type: record …}  an Avro schema, as YAML
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REGISTRY: Final = "registry"
_MOST_BYTES: Final = 1 << 20
_PROTO: Final = ".proto"


def located(application: object, folder: Path) -> object:
    """Return an application's settings with absolute paths of schemas; relative ones start at `folder`."""
    if not isinstance(application, dict):
        return application
    found = {**application}
    for name in ("from", "to", "feedback"):
        given = application.get(name)
        if isinstance(given, list):
            found[name] = [_located(each, folder) for each in given]
        elif given is not None:
            found[name] = _located(given, folder)
    return found


def _located(section: object, folder: Path) -> object:
    if not isinstance(section, dict) or not is_file(section.get("schema")):
        return section
    return {**section, "schema": str((folder / Path(section["schema"]).expanduser()).resolve())}


def is_file(schema: object) -> bool:
    """Tell whether a schema is named by its file."""
    return isinstance(schema, str) and schema != REGISTRY


def with_schema(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an application says of a topic, with the schema in place of its file.

    Raises:
        ValueError: the file cannot be read, or holds no schema.
    """
    if not is_file(section.get("schema")):
        return {**section}
    path = Path(section["schema"])
    text = _text(path)
    if path.suffix != _PROTO:
        return {**section, "schema": text}
    from deploy.config.protobuf_compiler import compiled
    from deploy.errors import MissingError, UsageError

    beside = {each.name: _text(each) for each in sorted(path.parent.glob(f"*{_PROTO}")) if each.name != path.name}
    try:
        return {**section, "schema": compiled(text, beside)}
    except (UsageError, MissingError) as error:
        raise ValueError(f"schema {path}: {error}") from error


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise ValueError(f"schema {path} is larger than {_MOST_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"schema {path} cannot be read: {error}") from error
