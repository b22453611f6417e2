"""Who answers rows: one version of a model, or an application by its policy as it has learnt.

rows ─▶ a version ───────────────────────────────▶ answers
     └▶ an application
          whose policy asks one model ─▶ drawn by id, all rows of a version together ─▶ answers
          any other ─▶ `kernel`: selection itself, row by row
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from deploy.errors import UsageError
from deploy.scoring.scored import AnswerTerms, Scored, of_one
from policies.assignment import QUERY
from policies.contract import is_answering, is_contextual, is_stepwise
from policies.draw import uniform
from policies.outside import comes_from_outside
from streams.operators.contract import StateKey
from streams.operators.selection.state_view import StateView
from streams.topology import state_name, state_partition
from workers.inputs.columns import Stacked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from deploy.scoring.inputs import AskedRows
    from deploy.scoring.models import PackagedModels
    from schemas.records import Input, PolicyState
    from streams.operators.configuration import Deployed
    from streams.operators.selection.state_view import Arms


class RowAsker(Protocol):
    """Answers rows."""

    def answers(self, asked: AskedRows) -> Scored:
        """Return an answer for each row; those that could not be read are left to the caller."""
        ...


class OneVersion:
    """Asks one version of a model; nobody decides.

    Args:
        models: that there are.
        model: name.
        told: a version or label; "" = the one that serves, or a canary by its share.
    """

    def __init__(self, models: PackagedModels, model: str, told: str) -> None:
        self._models, self._model, self._told = models, model, told
        self._terms = AnswerTerms(is_own=True)

    def answers(self, asked: AskedRows) -> Scored:
        """Return what the version answers."""
        scored = Scored.unanswered(len(asked.ids), None)
        return by_version(self._models, self._model, self._told, asked, np.arange(len(asked.ids)), self._terms, scored)


class StateReader(Protocol):
    """Has policy states."""

    def read(self, keys: Sequence[StateKey]) -> Mapping[StateKey, PolicyState | None]:
        """Return states by key; None = nothing is stored."""
        ...


class PolicyAsker:
    """Asks the model that an application's policy draws for each row, by the row's id, as selection does.

    Args:
        models: that there are.
        deployed: the application.
        partitions: of the deployment.
        states: has the policy's.
        now_us: the time: contexts that were taught nothing for long are forgotten by then.
    """

    def __init__(
        self, models: PackagedModels, deployed: Deployed, partitions: int, states: StateReader, now_us: int
    ) -> None:
        self._models, self._deployed, self._partitions = models, deployed, partitions
        self._states, self._now_us = states, now_us
        self._view = StateView(100_000)
        self._common = self._key(None)
        self._view.put(self._common, states.read([self._common])[self._common], now_us)

    def answers(self, asked: AskedRows) -> Scored:
        """Return what the drawn models answer."""
        application = self._deployed.application
        scored = Scored.unanswered(len(asked.ids), application.default_output)
        for key, rows in self._by_state(asked).items():
            arms = self._view.arms(key, self._deployed, self._forgotten_us(key))
            assert arms is not None
            scored = self._decided(arms, asked, rows, scored)
        return scored

    def _by_state(self, asked: AskedRows) -> dict[StateKey, NDArray[np.int64]]:
        """Return the places of rows by the state that decides them, which is in the view."""
        if not self._deployed.application.per_context or asked.contexts is None:
            return {self._common: np.arange(len(asked.ids))}
        places: dict[str | None, list[int]] = {}
        for place, context in enumerate(asked.contexts):
            places.setdefault(context, []).append(place)
        found = {self._key(context): np.array(rows) for context, rows in places.items()}
        wanted = [key for key in found if key not in self._view]
        commons = {StateKey(key.partition, self._deployed.application.name) for key in wanted}
        wanted += [key for key in commons if key not in self._view and key not in found]
        if wanted:
            for key, state in self._states.read(wanted).items():
                self._view.put(key, state, self._now_us)
        return found

    def _key(self, context: str | None) -> StateKey:
        application = self._deployed.application
        name = state_name(application.name, context, is_spread=application.spread)
        return StateKey(state_partition(name, self._partitions), name)

    def _forgotten_us(self, key: StateKey) -> int:
        forget_us = self._deployed.forget_us
        return self._now_us - forget_us if forget_us and key.name != self._deployed.application.name else 0

    def _decided(self, arms: Arms, asked: AskedRows, rows: NDArray[np.int64], scored: Scored) -> Scored:
        """Draw an arm for each of the rows, and ask the rows of an arm together."""
        drawn = drawn_arms(arms, [asked.ids[row] for row in rows.tolist()])
        application = self._deployed.application
        for arm in np.unique(drawn).tolist():
            decision = arms.choices[arm].decision
            its = rows[drawn == arm]
            terms = AnswerTerms(application.default_output, application.confidence_floor, arms.confidences, arm)
            name = arms.names[arm]
            scored = by_version(
                self._models, name, application.versions.get(name, ""), asked, its, terms, scored,
                (decision.propensities[arm], decision.state_version),
            )  # fmt: skip
        return scored


def drawn_arms(arms: Arms, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the arm of each row, by the inverse CDF of its id's draw; see `Arms.decide`."""
    last = len(arms.choices) - 1
    if not last:
        return np.zeros(len(ids), np.int64)
    draws = np.array([uniform(each) for each in ids]) * arms.cumulative[-1]
    return np.minimum(np.searchsorted(arms.cumulative, draws, side="right"), last)


