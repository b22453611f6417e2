"""Whose token opens which door: every route of the gateway, with nobody's, another's and its own token."""

from __future__ import annotations

import hashlib
import logging
from typing import TYPE_CHECKING

import pytest

from schemas.records import Application
from streams.gateway.protocol.openapi import OPERATIONS, PathEntry
from streams.gateway.tokens import BearerTokens
from tests.unit.streams.gateway.requests import Answered, Served

if TYPE_CHECKING:
    from collections.abc import Mapping

OWN, OTHERS = "0123456789abcdef-iris", "0123456789abcdef-other"
TOKENS = f"{OWN} iris as web\n{OTHERS} other\n"
ROW = [5.1, 3.5, 1.4, 0.2]
# Of each schema of a body one that is taken.
BODIES: Mapping[str, object] = {
    "": {},
    "Inference": {"inputs": [{"name": "input", "datatype": "FP32", "shape": [1, 4], "data": ROW}]},
    "Predict": {"instances": [ROW]},
    "Invocation": {"instances": [ROW]},
    "Rank": {"actions": [{"id": "forest", "features": []}, {"id": "net", "features": []}], "contextFeatures": []},
    "Feedback": {"id": "q1", "label": 0},
    "Reward": {"value": 0.5},
}
# Who reaches the gateway may see these: health, its version, figures, what is served. A route that is added is closed.
OPEN = {
    "/v2/health/live",
    "/v2/health/ready",
    "/v2",
    "/ping",
    "/version",
    "/health",
    "/ready",
    "/metrics",
    "/openapi.json",
}
CLOSED = [one for one in OPERATIONS if one.path not in OPEN]
NAMED = [one for one in CLOSED if "{application}" in one.path]
NAMELESS = [one for one in CLOSED if "{application}" not in one.path]


def served() -> Served:
    """Return a gateway of two applications."""
    models = ("forest", "net")
    return Served(applications=[Application("iris", models), Application("other", models)], tokens=TOKENS)


async def knock(there: Served, one: PathEntry, token: str | None) -> Answered:
    """Send what a route takes."""
    path = one.path.format(application="iris", version="3", event="q1")
    body = BODIES[one.takes] if one.method == "post" else b""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return await there.request(one.method.upper(), path, body, {"content-type": "application/json"} | headers)


def written(there: Served) -> int:
    """Return how many queries and how much feedback there were."""
    return sum(map(len, there.asker.batches)) + len(there.asker.told)


def name(one: PathEntry) -> str:
    """Name a route."""
    return f"{one.method} {one.path}"


@pytest.mark.parametrize("one", CLOSED, ids=name)
async def test_without_a_known_token_a_door_stays_shut(one: PathEntry) -> None:
    """401, and nothing is written."""
    async with served() as there:
        for token in (None, "0123456789abcdef-none", OWN[:-1], OWN.upper(), ""):
            assert (await knock(there, one, token)).status == 401
        assert written(there) == 0


@pytest.mark.parametrize("one", NAMED, ids=name)
async def test_another_application_s_token_is_refused(one: PathEntry) -> None:
    """403 on every path that names an application, and nothing is written; its own token is let in."""
    async with served() as there:
        assert (await knock(there, one, OTHERS)).status == 403
        assert written(there) == 0
        assert (await knock(there, one, OWN)).status in {200, 201, 202, 204}
        assert written(there) == (one.method == "post")


@pytest.mark.parametrize("one", NAMELESS, ids=name)
async def test_where_no_application_is_named_it_is_the_token_s_own(one: PathEntry) -> None:
    """Whatever a request names in its body or its ids; so no token reaches another application there."""
    async with served() as there:
        assert (await knock(there, one, OTHERS)).status in {200, 201, 204}
        assert {query.application for batch in there.asker.batches for query in batch} <= {"other"}
        assert {feedback.application for feedback, _ in there.asker.told} <= {"other"}


@pytest.mark.parametrize("one", [one for one in OPERATIONS if one.path in OPEN], ids=name)
async def test_what_is_open_asks_for_no_token(one: PathEntry) -> None:
    """And writes nothing."""
    async with served() as there:
        assert (await knock(there, one, None)).status == 200
        assert written(there) == 0


async def test_feedback_says_whom_it_may_teach_and_who_tells_it() -> None:
    """Ids are a client's own, and another application's may be the same: the joiner compares."""
    async with served() as there:
        for token, path in ((OWN, "/v2/models/iris/feedback"), (OTHERS, "/v2/models/other/feedback")):
            told = {"feedback": [{"id": "visit-1", "label": 1}, {"id": "visit-2", "loss": 0.5}]}
            assert (await there.post(path, told, Authorization=f"Bearer {token}")).status == 202
        reward = await there.post("/personalizer/v1.0/events/visit-1/reward", {"value": 1}, **{"api-key": OTHERS})
        assert reward.status == 204
    hashed = f"token-{hashlib.sha256(OTHERS.encode()).hexdigest()[:8]}"
    said = [(feedback.application, feedback.teacher) for feedback, _ in there.asker.told]
    assert said == [("iris", "web")] * 2 + [("other", hashed)] * 3


async def test_no_token_is_ever_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Nor in a reply: those that are known, those that are not."""
    caplog.set_level(logging.DEBUG)
    async with served() as there:
        replies = [
            await knock(there, one, token) for one in OPERATIONS for token in (OWN, OTHERS, "0123456789abcdef-none")
        ]
    assert "0123456789abcdef" not in caplog.text
    assert not any(b"0123456789abcdef" in reply.body for reply in replies)


def test_a_token_is_found_by_its_hash_alone() -> None:
    """So how long a look-up takes tells nothing of a token, and none stands in memory."""
    tokens = BearerTokens(TOKENS)
    assert tokens.grant({b"authorization": f"bearer {OWN}".encode()}).teacher == "web"
    assert not any(secret.encode() in repr(vars(tokens)).encode() for secret in (OWN, OTHERS))
