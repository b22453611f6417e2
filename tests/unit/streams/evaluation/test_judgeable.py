"""What `evaluate` says that a log can judge is what it does judge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from schemas.records import Step
from streams.evaluation.candidate import candidate
from streams.evaluation.errors import EvaluationError
from streams.evaluation.evaluation import Evaluation, evaluate
from streams.evaluation.history import KnownApplication
from streams.evaluation.judgeable import BY_WEIGHTS, EXACTLY, IN_PART, NO, judgeable
from tests.histories import observation, served
from tests.walks import ensemble, population

PAST = KnownApplication("shop", (), {}, 10**13, 60.0)


def of_rows(rows: list) -> KnownApplication:  # type: ignore[type-arg]
    """Return a history with outputs."""
    outputs = {seen.query_id: known for seen, known in rows}
    return replace(PAST, observations=tuple([seen for seen, _ in rows]), outputs=outputs)


BANDIT = replace(PAST, observations=served("epsilon_greedy(epsilon=0.5)", 300))
HALF_BLIND = replace(
    BANDIT,
    observations=tuple(
        observation(number, 0, (1.0, None, None), (0.5, 0.5, 0.0)) if number % 2 else seen
        for number, seen in enumerate(BANDIT.observations)
    ),
)
WITH_FEATURES = replace(
    BANDIT,
    observations=tuple(
        seen._replace(decision=seen.decision._replace(features=(1.0, 2.0))) for seen in BANDIT.observations
    ),
)
ENSEMBLE = of_rows(ensemble(300))
BLIND_ENSEMBLE = replace(ENSEMBLE, outputs=None)
IN_TURN = of_rows(population()[0])

EXAMPLES = {"always": "always:{}", "linucb": "linucb(features=2)", "ensembles": "exp4", "cascade": "cascade"}
KINDS = {"always": "always:MODEL", "linucb": "bandits with", "cascade": "in turn: cascade"}
LOGS = {"bandit": BANDIT, "features": WITH_FEATURES, "ensemble": ENSEMBLE, "blind": BLIND_ENSEMBLE, "turns": IN_TURN}


def told(past: KnownApplication, word: str) -> str:
    """Return what is said of the policies whose line has this word."""
    (line,) = [one for one in judgeable(past) if one.policies.startswith(KINDS.get(word, word))]
    return line.how


def does(past: KnownApplication, policy: str) -> Evaluation | None:
    """Return what comes of a policy; None if it is refused."""
    last = past.observations[0].decision.arms[-1]
    try:
        return evaluate(past, candidate(policy.format(last)), 60.0)
    except EvaluationError:
        return None


@pytest.mark.parametrize(
    ("log", "word", "how"),
    [
        ("bandit", "always", BY_WEIGHTS), ("bandit", "linucb", NO),
        ("bandit", "ensembles", NO), ("bandit", "cascade", NO),
        ("features", "linucb", BY_WEIGHTS),
        ("ensemble", "always", EXACTLY), ("ensemble", "ensembles", EXACTLY), ("ensemble", "cascade", EXACTLY),
        ("blind", "always", EXACTLY), ("blind", "ensembles", NO), ("blind", "cascade", NO),
        ("turns", "always", BY_WEIGHTS), ("turns", "ensembles", BY_WEIGHTS), ("turns", "cascade", BY_WEIGHTS),
    ],
)  # fmt: skip
def test_what_a_log_can_judge_it_judges_and_what_not_it_refuses(log: str, word: str, how: str) -> None:
    """Held against `evaluate` itself: exactly, by weights, or not at all."""
    past = LOGS[log]
    assert told(past, word) == how
    found = does(past, EXAMPLES[word])
    if how == NO:
        assert found is None or found.recommendation.startswith("No recommendation")
        return
    assert found is not None
    exact = found.estimates["full_information"]
    assert (type(exact).__name__ == "Estimate") == (how == EXACTLY)
    assert found.unsupported == pytest.approx(0.0)


def test_a_log_without_overlap_judges_in_part_and_says_of_how_much() -> None:
    """In one of two decisions a model had no probability."""
    (line,) = [one for one in judgeable(HALF_BLIND) if "bandits: " in one.policies]
    assert (line.how, "in 50% of the decisions" in line.why) == (IN_PART, True)
    found = does(HALF_BLIND, "always:{}")
    assert found is not None
    assert "knows nothing of 50%" in found.recommendation


def test_questions_in_turn_are_told_from_one_model_that_was_never_asked() -> None:
    """Behind a question that was not put stands a probability of 0, which is none that the model never has."""
    first = IN_TURN.observations[0]
    assert (first.decision.propensities[2], isinstance(first.steps[0], Step)) == (0.0, True)
    assert told(IN_TURN, "in turn: your own") == BY_WEIGHTS
