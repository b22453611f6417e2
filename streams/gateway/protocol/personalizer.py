"""Azure AI Personalizer's `rank` and `reward`, for clients that change nothing but their address.

Actions are an application's models (`thompson`, `exp3`, `linucb`, ...), by name, or the candidates of a policy that
ranks (`ridge`, `two_speed`). Features of the context are hashed into as many numbers as the policy takes; for `ridge`
each action with its features, and each of these with each one of the context, too: else a context would raise or lower
all actions alike.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

import numpy as np

from schemas.errors import SchemaError
from schemas.inputs import MAX_CANDIDATES, as_candidates, as_features
from schemas.records import Feedback, Tensor, dense_of, element
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

    from numpy.typing import NDArray

    from schemas.records import Input, Prediction
    from streams.gateway.protocol.values import HttpRequest, InputForm

_MOST_FEATURES: Final = 4_096  # of a context or an action
_LONGEST_NAME: Final = 1_024  # with those of the objects around it
_MOST_PAIRS: Final = 1 << 17  # of features of the context and of actions, in one request
_SPREAD: Final = 2_654_435_761  # Knuth's: what a place is multiplied with, so that pairs do not fall together


class RankingLoop(NamedTuple):
    """What is known of an application that ranks actions."""

    arms: tuple[str, ...]  # its models
    width: int = 0  # numbers that its policy takes; 0 = none
    ranks: str = ""  # "" = it chooses among its models; ids, or rows of features, of candidates
    is_regression: bool = False  # whether it learns what the reward is, and not what it cost


class _HashedTerms(NamedTuple):
    """Features by the places of their names."""

    places: NDArray[np.int64]
    values: NDArray[np.float64]


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


def reward(event: str, body: bytes, now_us: int, *, is_label: bool = False) -> ParsedFeedback:
    """Return the feedback of a `reward` request; with its value as the label where a policy learns that.

    Raises:
        RequestRefusedError: its value is no number from 0 to 1.
    """
    value = number(document(body), "value")
    if value is None or not 0 <= value <= 1:
        raise RequestRefusedError(400, "value is a number from 0 to 1")
    feedback = Feedback(event, float(value) if is_label else None, 1.0 - value, now_us)
    return ParsedFeedback(((feedback, None),), HttpReply(b"", 204))


def hashed(given: object, width: int) -> tuple[float, ...]:
    """Return features of any names as so many numbers: a number is added at its name's place, a text counts 1.

    Raises:
        RequestRefusedError: they are too many.
    """
    return tuple(_summed([_terms(given)], width).tolist())


def _terms(given: object) -> _HashedTerms:
    found: list[tuple[int, float]] = []
    for name, value in _leaves(given):
        if isinstance(value, str):
            found.append((crc32(f"{name}={value}".encode()), 1.0))
        elif isinstance(value, int | float):  # true is 1
            found.append((crc32(name.encode()), float(value)))
    places, values = zip(*found, strict=True) if found else ((), ())
    return _HashedTerms(np.array(places, np.int64), np.array(values, np.float64))


def _summed(terms: Sequence[_HashedTerms], width: int) -> NDArray[np.float64]:
    if not width:
        return np.zeros(0)
    places = np.concatenate([each.places for each in terms]) % width
    return np.asarray(np.bincount(places, np.concatenate([each.values for each in terms]), width), np.float64)


def _pairs(context: _HashedTerms, action: _HashedTerms) -> _HashedTerms:
    places = (context.places[:, None] * _SPREAD ^ action.places) & 0x7FFF_FFFF
    return _HashedTerms(places.ravel(), np.outer(context.values, action.values).ravel())


def _rows(given: object, actions: dict[str, object], left: list[str], width: int) -> NDArray[np.float64]:
    """Return a row of features for each action that is left.

    Raises:
        RequestRefusedError: there are too many features.
    """
    context = _terms(given)
    each = [_terms([{"id": name}, actions[name]]) for name in left]
    if context.places.size * sum([action.places.size for action in each]) > _MOST_PAIRS:
        raise RequestRefusedError(
            400, f"more than {_MOST_PAIRS:,} pairs of a feature of the context and one of an action: send fewer"
        )
    return np.array([_summed([context, action, _pairs(context, action)], width) for action in each])


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
    row = np.zeros(takes.shape, element(takes.dtype))
    if row.size == len(features) and not takes.inputs:
        row.flat[:] = features
    return dense_of(row)


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
        return as_candidates(_rows(given.get("contextFeatures"), actions, left, loop.width))
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
