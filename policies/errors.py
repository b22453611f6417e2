"""Errors of the arithmetic, whose fault each is, and building a policy from a name and numbers.

PolicyError        configuration or caller: unknown name, unknown or impossible parameter; never worth a retry
└── LossError      bad input: this label cannot be compared with this answer; the record is a dead letter
    └── UnknownLabelError    the label is no class that there is
"""

from __future__ import annotations

from difflib import get_close_matches
from inspect import signature
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Built = TypeVar("Built")
# A stored state has to fit a record: 480,000 of 524,288 bytes.
MOST_VALUES: Final = 60_000


class PolicyError(ValueError):
    """A policy or controller that cannot exist, or a question it cannot answer."""


class LossError(PolicyError):
    """A label that does not fit the answer or the kind of loss."""


class UnknownLabelError(LossError):
    """A label that is no class, of the costs or of the models: a slip, from which nothing is to be learnt."""


def require(holds: bool, message: str) -> None:
    """Raise `PolicyError(message)` unless the condition holds; for parameters, which come from outside."""
    if not holds:
        raise PolicyError(message)


def require_storable(values: int, what: str, remedy: str) -> None:
    """Raise `PolicyError` where a state has more numbers than a record can hold.

    Args:
        values: how many numbers.
        what: keeps them, for the message.
        remedy: how there can be fewer.
    """
    require(values <= MOST_VALUES, f"{what} keeps {values} numbers, of {MOST_VALUES} that fit; {remedy}")


def build(kind: str, makers: Mapping[str, Callable[..., Built]], name: str, values: Mapping[str, float]) -> Built:
    """Call the maker of that name with the parameters given; those left out have their defaults.

    Raises:
        PolicyError: Unknown name or parameter (the nearest is named), or a value out of range.
    """
    if name not in makers:
        raise PolicyError(f"unknown {kind} {name!r}{_nearest(name, makers)}")
    defaults = {key: parameter.default for key, parameter in signature(makers[name]).parameters.items()}
    for key in values:
        if key not in defaults:
            raise PolicyError(f"{kind} {name} has no parameter {key!r}{_nearest(key, defaults)}")
    return makers[name](**{key: _number(f"{name}: {key}", value, defaults[key]) for key, value in values.items()})


def _number(what: str, value: object, default: object) -> float:
    """Return the value as the type of the default: Avro and YAML write whole numbers either way."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PolicyError(f"{what} is {value!r}; it must be a number")
    if not isinstance(default, int):
        return float(value)
    if not float(value).is_integer():
        raise PolicyError(f"{what} is {value}; it must be a whole number")
    return int(value)


def _nearest(name: str, known: Iterable[str]) -> str:
    """Say which known name was probably meant, and list them all."""
    names = sorted(known)
    listed = f"known: {', '.join(names) or 'none'}"
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]!r}? ({listed})" if close else f" ({listed})"
