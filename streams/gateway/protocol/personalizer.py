"""Azure AI Personalizer's `rank` and `reward`, for clients that change nothing but their address.

Actions are an application's models (`thompson`, `exp3`, `linucb`, ...), by name, or the candidates of a policy that
ranks (`ridge`, `two_speed`). Features of the context are hashed into as many numbers as the policy takes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from schemas.errors import SchemaError
from schemas.inputs import MAX_CANDIDATES, as_candidates, as_features
from schemas.records import Feedback, Tensor
from streams.gateway.protocol import answers
from streams.gateway.protocol.values import (
    HttpQuestion,
    HttpReply,
    ParsedFeedback,
    ParsedRequest,
    RequestRefusedError,
    document,
    dumped,
    number,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from schemas.records import Input, Prediction
    from streams.gateway.protocol.values import HttpRequest, InputForm

_MOST_FEATURES: Final = 4_096  # of a context or an action
_LONGEST_NAME: Final = 1_024  # with those of the objects around it


class RankingLoop(NamedTuple):
    """What is known of an application that ranks actions."""

    arms: tuple[str, ...]  # its models
    width: int = 0  # numbers that its policy takes; 0 = none
    ranks: str = ""  # "" = it chooses among its models; ids, or rows of features, of candidates


def parse(request: HttpRequest, loop: RankingLoop, new_id: str) -> ParsedRequest:
    """Return what a `rank` request asks.

    Raises:
        RequestRefusedError: its actions are not those that the application knows, or it is no such request.
    """
    given = document(request.body)
    actions = _actions(given)
    barred = [] if given.get("excludedActions") is None else given["excludedActions"]
    if not isinstance(barred, list) or not all(isinstance(one, str) for one in barred):
        raise RequestRefusedError(400, "excludedActions is a list of ids")
    excluded = {*barred}
    left = [name for name in actions if name not in excluded]
    if not left:
        raise RequestRefusedError(400, "all actions are excluded")
    name = text(given, "eventId") or new_id
    candidates = _candidates(given, loop, actions, left)
    features = hashed(given.get("contextFeatures"), loop.width) if candidates is None else ()
    try:
        numbers = as_features(features)
    except SchemaError as error:
        raise RequestRefusedError(400, str(error)) from error
    ask = HttpQuestion(
        request.application,
        (_input(request.takes, numbers),),
        name,
        features=(numbers,) if numbers else (),
        candidates=candidates,
        top=len(left) if candidates is not None else 1,
    )
    return ParsedRequest(ask, partial(render, name, tuple(actions), tuple(left)))


def render(name: str, actions: tuple[str, ...], left: tuple[str, ...], predictions: Sequence[Prediction]) -> HttpReply:
    """Write a ranking, the chosen action first; excluded ones stay where they were, with the probability 0.

    Raises:
        RequestRefusedError: nothing was decided.
    """
    ordered = _ranked(predictions[0], left)
    shares = dict(ordered)
    chosen = iter(ordered)
    ranking = [{"id": one, "probability": 0.0} if one not in shares else _entry(next(chosen)) for one in actions]
    body = {"ranking": ranking, "eventId": name, "rewardActionId": ordered[0][0]}
    return HttpReply(dumped(body), 201)


def reward(event: str, body: bytes, now_us: int) -> ParsedFeedback:
    """Return the feedback of a `reward` request.

    Raises:
        RequestRefusedError: its value is no number from 0 to 1.
    """
    value = number(document(body), "value")
    if value is None or not 0 <= value <= 1:
        raise RequestRefusedError(400, "value is a number from 0 to 1")
    return ParsedFeedback(((Feedback(event, None, 1.0 - value, now_us), None),), HttpReply(b"", 204))


def hashed(given: object, width: int) -> tuple[float, ...]:
    """Return features of any names as so many numbers: a number is added at its name's place, a text counts 1.

    Raises:
        RequestRefusedError: they are too many.
    """
    found = [0.0] * width
    if not width:
        return ()
    for name, value in _leaves(given):
        if isinstance(value, str):
            found[crc32(f"{name}={value}".encode()) % width] += 1.0
        elif isinstance(value, int | float):  # true is 1
            found[crc32(name.encode()) % width] += float(value)
    return tuple(found)


def _leaves(given: object) -> Iterator[tuple[str, object]]:
    """Yield texts, numbers and nulls with the names on the way to them; lists add none.

    Raises:
        RequestRefusedError: there are too many, lists and objects among them.
    """
    waiting, seen = [("", given)], 0
    while waiting:
        name, one = waiting.pop()
        seen += len(one) if isinstance(one, dict | list) else 0
        if seen > _MOST_FEATURES or len(name) > _LONGEST_NAME:
            raise RequestRefusedError(400, f"more than {_MOST_FEATURES:,} features, or names that are too long")
        if isinstance(one, dict):
            waiting += [(f"{name}.{key}" if name else str(key), value) for key, value in one.items()]
        elif isinstance(one, list):
            waiting += [(name, value) for value in one]
        else:
            yield name, one


def _input(takes: InputForm | None, features: tuple[float, ...]) -> Input:
    """Return a row that models take: the features where these are as many numbers, else zeros."""
    if takes is None:
        return Tensor.of(np.array(features, np.float64))
    if takes.dtype is None:
        return ""
    row = np.zeros(takes.shape, takes.dtype)
    if row.size == len(features):
        row.flat[:] = features
    return Tensor.of(row)


def _actions(given: dict[str, Any]) -> dict[str, object]:
    """Return features by action."""
    actions = given.get("actions")
    if not isinstance(actions, list) or not actions or not all(isinstance(one, dict) for one in actions):
        raise RequestRefusedError(400, 'actions is a list such as [{"id": "news", "features": []}]')
    found = {text(one, "id") or "": one.get("features") for one in actions}
    if len(found) != len(actions) or "" in found:
        raise RequestRefusedError(400, "each action has an id, and no two the same")
    return found


def _candidates(
    given: dict[str, Any], loop: RankingLoop, actions: dict[str, object], left: list[str]
) -> Tensor | tuple[str, ...] | None:
    if not loop.ranks:
        if {*left} != {*loop.arms}:
            raise RequestRefusedError(
                400,
                f"the actions of this application are its models: {', '.join(loop.arms)}. For actions that change, give"
                " it a policy that ranks candidates (`ridge`, `two_speed`)",
            )
        return None
    if len(left) > MAX_CANDIDATES:
        raise RequestRefusedError(400, f"{len(left):,} actions: at most {MAX_CANDIDATES} are ranked")
    try:
        if loop.ranks == "ids":
            return as_candidates(left)
        context = np.array(hashed(given.get("contextFeatures"), loop.width))
        return as_candidates(np.array([context + hashed(actions[name], loop.width) for name in left]))
    except (SchemaError, TypeError) as error:
        raise RequestRefusedError(400, str(error)) from error


def _ranked(prediction: Prediction, left: tuple[str, ...]) -> list[tuple[str, float]]:
    """Return actions and probabilities, the chosen one first."""
    decision, first = prediction.decision, prediction.first
    if isinstance(prediction.answer, Tensor) and len(first) == len(left):
        places = [int(place) for place in prediction.answer.numpy().tolist()]
        order = [*places, *[place for place in range(len(left)) if place not in places]]
        return [(left[place], first[place]) for place in order]
    if decision is None or not decision.chosen:
        reason = prediction.message or prediction.reason or "nothing was decided"
        status = answers.status_of(prediction)
        raise RequestRefusedError(status, f"no ranking: {reason}", answers.RETRY_S if status == 503 else 0)
    shares = dict(zip(decision.arms, decision.propensities, strict=True))
    best = decision.arms[decision.chosen[0]]
    rest = sorted((name for name in left if name != best), key=lambda name: -shares.get(name, 0.0))
    return [(name, shares.get(name, 0.0)) for name in (best, *rest)]


def _entry(one: tuple[str, float]) -> dict[str, object]:
    return {"id": one[0], "probability": one[1]}
