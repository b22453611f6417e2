"""Payments of which few are frauds, and three models of them: who is right most often misses most frauds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FRAUD, OK = "fraud", "ok"
FRAUDS: Final = 0.04  # of all payments
WARY: Final = 40.0  # what a fraud weighs in the training of the wary model
_TRAINED: Final = 6_000
_APART: Final = (1.6, -1.1, 0.8, 0.0)  # by how much the features of frauds differ, in standard deviations


class Payments(NamedTuple):
    """What is true of payments, and what each model says of them."""

    labels: tuple[str, ...]
    answers: Mapping[str, tuple[str, ...]]


def payments(count: int, seed: int) -> Payments:
    """Return so many payments that no model has been trained on."""
    random = np.random.default_rng(seed)
    x, is_fraud = _drawn(_TRAINED, random)
    models = {
        "plain": LogisticRegression().fit(x, is_fraud),
        "forest": RandomForestClassifier(30, min_samples_leaf=5, random_state=seed).fit(x, is_fraud),
        "wary": LogisticRegression(class_weight={0: 1.0, 1: WARY}).fit(x, is_fraud),
    }
    x, is_fraud = _drawn(count, random)
    answers = {name: _named(model.predict(x)) for name, model in models.items()}
    return Payments(_named(is_fraud), answers)


def _drawn(count: int, random: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    is_fraud = random.random(count) < FRAUDS
    return random.normal(size=(count, len(_APART))) + np.outer(is_fraud, _APART), is_fraud


def _named(is_fraud: NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple([FRAUD if each else OK for each in is_fraud.tolist()])
