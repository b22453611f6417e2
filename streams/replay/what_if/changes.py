"""What `--set` changes of an application."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from policies import registry
from policies.errors import PolicyError
from schemas.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Application

_SETTABLE: Final = (
    "slo_ms",
    "window_s",
    "default_loss",
    "combine",
    "confidence_floor",
    "coverage",
    "missing",
    "per_context",
    "spread",
    "forget_s",
)


class ChangeError(FormatError):
    """A change that cannot be made; the message says what can be."""


def changed(application: Application, changes: Mapping[str, str]) -> Application:
    """Return an application with changes, as `--set` names them.

    Args:
        application: as it was.
        changes: `policy`, a policy's name or all of it; `policy.NAME`, one of its parameters; `models`, by commas; or a
            field of the application.

    Raises:
        ChangeError: there is no such thing to change.
    """
    if application.stages:
        raise ChangeError(f"{application.name} has stages: what other models of theirs would say is not in a trace")
    for name, text in changes.items():
        if name == "policy":
            application = replace(application, **_policy(text))
        elif name.startswith("policy."):
            given = {**registry.parameters_of(application), name.removeprefix("policy."): _parameter(name, text)}
            application = replace(application, **registry.recorded(application.policy, given))
        elif name == "models":
            application = replace(application, models=tuple(part.strip() for part in text.split(",")))
        elif name in _SETTABLE:
            values: dict[str, Any] = {name: _value(name, text, getattr(application, name))}
            application = replace(application, **values)
        else:
            known = ", ".join(("policy", "policy.PARAMETER", "models", *_SETTABLE))
            raise ChangeError(f"{name} cannot be set here; what can: {known}")
    try:
        registry.policy_of(application)
    except PolicyError as error:
        raise ChangeError(str(error)) from error
    return application


def _policy(text: str) -> dict[str, Any]:
    try:
        return registry.recorded(*registry.given(text))
    except PolicyError as error:
        raise ChangeError(str(error)) from error


def _parameter(name: str, text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return _number(name, text)


def _value(name: str, text: str, before: object) -> object:
    if name in ("combine", "missing"):
        return text
    if isinstance(before, bool):
        return text.lower() in ("true", "yes", "1")
    return _number(name, text)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ChangeError(f"{name}={text}: write a number") from None
