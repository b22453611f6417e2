"""Backfill: what was observed before a model came to an application teaches that model, too.

    observation without the model ──┐
    its query's input ──▶ model ────┴──▶ a lesson: the same label, with what this model computes

A lesson is an observation at the end of the log, so states stay folds of the log. It teaches the new model alone: the
others have learnt from that label. Its id follows from the query's, and what is in the log already is not made again,
so a backfill that was killed may simply be run once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from policies import registry
from policies.contract import is_answering
from policies.errors import require
from schemas.records import JoinStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.records import Application, Observation, Tensor

_MARK: Final = "~"  # between a query's id and the model that its lesson is for
MOST: Final = 100_000  # observations that wait for their inputs, some 150 MB; the rest is for the next run


class Backfill:
    """Gathers the observations that a model has missed, and makes its lessons of them.

    Args:
        application: as it is now; its state answers, and the model is one of its models.
        model: that came to it.

    Raises:
        PolicyError: its state does not answer, or the model is none of its models.
    """

    def __init__(self, application: Application, model: str) -> None:
        policy, names = registry.create(application.policy, application.parameters), application.models
        require(
            is_answering(policy),
            f"application {application.name} has the policy {policy.name}, which learns from models' own answers:"
            " nothing is to be taught again. A backfill is for `ridge`",
        )
        require(
            model in names, f"application {application.name} has no model {model}; name it first: {', '.join(names)}"
        )
        self._application = application
        self._place, self._mark = names.index(model), _MARK + model
        self._policy = registry.spec(policy)
        self._model = model
        self._done: set[str] = set()
        self._missed: dict[str, Observation] = {}
        self.left = 0  # for which there was no room

    @property
    def missed(self) -> Mapping[str, Observation]:
        """What the model is still to learn, by the query's id."""
        return self._missed

    def take(self, seen: Observation) -> None:
        """Take an observation of the log, of any application, in the order of its partition."""
        if seen.application != self._application.name:
            return
        if seen.query_id.endswith(self._mark):
            self._done.add(seen.query_id)
            self._missed.pop(seen.query_id.removesuffix(self._mark), None)
        elif self._is_missed(seen):
            if len(self._missed) < MOST:
                self._missed[seen.query_id] = seen._replace(
                    scores=None,
                    first=(),
                    versions=(),
                    answers=None,
                    confidence=None,
                    label_set=None,
                    ranked=None,
                    interval=None,
                )
            else:
                self.left += 1

    def lesson(self, query_id: str, computed: Tensor) -> Observation:
        """Return what a query's label teaches, once the model has computed its features.

        Raises:
            KeyError: the model has missed nothing about this query, or has learnt it.
        """
        seen, names = self._missed.pop(query_id), self._application.models
        others = (None,) * len(names)
        return seen._replace(
            query_id=query_id + self._mark,
            decision=seen.decision._replace(
                chosen=(), policy=self._policy, arms=names, propensities=(1.0,) * len(names), apprentice="", stable=()
            ),
            losses=others,
            loss=None,
            status=JoinStatus.JOINED,
            scores=(*others[: self._place], computed, *others[self._place + 1 :]),
        )

    def _is_missed(self, seen: Observation) -> bool:
        """Tell whether this model could learn from a label that it has not learnt from."""
        is_told = isinstance(seen.label, int | float) and _MARK not in seen.query_id[-len(self._mark) :]
        known = self._model in seen.decision.arms or seen.query_id + self._mark in self._done
        return is_told and not known and bool(seen.decision.chosen)
