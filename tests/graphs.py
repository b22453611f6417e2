"""Loops whose application has a graph: a detector, whose answer says what its query holds, and models behind it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from schemas.records import Application, Stage, Tensor
from tests.loops import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from schemas.records import Input
    from streams.testing import Fault
    from tests.loops import Row

_BASE = 64  # four digits of it are a float32 without loss
# Cars and faces in a picture: a number for each, a car where it is even.
DETECT = Stage("detect", "detector")
CARS = Stage("cars", "", input="detect.number", where="label == car")
FACES = Stage("faces", "face-net", input="detect.number", where="label == face")


def seen(numbers: Iterable[int]) -> str:
    """Return what a detector says of a picture with these in it."""
    return json.dumps([{"label": "face" if number % 2 else "car", "number": [float(number)]} for number in numbers])


def picture(*numbers: int) -> Tensor:
    """Return a picture of at most four numbers below 63, as one number that holds them."""
    held = 0
    for number in reversed(numbers):
        held = held * _BASE + number + 1
    return Tensor.of(np.array([held], np.float32))


def number_of(given: Input) -> int:
    """Return the first number of an input."""
    assert isinstance(given, Tensor)
    return int(given.numpy()[0])


def detected(row: Row) -> str:
    """Answer what a picture holds."""
    held, numbers = number_of(row.input), []
    while held:
        held, number = divmod(held, _BASE)
        numbers.append(number - 1)
    return seen(numbers)


def kind_of(row: Row) -> str:
    """Answer what a car or a face is called."""
    return f"kind {number_of(row.input)}"


MODELS: Mapping[str, Callable[[Row], Any]] = {"detector": detected, "car-net": kind_of, "face-net": kind_of}


def traffic(stages: tuple[Stage, ...] = (DETECT, CARS, FACES), **changes: Any) -> Application:
    """Return an application with a graph; fields may be changed."""
    fields: dict[str, Any] = {"models": ("car-net",), "policy": "single", "slo_ms": 400.0, "default_output": "?"}
    return Application("traffic", stages=stages, **(fields | changes))


def loop(
    models: Mapping[str, Callable[[Row], Any]] = MODELS,
    application: Application | None = None,
    faults: Iterable[Fault] = (),
    **more: Any,
) -> Loop:
    """Return a loop with a graph."""
    return Loop({**MODELS, **models}, application or traffic(), faults, **more)
