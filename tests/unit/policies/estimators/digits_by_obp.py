"""Makes `digits_by_obp.json` and `digits_run.npz`: obp's digits example, and what its estimators say of the first run.

Run it by hand in an environment of its own, with Python 3.10: obp 0.5.7 takes none above.

    pip install obp==0.5.7 --no-deps
    pip install numpy==1.23.5 scipy==1.10.1 pandas==1.5.3 scikit-learn==1.1.3 tqdm pyyaml matplotlib==3.7.5 seaborn
    PYTHONPATH=. python tests/unit/policies/estimators/digits_by_obp.py

torch is needed by obp's policy learners alone, which are not used; a stand-in takes its place.
"""

# ruff: noqa: E402

from __future__ import annotations

import json
import sys
from pathlib import Path


class _Any(type):
    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class StandIn(metaclass=_Any):
    """A class that has every attribute, itself: whatever may be imported, derived from or named in a type."""


for module in ("torch", "torch.nn", "torch.nn.functional", "torch.optim", "torch.utils", "torch.utils.data"):
    sys.modules.setdefault(module, StandIn)  # type: ignore[arg-type]

import numpy as np
from obp.dataset import MultiClassToBanditReduction
from obp.ope import (
    DirectMethod,
    DoublyRobust,
    DoublyRobustWithShrinkage,
    InverseProbabilityWeighting,
    OffPolicyEvaluation,
    RegressionModel,
    SelfNormalizedInverseProbabilityWeighting,
    SwitchDoublyRobust,
)
from sklearn.datasets import load_digits
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from policies.estimators.log import Log
from policies.estimators.registry import Estimate, estimate

HERE = Path(__file__).parent
RUNS, SEED, ALPHA_B, ALPHA_E = 30, 12345, 0.4, 0.9
TREES = {"n_estimators": 30, "max_depth": 5, "min_samples_leaf": 10, "random_state": SEED}
ESTIMATORS = (
    DirectMethod(),
    InverseProbabilityWeighting(),
    SelfNormalizedInverseProbabilityWeighting(),
    DoublyRobust(),
    SwitchDoublyRobust(lambda_=10, estimator_name="switch"),
    DoublyRobustWithShrinkage(lambda_=100, estimator_name="dr_os"),
)
SAME = ("dm", "ipw", "snipw", "dr")  # under one name here and there, without a parameter


def main() -> None:
    """Play the runs of obp's examples/multiclass, and write what comes of them."""
    images, labels = load_digits(return_X_y=True)
    behaviour = LogisticRegression(max_iter=10_000, C=100, random_state=SEED)
    dataset = MultiClassToBanditReduction(images, labels, behaviour, alpha_b=ALPHA_B)
    errors: dict[str, list[float]] = {each.estimator_name: [] for each in ESTIMATORS}
    differences = []
    for run in range(RUNS):
        dataset.split_train_eval(eval_size=0.7, random_state=run)
        feedback = dataset.obtain_batch_bandit_feedback(random_state=run)
        target = dataset.obtain_action_dist_by_eval_policy(RandomForestClassifier(**TREES), alpha_e=ALPHA_E)
        truth = dataset.calc_ground_truth_policy_value(target)
        learner = GradientBoostingClassifier(learning_rate=0.01, **TREES)
        model = RegressionModel(n_actions=dataset.n_actions, base_model=learner)
        seen = (feedback["context"], feedback["action"], feedback["reward"])
        expected = np.round(model.fit_predict(*seen, n_folds=3, random_state=SEED), 6)
        given = {"action_dist": target, "estimated_rewards_by_reg_model": expected}
        ope = OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=list(ESTIMATORS))
        values = ope.estimate_policy_values(**given)
        for name, value in values.items():
            errors[name].append(abs(value - truth) / truth)
        differences.append(_difference(feedback, target[:, :, 0], expected[:, :, 0], values))
        if run == 0:
            first = {name: float(value) for name, value in values.items()}
            columns = {name: feedback[name] for name in ("action", "reward", "pscore")}
            chosen = target[:, :, 0].argmax(axis=1)
            np.savez_compressed(HERE / "digits_run.npz", **columns, chosen=chosen, expected=expected[:, :, 0])
    means = {name: float(np.mean(found)) for name, found in errors.items()}
    report = {"runs": RUNS, "relative_errors": means, "largest_difference": max(differences), "first_run": first}
    (HERE / "digits_by_obp.json").write_text(json.dumps(report, indent=1) + "\n")


def _difference(feedback: dict, target: np.ndarray, expected: np.ndarray, values: dict) -> float:
    """Return the largest difference between our estimates and obp's."""
    rows = np.arange(len(target))
    rewards, logged = np.full(target.shape, np.nan), np.full(target.shape, 0.5)
    rewards[rows, feedback["action"]] = feedback["reward"]
    logged[rows, feedback["action"]] = feedback["pscore"]
    found = estimate(Log(logged, target, rewards, expected), SAME, least=0.0)
    return max(abs(each.value - values[name]) for name, each in found.items() if isinstance(each, Estimate))


if __name__ == "__main__":
    main()