def asks_one(deployed: Deployed) -> bool:
    """Tell whether an application asks one model by its state alone, so that rows can be decided many at a time."""
    policy, application = deployed.policy, deployed.application
    return not (
        policy.full_information
        or is_stepwise(policy)
        or is_answering(policy)
        or is_contextual(policy)
        or comes_from_outside(policy)
        or application.stages
        or application.sources
        or application.assign != QUERY
        or application.holdout
    )


def by_version(
    models: PackagedModels,
    model: str,
    told: str,
    asked: AskedRows,
    rows: NDArray[np.int64],
    terms: AnswerTerms,
    scored: Scored,
    decided: tuple[float, int] | None = None,
) -> Scored:
    """Ask a model about some rows, all rows of a version together, and return the answers with those so far.

    Args:
        models: that there are.
        model: name.
        told: the version or label that is named; "" = none.
        asked: all rows.
        rows: places of those that are asked.
        terms: of the answers.
        scored: so far.
        decided: the probability with which the model was drawn, and the version of the state; None = it was not.
    """
    version = models.version(model, told)
    groups: dict[str, list[int]] = {}
    if version is None:
        for row in rows.tolist():
            groups.setdefault(models.drawn(model, told, asked.ids[row]), []).append(row)
    elif len(rows):
        groups[version] = rows.tolist()
    for its, places in groups.items():
        is_whole = len(places) == len(asked.ids)
        predicted = models.loaded(model, its).predict(asked.inputs if is_whole else taken(asked.inputs, places))
        found = of_one(predicted, model, its, terms)
        if decided is not None:
            count = len(places)
            found = found._replace(propensity=[decided[0]] * count, state_version=[decided[1]] * count)
        scored = scored.place(None if is_whole else places, found)
    return scored


def taken(inputs: Sequence[Input], places: Sequence[int]) -> Sequence[Input]:
    """Return the inputs at some places."""
    if isinstance(inputs, Stacked) and inputs.rows:
        size = len(inputs.data) // inputs.rows
        data = np.frombuffer(inputs.data, np.uint8).reshape(inputs.rows, size)[places]
        return Stacked(inputs.dtype, inputs.shape, data.tobytes(), len(places))
    return [inputs[place] for place in places]


def whole_asker(
    models: PackagedModels,
    deployed: Deployed,
    partitions: int,
    states: StateReader,
    now_us: int,
    kernel: Callable[[], RowAsker],
) -> RowAsker:
    """Return who answers an application's rows.

    Raises:
        UsageError: it looks features up, which rows of files do not wait for.
    """
    application = deployed.application
    if application.sources:
        names = ", ".join(source.name for source in application.sources)
        raise UsageError(
            f"application {application.name} looks features up ({names}): score through the deployment, with"
            " `skysail replay` or a topic"
        )
    if asks_one(deployed):
        return PolicyAsker(models, deployed, partitions, states, now_us)
    return kernel()
