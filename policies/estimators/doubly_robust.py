"""Estimators with a model of the losses, which the weighed residuals of what was seen correct.

dm      what the model expects: quiet, as wrong as the model
dr      dm + mean of w (loss - expected): unbiased if either the weights or the model are right
dr_os   dr with w shrunk to lambda w / (w^2 + lambda): large weights count less (optimistic shrinkage)
switch  dr with weights above tau left out: there the model alone counts
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.estimators.errors import EstimateError
from policies.estimators.estimate import Contributions

if TYPE_CHECKING:
    from policies.estimators.log import Floats, Log


def dm(log: Log) -> Contributions:
    """Return what the model expects of the policy's decisions."""
    return _corrected(log, np.zeros_like(log.seen.ratios))


def dr(log: Log) -> Contributions:
    """Dudik, Langford and Li, Doubly robust policy evaluation and learning, ICML 2011."""
    return _corrected(log, log.seen.ratios)


def dr_os(log: Log, lambda_: float) -> Contributions:
    """Su, Dimakopoulou, Krishnamurthy and Dudik, ICML 2020; 0 = dm, infinite = dr."""
    ratios = log.seen.ratios
    if lambda_ == np.inf:
        return _corrected(log, ratios)
    return _corrected(log, lambda_ * ratios / (ratios**2 + lambda_) if lambda_ > 0.0 else np.zeros_like(ratios))


def switch(log: Log, tau: float) -> Contributions:
    """Wang, Agarwal and Dudik, Optimal and adaptive off-policy evaluation in contextual bandits, ICML 2017."""
    ratios = log.seen.ratios
    return _corrected(log, np.where(ratios <= tau, ratios, 0.0))


def _corrected(log: Log, ratios: Floats) -> Contributions:
    """Add residuals, weighed by `ratios`, one a known loss, to what the model expects."""
    if log.expected is None:
        raise EstimateError("the log has no expected losses: fit a model of them first (`reward_model`)")
    seen, count, arms = log.seen, len(log.losses), log.losses.shape[1]
    residuals = seen.losses - log.expected[seen.rows, seen.arms]
    costs = np.einsum("na,na->n", log.target, log.expected) + seen.by_row(ratios * residuals)
    # An error of the model's for an arm moves the estimate where residuals do not make up for it. The model was fitted
    # to the arm's rows, so each of their residuals moves it by its part.
    times = np.maximum(seen.by_arm(np.ones_like(ratios), arms), 1.0)
    left = (log.target.sum(axis=0) - seen.by_arm(ratios, arms)) / times
    moved = seen.by_row(residuals * left[seen.arms])
    return Contributions(costs, np.ones(count), log.weights, costs + moved - moved.mean())
