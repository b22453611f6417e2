"""Records as plain values that JSON can hold."""

from __future__ import annotations

import base64
import dataclasses
import enum
from typing import TYPE_CHECKING, Any

from schemas.records import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping


def plain(value: Any) -> Any:
    """Return dataclasses as dictionaries, tensors as nested lists, enumerations as words, bytes as base64."""
    if isinstance(value, Tensor):
        return value.numpy().tolist()
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode("ascii")}
    if isinstance(value, dict):
        return _items(value)
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def _items(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): plain(item) for key, item in value.items()}
