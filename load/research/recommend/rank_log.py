"""Open Bandit's uniform log: what our policy and Vowpal Wabbit would have earned, taught by its impressions in order.

Each is judged by an impression before it is taught it (SNIPW, with its interval). There are some 40 clicks in 10,000
impressions, so the intervals are wide.
"""

from __future__ import annotations

from time import process_time
from typing import TYPE_CHECKING, Final

import numpy as np

from load.errors import PeerUnavailableError
from load.research.recommend.rank_lanes import VowpalWabbit
from load.research.recommend.two_speeds import WARM, Lane, impressions
from load.results.tables import Table
from policies.estimators.estimate import Estimate
from policies.estimators.log import Log
from policies.estimators.registry import estimate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from load.research.recommend.two_speeds import Impression

    Floats = NDArray[np.float64]

_ESTIMATOR: Final = "snipw"
_SAID: Final = {"logged": "uniform, as logged", "ours": "`two_speed`, feedback alone", "vw": "Vowpal Wabbit, `-q UA`"}
_OPTIONS: Final = "--epsilon 0.05 -q UA"


def figures(limit: int) -> dict[str, float]:
    """Return clicks an impression, their interval, and the CPU time of an impression, of each that can run here.

    Raises:
        MissingDataError: the data set is not here.
    """
    seen, rows, items = impressions("all", limit)
    found = _estimated("logged", seen, np.full((len(seen), items), 1.0 / items))
    target, cpu_us = _played(seen, rows, _ours(items))
    found |= _estimated("ours", seen, target) | {"obd_ours_cpu_us": cpu_us}
    try:
        target, cpu_us = _played(seen, rows, _theirs(items))
    except PeerUnavailableError:
        return found
    return found | _estimated("vw", seen, target) | {"obd_vw_cpu_us": cpu_us}


def _played(
    seen: Sequence[Impression], rows: Floats, step: Callable[[Impression, Floats], Sequence[float]]
) -> tuple[Floats, float]:
    begun = process_time()
    target = np.array([step(one, x) for one, x in zip(seen, rows, strict=True)])
    return target, (process_time() - begun) / len(seen) * 1e6


def _ours(items: int) -> Callable[[Impression, Floats], Sequence[float]]:
    lane, cold = Lane(WARM, items, 4), np.full(items, -5.0)

    def step(one: Impression, x: Floats) -> Sequence[float]:
        shares = lane.shares(cold, x)
        lane.learn(cold, x, one.item, is_click=one.is_click)
        return shares

    return step


def _theirs(items: int) -> Callable[[Impression, Floats], Sequence[float]]:
    peer, actions = VowpalWabbit(_OPTIONS), [f"|A a{item}" for item in range(items)]

    def step(one: Impression, x: Floats) -> Sequence[float]:
        user = " ".join(f"{number}:{value}" for number, value in enumerate(x))
        lines = [f"shared |U {user}", *actions]
        shares = peer.shares(lines)
        peer.teach(lines, one.item, float(not one.is_click), one.propensity)
        return shares

    return step


def _estimated(name: str, seen: Sequence[Impression], target: Floats) -> dict[str, float]:
    items = target.shape[1]
    logged = np.repeat(np.array([[one.propensity] for one in seen]), items, axis=1)
    clicks = np.full(target.shape, np.nan)
    clicks[np.arange(len(seen)), [one.item for one in seen]] = [float(one.is_click) for one in seen]
    found = estimate(Log(logged, target / target.sum(axis=1, keepdims=True), clicks), (_ESTIMATOR,))[_ESTIMATOR]
    if not isinstance(found, Estimate):
        return {}
    return {f"obd_{name}": found.value, f"obd_{name}_low": found.low, f"obd_{name}_high": found.high}


def table(found: Mapping[str, float]) -> Table:
    """Return what each would have earned."""
    rows = tuple(
        (
            said,
            _worth(found, f"obd_{name}"),
            f"{found[f'obd_{name}_cpu_us']:,.0f}" if f"obd_{name}_cpu_us" in found else "",
        )
        for name, said in _SAID.items()
        if f"obd_{name}" in found or f"obd_{name}_cpu_us" in found
    )
    return Table("Open Bandit", ("who ranks", "clicks an impression (SNIPW, 95 %)", "CPU an impression, us"), rows)


def _worth(found: Mapping[str, float], name: str) -> str:
    if name not in found:
        return "too few tell"
    return f"{found[name]:.4f} ({found[f'{name}_low']:.4f} to {found[f'{name}_high']:.4f})"
