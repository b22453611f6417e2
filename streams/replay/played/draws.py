"""What columns inside selection have drawn, held against what its states say: no kernel in Python is asked again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from policies import draw, registry
from schemas import topics
from schemas.records import Prediction
from streams.operators.policy_state import state_of
from streams.operators.selection.state_view import arms_of
from streams.topology import application_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from schemas.records import Decision, PolicyState
    from streams.operators.contract import Emit, StateKey
    from streams.operators.selection.state_view import Arms
    from streams.replay.report import ReplayReport

# Versions of one state that are kept: a decision goes by one of the last that were read.
_VERSIONS = 8


class ColumnDraws:
    """Checks decisions of columns.

    Args:
        codec: of the trace's records.
        report: that is told what differs.
    """

    def __init__(self, codec: Codec, report: ReplayReport) -> None:
        self._codec = codec
        self._report = report
        self._states: dict[str, list[PolicyState | None]] = {}
        self._arms: tuple[Decision | None, Arms | None] = None, None

    def know(self, states: Mapping[StateKey, PolicyState | None]) -> None:
        """Take states that selection has read."""
        for key, state in states.items():
            known = self._states.setdefault(key.name, [])
            known.append(state)
            del known[:-_VERSIONS]

    def check(self, emit: Emit) -> None:
        """Check the decision of an answer that columns have written."""
        if emit.topic != topics.PREDICTIONS:
            return
        prediction = self._codec.decode(Prediction, emit.value)
        decision = prediction.decision
        arms = None if decision is None or decision.features else self._arms_of(decision)
        if arms is None or decision is None:
            return
        drawn = arms.decide(draw.uniform(prediction.query_id)).decision
        if (drawn.chosen, drawn.propensities) != (decision.chosen, decision.propensities):
            self._report.add(topics.PREDICTIONS, prediction.query_id, decision, drawn)

    def _arms_of(self, decision: Decision) -> Arms | None:
        """Return what a decision's state says; None where it follows from more than that."""
        like = decision._replace(chosen=(), stable=())
        if self._arms[0] == like:
            return self._arms[1]
        known = [state_of(state, decision.policy) for state in self._states.get(decision.state, ())]
        state = next((one for one in known if one is not None and one.version == decision.state_version), None)
        is_begun = state is None and not decision.state_version and application_of(decision.state) == decision.state
        if state is None and not is_begun:
            return None
        arms = arms_of(registry.parse(decision.policy), decision.arms, decision.state, state, decision.apprentice)
        self._arms = like, None if arms.propensities_in is not None else arms
        return self._arms[1]
