"""What is asked: three applications for most rows; a graph and topics of others besides; one, often, in a storm."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from load.matrix.kinds import Kind
from load.matrix.traffic import LATE, SLOW
from schemas.records import Application, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

RATE: Final = 60.0
SLO_MS: Final = 2_000.0  # so that a busy machine answers in time, and an outage shows
# Longer than a broker is away on a busy machine.
WINDOW_S, EARLY_S = 30.0, 5.0
HELD: Final = "held-"  # how the models of the host are called
_BOTH: Final = ("right", "wrong")
_ORDERS, _TRUTHS, _SCORED = "orders", "truths", "scored"
_PREFIX: Final = "PREFIX"  # of the topics in a mapping, until the deployment has one


@dataclass(frozen=True, slots=True)
class Mix:
    """Applications, and what they need.

    Attributes:
        functions: of `load.models.functions`, by model.
        applications: as they are published; `PREFIX` in a mapping stands for the deployment's.
        kinds: how each is asked.
        roles: that run.
        rate: queries a second.
        workers: of a model, where it has several: its topic has as many partitions.
        is_paired: whether topics of unclean elections have two copies of their first partitions.
        delays: by turn of the traffic, how long after an answer feedback is told that may be late then (s).
    """

    functions: Mapping[str, str]
    applications: tuple[Application, ...]
    kinds: tuple[Kind, ...]
    roles: tuple[str, ...]
    rate: float = RATE
    workers: Mapping[str, int] = field(default_factory=dict)
    is_paired: bool = False
    delays: Mapping[int, float] = field(default_factory=lambda: dict.fromkeys(LATE, 2 * WINDOW_S + 5))

    @property
    def topics(self) -> tuple[str, ...]:
        """Return the topics that are not Skysail's, without the prefix."""
        own = [(kind.asks, kind.tells, kind.answers) for kind in self.kinds if kind.answers]
        return tuple(topic for each in own for topic in each)

    def placed(self, prefix: str) -> tuple[Application, ...]:
        """Return the applications of one deployment."""
        return tuple(replace(each, mapping=each.mapping.replace(_PREFIX, prefix)) for each in self.applications)


def _application(name: str, models: tuple[str, ...], policy: str = "exp3") -> Application:
    return Application(name, models, policy, slo_ms=SLO_MS, default_output=-1, window_s=WINDOW_S)


_MAPPING: Final = {
    "from": {"topic": f"{_PREFIX}.{_ORDERS}", "id": "id", "input": ["value"]},
    "to": {"topic": f"{_PREFIX}.{_SCORED}", "fields": {"answer": "answer"}, "keep": ["id"]},
    "feedback": [{"topic": f"{_PREFIX}.{_TRUTHS}", "id": "id", "label": "label"}],
}
PLAIN: Final = Mix(
    {"right": "right", "wrong": "wrong", "held-right": "right", "held-wrong": "wrong"},
    (
        _application("sums", _BOTH),
        replace(_application("users", _BOTH, "thompson"), per_context=True),
        replace(_application("pooled", ("held-right", "held-wrong")), default_loss=1.0),
    ),
    (
        Kind("sums", has_context=False, has_default_loss=False),
        Kind("users", has_context=True, has_default_loss=False),
        Kind("pooled", has_context=False, has_default_loss=True),
    ),
    ("selection", "worker", "joiner", "learner", "control", "record", "gateway"),
)
# A graph asks a model in the host, and about what that has found, one in a worker. Both answer numbers: where the
# second is away, the first one's answer stands in, and the truth can be compared with it. Orders and truth are JSON.
MIXED: Final = Mix(
    {**PLAIN.functions, "held-found": "right"},
    (
        *PLAIN.applications,
        replace(
            _application("graph", _BOTH),
            stages=(Stage("found", "held-found", share=0.5), Stage("summed", "", after="found", where="label >= 0")),
        ),
        replace(_application("mapped", _BOTH), mapping=json.dumps(_MAPPING)),
    ),
    (
        *PLAIN.kinds,
        Kind("graph", has_context=False, has_default_loss=False),
        Kind("mapped", has_context=False, has_default_loss=False, asks=_ORDERS, tells=_TRUTHS, answers=_SCORED),
    ),
    (*PLAIN.roles, "mapping"),
)
# As much as two cores hold while a dozen workers come and go.
STORMY: Final = Mix(
    {"right": "right"},
    (_application("sums", ("right",)),),
    (Kind("sums", has_context=False, has_default_loss=False),),
    ("selection", "worker", "joiner", "learner", "record"),
    rate=340.0,
    workers={"right": 12},
)
# Windows are as long as somebody's clock says: feedback of half a window later shows whose.
CLOCKED: Final = replace(PLAIN, delays={**PLAIN.delays, **dict.fromkeys(SLOW, WINDOW_S / 2)})
_MIXES: Final[Mapping[str, Mix]] = {
    "clocks": CLOCKED,
    "mapping": MIXED,
    "storm": STORMY,
    "unclean": replace(PLAIN, is_paired=True),
}
_SHORT: Final[Mapping[str, Mix]] = {"storm": replace(STORMY, rate=RATE, workers={"right": 4})}


def mix_of(part: str, *, is_short: bool) -> Mix:
    """Return what a part asks: the rows of most parts are of applications of every kind."""
    return (_SHORT if is_short else {}).get(part) or _MIXES.get(part, PLAIN)
