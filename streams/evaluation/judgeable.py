"""Which policies a log can judge, how, and why others not: overlap, full information, outputs, features.

exactly      all that the policy would ask was asked, for certain: nothing is estimated
by weights   what it would ask was asked with a known probability above 0: unbiased, the surer the less weights vary
in part      for some decisions that probability is 0, or what it takes is missing: told, and nothing recommended
no           for all of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.evaluation.items import are_of_items

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Observation
    from streams.evaluation.history import KnownApplication

EXACTLY, BY_WEIGHTS, IN_PART, NO = "exactly", "by weights", "in part", "no"
_ALL: Final = 0.99  # a hundredth may lack: `evaluate` recommends nothing beyond that
CERTAIN: Final = 1.0 - 1e-9


class Judgeable(NamedTuple):
    """Whether a log can judge policies of a kind.

    Attributes:
        policies: of that kind.
        how: one of the words above.
        why: in the words of the field.
    """

    policies: str
    how: str
    why: str


@dataclass(frozen=True, slots=True)
class LogSupport:
    """What shares of a log's decisions support what, each in [0, 1].

    Attributes:
        everything: all arms were asked for certain.
        each: each arm had a probability above 0.
        in_turn: models were asked one after the other, with logged probabilities.
        features: the query's features are logged.
        outputs: what the asked models have answered is there.
        of_items: whether a policy chose among items.
    """

    everything: float
    each: float
    in_turn: float
    features: float
    outputs: float
    of_items: bool

    @classmethod
    def of(cls, history: KnownApplication) -> LogSupport:
        """Return what a history supports."""
        log, outputs = history.observations, history.outputs or {}
        whole = [min(seen.decision.propensities, default=0.0) >= CERTAIN for seen in log]
        return cls(
            everything=_share(whole),
            each=_share([min(seen.decision.propensities, default=0.0) > 0.0 or _is_in_turn(seen) for seen in log]),
            in_turn=_share(map(_is_in_turn, log)),
            features=_share([bool(seen.decision.features) for seen in log]),
            outputs=_share([seen.query_id in outputs for seen in log]),
            of_items=are_of_items(log),
        )


def judgeable(history: KnownApplication) -> Iterator[Judgeable]:
    """Yield by kind of policy whether a log, whose outputs have been read, can judge it."""
    known = LogSupport.of(history)
    singly = _singly(known)
    yield Judgeable("always:MODEL and bandits: exp3, thompson, ucb1, epsilon_greedy, single", *singly)
    featured = _worse(singly, known.features, "the queries' features are logged")
    yield Judgeable("bandits with features: linucb, linear_thompson", *featured)
    yield Judgeable("ensembles: exp4, class_vote", *_together(known))
    yield Judgeable("in turn: cascade", *_in_turn(known, by_outputs=False))
    yield Judgeable("in turn: your own policy with steps", *_in_turn(known, by_outputs=True))
    items = (BY_WEIGHTS, "the probability that each item is the answer is logged") if known.of_items else None
    yield Judgeable("among items: two_speed, always:ITEM", *(items or (NO, "the log's policy chose among models")))
    yield Judgeable("timely", NO, "it goes by how long models take, which is not logged: replay the queries")
    yield Judgeable("ridge", NO, "it answers from the models' features: replay the queries")


def _singly(known: LogSupport) -> tuple[str, str]:
    if known.everything == 1.0:
        return EXACTLY, "full information: every model was asked"
    if known.each >= _ALL:
        return BY_WEIGHTS, f"overlap: every model could be asked in {known.each:.0%} of the decisions"
    how = IN_PART if known.each > 0.0 else NO
    return how, f"no overlap: in {1.0 - known.each:.0%} of the decisions a model is asked with probability 0"


def _together(known: LogSupport) -> tuple[str, str]:
    if not known.outputs:
        return NO, "what the models have answered is not in the log: record the topic predictions"
    if known.everything == 1.0:
        return _worse((EXACTLY, "full information: every model was asked"), known.outputs, "outputs are logged")
    if known.everything + known.in_turn >= _ALL:
        by_turns = BY_WEIGHTS, "models were asked in turn, at random now and then"
        return _worse(by_turns, known.outputs, "outputs are logged")
    return NO, "no full information: models are never asked together, so nobody knows what all would have answered"


def _in_turn(known: LogSupport, *, by_outputs: bool) -> tuple[str, str]:
    if known.in_turn >= _ALL and (not by_outputs or known.outputs >= _ALL):
        return BY_WEIGHTS, "the log's policy asked in turn, and its confidences and probabilities are logged"
    if known.everything + known.in_turn >= _ALL or not known.outputs:
        return _together(known)
    return IN_PART, "it is known where one answer was enough; never two together: what follows the first is unknown"


def _worse(found: tuple[str, str], share: float, what: str) -> tuple[str, str]:
    """Return a judgement as far as something is logged."""
    if found[0] == NO or share >= _ALL:
        return found
    return (IN_PART if share else NO), f"{what} in {share:.0%} of the decisions"


def _is_in_turn(seen: Observation) -> bool:
    return bool(seen.steps)


def _share(flags: list[bool] | map[bool]) -> float:
    told = [*flags]
    return sum(told) / len(told) if told else 0.0
