"""Worlds in which the truth follows from enumeration, and their logs: actions by context, and questions in turn."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from load.research.learning.doubtful import chance
from policies.cascade import ASKED
from schemas.records import Decision, JoinStatus, ModelOutput, Observation, Outcome, Step, Tensor
from streams.evaluation.history import KnownApplication

if TYPE_CHECKING:
    from pathlib import Path

# Of the world of actions: costs and probabilities of each action in each context, and what share of it is dropped.
COSTS = np.array([[0.2, 0.5, 0.9], [0.7, 0.4, 0.1]])
SHARES = np.array([[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]])
DROPPED = (0.0, 0.5)
ALWAYS_FIRST = float((COSTS[:, 0] * [1.0 / 3.0, 2.0 / 3.0]).sum())  # the second context stands for twice as much
# Of the world of questions: how sure each model may be, alike often, and how often it errs then.
SURE = (0.55, 0.7, 0.95)
ERRS = np.array([[0.5, 0.3, 0.05], [0.4, 0.2, 0.04], [0.1, 0.05, 0.01]])
MODELS = ("small", "middle", "large")
ASKS_ON = 0.4  # of the log's policy, whatever was answered
_STEP_US = 1_000_000


def _value() -> float:
    asks = np.array([chance(sure) for sure in SURE])
    stops = [float(np.mean((1.0 - asks) * ERRS[arm])) for arm in range(2)]
    on = float(asks.mean())
    return stops[0] + on * (stops[1] + on * float(ERRS[2].mean()))


TRUE_IN_TURN = _value()  # models' confidences are drawn apart


def write_actions(file: Path, rows: int, seed: int) -> None:
    """Write a log of `dsjson`; of the second context half of the events were dropped."""
    random = np.random.default_rng(seed)
    with file.open("w", encoding="utf-8") as out:
        for number in range(rows):
            context = int(random.integers(2))
            shares = SHARES[context].tolist()
            shown = int(random.choice(3, p=shares))
            order = [shown, *[action for action in range(3) if action != shown]]
            event = {
                "_label_cost": float(random.random() < COSTS[context][shown]), "_label_probability": shares[shown],
                "_label_Action": shown + 1, "_labelIndex": shown, "EventId": str(number),
                "a": [action + 1 for action in order], "p": [shares[action] for action in order],
                "c": {"user": {"context": context}, "_multi": [{"a": {"n": str(one)}} for one in range(3)]},
                "pdrop": DROPPED[context],
            }  # fmt: skip
            out.write(json.dumps(event) + "\n")


def write_lesson(file: Path) -> None:
    """Write a log in which the first action costs nothing and the others all."""
    plain = {"a": [1, 2, 3], "p": [1 / 3] * 3, "c": {"_multi": [{"a": {"n": str(one)}} for one in range(3)]}}
    lines = [
        {"_label_cost": min(1, one), "_label_probability": 1 / 3, "_label_Action": one + 1, "_labelIndex": one, **plain}
        for one in range(3)
    ]
    file.write_text("".join([json.dumps(line) + "\n" for line in lines * 50]), encoding="utf-8")


def questions(rows: int, seed: int, *, everything: bool) -> tuple[KnownApplication, float]:
    """Return a log of questions, and what the judged policy would have cost on just these queries.

    Args:
        rows: decisions.
        seed: of the world.
        everything: whether the log's policy asks all models; else it asks on with `ASKS_ON`.
    """
    random = np.random.default_rng(seed)
    seen, outputs, exact = [], {}, 0.0
    for number in range(rows):
        places = random.integers(len(SURE), size=3)
        losses = (random.random(3) < ERRS[np.arange(3), places]).astype(float).tolist()
        sure = [SURE[place] for place in places]
        on = [chance(sure[0]), chance(sure[1])]
        exact += (1.0 - on[0]) * losses[0] + on[0] * ((1.0 - on[1]) * losses[1] + on[1] * losses[2])
        asked = 3 if everything else 1 + int(random.random() < ASKS_ON) * (1 + int(random.random() < ASKS_ON))
        one = _observation(number, losses, sure, asked, everything=everything)
        seen.append(one)
        outputs[one.query_id] = tuple([_output(arm, losses[arm], sure[arm]) for arm in range(asked)])
    history = KnownApplication("in-turn", tuple(seen), {}, rows * _STEP_US * 2, 0.0, outputs=outputs)
    return history, exact / rows


def _observation(number: int, losses: list[float], sure: list[float], asked: int, *, everything: bool) -> Observation:
    known = tuple([loss if arm < asked else None for arm, loss in enumerate(losses)])
    steps: tuple[Step, ...] = ()
    shares = (1.0, 1.0, 1.0)
    if not everything:
        steps = tuple([
            Step("escalate", (arm,), 0, ASKS_ON, ASKED if arm < asked else "kept", sure[arm - 1])
            for arm in range(1, min(asked + 1, 3))
        ])  # fmt: skip
        shares = (1.0, ASKS_ON, ASKS_ON**2 if asked > 1 else 0.0)
    decision = Decision(tuple(range(asked)), 0, "in-turn", "logged", MODELS, shares)
    at = number * _STEP_US
    its = None, decision, known, losses[asked - 1], 0, JoinStatus.JOINED, at, at
    return Observation(f"q-{number}", "in-turn", *its, steps=steps)


def _output(arm: int, loss: float, sure: float) -> ModelOutput:
    scores = [1.0 - sure] * 2
    scores[int(loss)] = sure
    return ModelOutput(MODELS[arm], "1", Outcome.OK, int(loss), Tensor.of(np.array(scores)))
