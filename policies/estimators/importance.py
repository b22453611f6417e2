"""Estimators that weigh what was seen: a loss counts as often as the policy would have asked for it.

replay    rows that the policy would have decided alike, taken so that their share is right; the rest is thrown away
ipw       mean of w loss, w = target / logged propensity: unbiased, noisy where weights are large
snipw     the same over the mean of w: a small bias, less noise
clipped   ipw with weights cut at a bound: biased towards 0, quiet
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policies.estimators.errors import EstimateError
from policies.estimators.estimate import Contributions

if TYPE_CHECKING:
    from policies.estimators.log import Log


def ipw(log: Log) -> Contributions:
    """Horvitz and Thompson, J. Am. Stat. Assoc. 47 (1952)."""
    return Contributions(log.costs, np.ones_like(log.costs), log.weights)


def snipw(log: Log) -> Contributions:
    """Swaminathan and Joachims, The self-normalized estimator, NIPS 2015."""
    return Contributions(log.costs, log.weights, log.weights)


def clipped(log: Log, bound: float) -> Contributions:
    """Bottou et al., Counterfactual reasoning and learning systems, JMLR 14 (2013): weights cut at `bound`."""
    seen = log.seen
    costs = seen.by_row(np.minimum(seen.ratios, bound) * seen.losses)
    return Contributions(costs, np.ones_like(costs), log.weights)


def replay(log: Log, seed: int = 0) -> Contributions:
    """Take each row with probability w / largest possible w, and average what is taken.

    Where the log asked all arms equally often and the policy is sure of one, these are the rows in which both agree
    (Li, Chu, Langford and Wang, WSDM 2011).
    """
    asked = log.logged > 0.0
    possible = np.divide(log.target, log.logged, out=np.zeros_like(log.target), where=asked)
    bound = max(float(possible.max()), float(log.weights.max()))
    if bound <= 0.0:
        raise EstimateError("the policy asks nothing that was asked: there is nothing to replay")
    taken = np.random.default_rng(seed).random(len(log.weights)) * bound < log.weights
    costs = np.divide(log.costs, log.weights, out=np.zeros_like(log.costs), where=taken)
    counted = taken.astype(np.float64)
    return Contributions(costs, counted, counted)


def full_information(log: Log) -> Contributions:
    """Average what the policy's arms have cost in each row: nothing is estimated where every loss is known.

    Raises:
        EstimateError: a loss is not known that the policy might have had.
    """
    missing = int(((log.target > 0.0) & ~log.known).any(axis=1).sum())
    if missing:
        raise EstimateError(
            f"in {missing:,} of {len(log.losses):,} decisions an output that this policy may ask for is not known"
        )
    costs = (log.target * np.nan_to_num(log.losses)).sum(axis=1)
    ones = np.ones_like(costs)
    return Contributions(costs, ones, ones)
