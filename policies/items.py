"""What an answer is about, item by item; and what the next model is given of it.

    "[{...}, {...}]"   a text that is a JSON list: an item for each element
    {...}              a JSON object: one item with these fields
    anything else      one item: `label`, and `score` where the model gives scores

Texts come from models, so nothing in them may break: what cannot be read as JSON is a label.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import inf
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from schemas.inputs import as_input
from schemas.records import NamedTensors, Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input, Value

_NONE: Mapping[str, object] = MappingProxyType({})


class InputError(ValueError):
    """An item of which the next model's input cannot be made; the message says why."""


class Item(NamedTuple):
    """A part of an answer.

    Attributes:
        whole: what it is.
        fields: of it, by name.
    """

    whole: object
    fields: Mapping[str, object] = _NONE


def items_of(answer: Value | None, scores: Tensor | None = None) -> tuple[list[Item], bool]:
    """Return the items of an answer, and whether it is a list of them."""
    if isinstance(answer, str) and answer[:1] in {"[", "{"}:
        try:
            read = json.loads(answer)
        except (ValueError, RecursionError):
            pass
        else:
            return [_item(one) for one in read] if isinstance(read, list) else [_item(read)], isinstance(read, list)
    if isinstance(answer, NamedTensors):
        return [Item(answer, answer.arrays())], False
    fields: dict[str, object] = {"label": answer}
    if scores is not None:
        fields["score"] = max(map(float, scores.numpy().ravel().tolist()), default=-inf)
    return [Item(answer if scores is None else scores, fields)], False


def _item(element: object) -> Item:
    return Item(element, element if isinstance(element, Mapping) else {"label": element})


def part_of(item: Item, field: str) -> Input:
    """Return an item, or a field of it, as a model's input.

    Raises:
        InputError: there is no such field, or it is no input.
    """
    if field and field not in item.fields:
        raise InputError(f"the answer has no field {field!r}")
    value = item.fields[field] if field else item.whole
    if isinstance(value, bool) or value is None:
        raise InputError(f"{field or 'the answer'} is {value}, which is no input")
    try:
        if isinstance(value, str):
            value.encode()  # half a surrogate, which JSON may hold, cannot travel
        return as_input(value)  # type: ignore[arg-type]  # whatever JSON may hold: what is no input is refused
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InputError(f"{field or 'the answer'}: {error}") from error


def joined(parts: Sequence[Input]) -> Input:
    """Return several inputs as one: numbers one behind the other, texts a line each.

    Raises:
        InputError: they are of different kinds.
    """
    if len(parts) == 1:
        return parts[0]
    texts = [part for part in parts if isinstance(part, str)]
    tensors = [part for part in parts if isinstance(part, Tensor)]
    if len(texts) == len(parts):
        return "\n".join(texts)
    if len(tensors) == len(parts):
        return Tensor.of(np.concatenate([tensor.numpy().ravel() for tensor in tensors]))
    raise InputError("its parts are numbers and texts, which cannot be one input; name parts of one kind")


def cropped(image: Input, item: Item, field: str, size: Sequence[int] = ()) -> Tensor:
    """Return the part of an image (height, width, ...) inside an item's box.

    Args:
        image: that the query is about.
        item: with the box.
        field: that holds it: left, top, right and bottom, in pixels; what lies outside of the image is left out.
        size: height and width that the part is brought to, by its nearest pixels; empty = as it is.

    Raises:
        InputError: it is no image, or there is no such box in it.
    """
    if not isinstance(image, Tensor) or len(image.shape) < 2:
        raise InputError("only arrays of two dimensions or more can be cut to a box")
    left, top, right, bottom = _box(item.fields.get(field), field)
    pixels = image.numpy()[max(0, top) : max(0, bottom), max(0, left) : max(0, right)]
    height, width = pixels.shape[:2]
    if not height or not width:
        raise InputError(f"the box {field} is outside of the image")
    if size:
        rows, columns = (np.arange(n) * old // n for n, old in zip(size, (height, width), strict=True))
        pixels = pixels[rows][:, columns]
    return Tensor.of(np.ascontiguousarray(pixels))


def _box(found: object, field: str) -> tuple[int, int, int, int]:
    try:
        left, top, right, bottom = (int(edge) for edge in found)  # type: ignore[attr-defined]  # or it is refused
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{field} is no box: left, top, right and bottom are needed") from error
    return left, top, right, bottom
