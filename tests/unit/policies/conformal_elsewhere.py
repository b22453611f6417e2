"""Makes `conformal_elsewhere.json`: what two published packages make of the same weights of true labels.

Run it by hand in an environment of its own:

    pip install adaptive-conformal-inference==1.0.1 crepes==0.9.1
    python tests/unit/policies/conformal_elsewhere.py

`aci` plays adaptive conformal inference on a stream that changes in the middle: alpha after each block, and misses.
`crepes` makes fixed sets from a calibration set: whether a label of some weight is in a set of some coverage.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from aci import ACI
from crepes.base import ConformalClassifier

OUT = Path(__file__).with_suffix(".json")
COVERAGES, GAMMA, BLOCK, BLOCKS = (0.8, 0.9, 0.95), 0.005, 250, 24
CALIBRATED = 99


def stream(seed: int) -> np.ndarray:
    """Return weights of true labels, rounded: of a good model, that is a poor one after half of the time."""
    rng = np.random.default_rng(seed)
    half = BLOCK * BLOCKS // 2
    return np.round(np.concatenate((rng.beta(5, 1, half), rng.beta(2, 2, half))), 4)


def adaptive(coverage: float, weights: np.ndarray) -> dict[str, list[float]]:
    """Play one stream; the score of a label is 1 less its weight."""
    made = ACI(1.0 - coverage, GAMMA, lookback=500, clip_alpha=False, score_fn=lambda truth, _: 1.0 - truth)
    alphas, misses = [], []
    for block in np.split(weights, BLOCKS):
        missed = 0.0
        for weight in block:
            made.issue(0.0)
            missed += made.observe(float(weight))["err_t"]
        alphas.append(round(made.alpha_t, 6))
        misses.append(missed)
    return {"alphas": alphas, "misses": misses}


def fixed(coverage: float, calibration: np.ndarray, asked: np.ndarray) -> list[bool]:
    """Return whether a label of each weight is in the set of that coverage."""
    classifier = ConformalClassifier()
    classifier.fit(1.0 - calibration)
    sets = classifier.predict_set((1.0 - asked)[:, None], confidence=coverage, smoothing=False)
    return [bool(held) for held in np.asarray(sets)[:, 0]]


def main() -> None:
    """Write what both say."""
    weights = stream(7)
    calibration, asked = weights[:CALIBRATED], weights[CALIBRATED : 3 * CALIBRATED]
    found = {
        "weights": weights.tolist(),
        "calibration": calibration.tolist(),
        "asked": asked.tolist(),
        "adaptive": {str(coverage): adaptive(coverage, weights) for coverage in COVERAGES},
        "fixed": {str(coverage): fixed(coverage, calibration, asked) for coverage in COVERAGES},
    }
    OUT.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
