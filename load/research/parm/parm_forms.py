"""The lanes of `parm`: who answers, what stands still, and how much is asked in which form."""

from __future__ import annotations

from typing import NamedTuple


class Lane(NamedTuple):
    """Workers of the network and of a parity model for groups of k, and the share that is asked twice; 0 = none."""

    workers: int
    parity_workers: int = 0
    k: int = 0
    hedge: float = 0.0


CALL_S = (0.025, 0.05)
SERVICE_S = sum(CALL_S) / 2
USED, LOADED = 0.5, 0.9  # of what the workers without more can do
SLO_MS = 1_000.0
EVERY_S, FOR_S = 12.0, (0.1, 0.3)  # a worker stands still so often, for so long


VIRTUAL = {
    "none": Lane(12),
    "equal": Lane(18),
    "k2": Lane(12, 6, 2),
    "hedge": Lane(12, hedge=0.05),
    "k3": Lane(12, 4, 3),
    "k4": Lane(12, 3, 4),
}
LANES = ("none", "equal", "k2", "hedge")  # that real workers run, too
ASKED = (0.3, 0.5, 0.7, 0.9)  # of what the 12 workers can do


class Form(NamedTuple):
    """How much is done."""

    queries: int  # of a run in virtual time
    runs: int
    swept: int  # queries at each of `ASKED`
    lanes: dict[str, Lane]  # of real workers
    epochs: dict[int, int]  # that parity models are trained, by the size of groups
    seconds: float  # of the stretch with stragglers
    beside_s: float  # of the others; 0 = they are left out


FULL = Form(100_000, 3, 15_000, {name: VIRTUAL[name] for name in LANES}, {2: 200, 3: 30, 4: 30}, 120.0, 20.0)
SHORT = Form(10_000, 1, 0, {"none": Lane(6), "k2": Lane(6, 3, 2), "hedge": Lane(6, hedge=0.05)}, {2: 8}, 20.0, 0.0)


def rate(form: Form, used: float) -> float:
    """Return how many queries a second keep that share of the lane `none` busy."""
    return round(form.lanes["none"].workers * used / SERVICE_S, 1)


def seed_of(seed: int, number: int) -> int:
    """Return the seed of one of a run's parts."""
    return seed * 1_000 + number
