"""The page for those who come from Personalizer: what it converts is what the events say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs" / "from-personalizer.md"
ARMS = ("news", "sports", "weather")


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """Run the page's code."""
    scope: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL):
        exec(block, scope)
    return scope


def event(number: int, action: int, reward: float, **more: object) -> str:
    """Make an event as Personalizer logs it; the action shown had the probability 0.8."""
    others = [other for other in (1, 2, 3) if other != action]
    fields: dict[str, object] = {"_label_cost": -reward, "_label_probability": 0.8, "_label_Action": action}
    fields |= {"_labelIndex": action - 1, "o": [{"v": reward, "EventId": f"e{number}", "ActionTaken": False}]}
    fields |= {"Timestamp": "2026-08-04T16:31:29.2460000Z", "Version": "1", "EventId": f"e{number}"}
    fields |= {"a": [action, *others], "c": {}, "p": [0.8, 0.1, 0.1]}
    return json.dumps(fields | more)


def test_an_event_becomes_an_observation(page: dict[str, Any]) -> None:
    """The action that was shown, with its probability, and the reward as a loss."""
    seen = page["observation"](event(7, 2, 0.75), ARMS, "shop")
    assert seen.query_id == "e7"
    assert seen.decision.chosen == (1,)
    assert seen.decision.propensities == (0.1, 0.8, 0.1)
    assert seen.losses == (None, 0.25, None)


def test_an_event_that_was_never_activated_is_left_out(page: dict[str, Any]) -> None:
    """Its user never saw the action."""
    assert page["observation"](event(1, 1, 0.0, DeferredAction=True), ARMS, "shop") is None


def test_events_tell_what_a_policy_would_have_made_of_them(page: dict[str, Any]) -> None:
    """Personalizer mostly showed the worst action here; Thompson would have found a better one."""
    random = np.random.default_rng(1)
    events = []
    for number in range(3_000):
        action = 1 if random.random() < 0.8 else int(random.integers(2, 4))
        reward = float(random.random() < (0.2, 0.9, 0.3)[action - 1])
        line = json.loads(event(number, action, reward))
        order = [action, *(other for other in (1, 2, 3) if other != action)]
        line["p"] = [0.8 if arm == 1 else 0.1 for arm in order]
        events.append(json.dumps(line))
    said = page["would_be_better"](events, ARMS, "thompson()")
    difference, lower = map(float, re.findall(r"-?[\d.]+", said)[:2])
    assert lower > 0.0
    assert 0.4 < difference < 0.7
