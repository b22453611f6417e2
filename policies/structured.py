"""Answers of several parts: named tensors, or a text that is a JSON object.

{"boxes": tensor, "n": 3}          ─▶ members ─▶ a value for each name: a number, a text, a tensor
'{"name": "Ann", "at": {"x": 1}}'  ─▶ members ─▶ what is nested is a JSON text again
                                   ─▶ leaves  ─▶ a value for each path: ("name",), ("at", "x")
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from policies.errors import LossError
from policies.losses import kind_of
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from schemas.records import Value

    Leaves = Mapping[tuple[str, ...], Any]

Found = TypeVar("Found")

_OPENED: Final = ("{", "[")
_LARGEST: Final = 1e308  # what a float holds


def read(text: str) -> Any:
    """Return what a JSON text says.

    Raises:
        LossError: it is none, or holds NaN or infinity, which JSON has not.
    """
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise LossError("the text is no JSON") from error


def members(value: Value | None) -> dict[str, Value | None]:
    """Return the parts of an answer or a label by name.

    Raises:
        LossError: it has no parts that have names.
    """
    if isinstance(value, NamedTensors):
        return {name: _of_array(array) for name, array in value.arrays().items()}
    found = read(value) if isinstance(value, str) else None
    if not isinstance(found, dict):
        raise LossError(f"named outputs are needed: several tensors, or a JSON object; this is {kind_of(value)}")
    return {name: _of_json(one) for name, one in found.items()}


def leaves(value: Value | None) -> Leaves:
    """Return the fields of an answer or a label by path; objects are walked through, lists are fields.

    Raises:
        LossError: it has no fields.
    """
    if isinstance(value, NamedTensors):
        return {(name,): array.item() if array.size == 1 else array.tolist() for name, array in value.arrays().items()}
    if not isinstance(value, str):
        raise LossError(f"fields are those of several tensors or of a JSON text; this is {kind_of(value)}")
    found: dict[tuple[str, ...], Any] = {}
    ahead: list[tuple[tuple[str, ...], Any]] = [((), read(value))]
    while ahead:
        path, one = ahead.pop()
        if isinstance(one, dict) and one:
            ahead += [((*path, name), inner) for name, inner in one.items()]
        else:
            found[path] = one
    return found


def answered(parts: Callable[[Value | None], Mapping[Found, Any]], answer: Value | None) -> Mapping[Found, Any]:
    """Return the `members` or `leaves` of an answer; a text that is no JSON has none.

    Raises:
        LossError: it is no text, and has none.
    """
    try:
        return parts(answer)
    except LossError:
        if isinstance(answer, str):
            return {}
        raise


def canonical(text: str) -> str:
    """Return a JSON object or list as it is written in one way alone; any other text as it is."""
    if text.lstrip()[:1] not in _OPENED:
        return text
    try:
        return json.dumps(read(text), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (LossError, RecursionError):
        return text


def alike(answers: Mapping[int, Value]) -> dict[int, Value]:
    """Return answers by arm, each JSON text as the lowest arm wrote it that says the same."""
    firsts: dict[str, str] = {}
    return {
        arm: firsts.setdefault(canonical(said), said) if isinstance(said, str) else said
        for arm, said in sorted(answers.items())
    }


def _of_array(array: NDArray[np.generic]) -> Value:
    if array.size == 1:
        only: int | float = array.item()
        return only
    return Tensor.of(array)


def _of_json(value: Any) -> Value | None:
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, list) and value and _are_numbers(value):
        return Tensor.of(np.asarray(value, np.float64))
    return canonical(json.dumps(value))


def _are_numbers(values: list[Any]) -> bool:
    return all(isinstance(one, int | float) and not isinstance(one, bool) and abs(one) <= _LARGEST for one in values)


def _refuse(constant: str) -> float:
    raise ValueError(constant)
