"""Observations of a model's versions, scripted: whose losses are known, and what they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from schemas.records import Candidate, Decision, JoinStatus, Observation, VersionLoss

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

DECISION = Decision((0,), 0, "digits", "single()", ("forest",), (1.0,))
WINDOW_US = 600_000_000
SECOND_US = 1_000_000


def plan(**changes: object) -> Candidate:
    """Make the wish for version 2 of forest; fields may be changed."""
    fields: dict[str, object] = {"kind": "version", "name": "forest", "candidate": "2", "incumbent": "1"}
    fields |= {"since_us": 0, "steps": (0.1, 0.25, 0.5, 1.0)}
    return Candidate(**(fields | changes))  # type: ignore[arg-type]


def seen(query_id: str, losses: Mapping[str, float], application: str = "digits") -> Observation:
    """Make an observation with the losses of forest by version."""
    versions = tuple(VersionLoss("forest", version, loss) for version, loss in losses.items())
    served = next(iter(losses.values()), None)
    return Observation(
        query_id, application, None, DECISION, (served,), served, 1, JoinStatus.JOINED, 0, 0, versions=versions
    )


def canary(seed: int, share: float, candidate: float, incumbent: float, first: int = 0) -> Iterator[Observation]:
    """Yield observations of two versions with these rates of error, of which one answers."""
    random = np.random.default_rng(seed)
    while True:
        is_candidate = random.random() < share
        loss = float(random.random() < (candidate if is_candidate else incumbent))
        yield seen(f"{seed}-{first}", {"2" if is_candidate else "1": loss})
        first += 1


def shadow(seed: int, candidate: float, incumbent: float) -> Iterator[Observation]:
    """Yield observations that both versions have seen; where one errs the other often does."""
    random = np.random.default_rng(seed)
    count = 0
    while True:
        common = random.random()
        yield seen(f"{seed}-{count}", {"1": float(common < incumbent), "2": float(common < candidate)})
        count += 1
