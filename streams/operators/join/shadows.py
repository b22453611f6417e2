"""Outputs of shadows, and late outputs, that wait for feedback; and what each version of a model costs."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from itertools import islice, takewhile
from typing import TYPE_CHECKING, TypeAlias

from policies.errors import LossError
from schemas.records import DENSE, ModelOutput, Outcome, VersionLoss, outputs_of
from streams.operators.ids import SECOND_US
from streams.operators.join.observation import NO_ANSWER_LOSS
from streams.operators.late_outputs import SideOutput
from streams.operators.statistics import render
from streams.topology import is_held_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from schemas.records import ModelPredictions, Prediction
    from streams.operators.configuration import Configuration
    from streams.operators.join.shared_buffer import SharedBuffer

    IsClosed: TypeAlias = Callable[[str], bool]

_NOT_ASKED = (Outcome.OVERLOADED, Outcome.UNKNOWN_VERSION)
# Memory of an output beside the bytes of its answer and scores.
_OUTPUT_BYTES = 400


class Shadows:
    """Outputs of versions beside the answers, by query, until feedback comes or its window is over.

    A model has its share of the room; beyond that its first outputs are forgotten, not those of others.

    Args:
        room: by model.

    Attributes:
        forgotten: outputs for which there was no room.
    """

    __slots__ = ("_by_model", "_kept", "_room", "forgotten")

    def __init__(self, room: SharedBuffer) -> None:
        self._room = room
        self._kept: dict[str, tuple[SideOutput, ...]] = {}
        # By model, the first ones first: query id and version; what the output takes, and how long it is kept.
        self._by_model: dict[str, OrderedDict[tuple[str, str], tuple[int, int]]] = {}
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def large_bytes(self) -> int:
        """Memory of large outputs."""
        return self._room.used_large_bytes

    def keep(
        self, batch: ModelPredictions, is_closed: IsClosed, until_us: int, written_us: int = 0, *, is_late: bool
    ) -> None:
        """Keep outputs of a shadow, or late ones of an ensemble's model, until their queries' feedback comes.

        Args:
            batch: the outputs.
            is_closed: returns whether a query's feedback has come, or its window has ended.
            until_us: the end, if no feedback of a query comes until then.
            written_us: when the worker wrote them.
            is_late: whether the outputs came too late.
        """
        until_us = -(-until_us // SECOND_US) * SECOND_US  # many at once
        for query_id, output in zip(batch.query_ids, outputs_of(batch), strict=True):
            if is_closed(query_id):
                continue
            self._forget(query_id, output.model, output.version)
            if self._made_room(query_id, output, until_us):
                self._kept[query_id] = (*self._kept.get(query_id, ()), SideOutput(output, is_late, written_us))

    def get(self, query_id: str) -> tuple[SideOutput, ...]:
        """Return the outputs kept for a query."""
        return self._kept.get(query_id, ())

    def pop(self, query_id: str) -> tuple[SideOutput, ...]:
        """Remove and return the outputs kept for a query."""
        found = self._kept.pop(query_id, ())
        for output, *_ in found:
            self._give_back(query_id, output.model, output.version)
        return found

    def next_due(self) -> int | None:
        """Return when the next output expires (us)."""
        return min((next(iter(own.values()))[1] for own in self._by_model.values() if own), default=None)

    def expire(self, now_us: int, limit: int) -> None:
        """Drop the outputs that are due, at most so many of a model."""
        for model, own in self._by_model.items():
            due = takewhile(lambda kept: kept[1][1] <= now_us, islice(own.items(), limit))
            for (query_id, version), _ in [*due]:
                self._forget(query_id, model, version)

    def _made_room(self, query_id: str, output: ModelOutput, until_us: int) -> bool:
        """Make room for an output, by dropping its model's first ones if necessary."""
        own, size = self._by_model.setdefault(output.model, OrderedDict()), len(query_id) + _size(output)
        while not self._room.take(output.model, size):
            self.forgotten += 1
            if not own:
                return False
            first_id, version = next(iter(own))
            self._forget(first_id, output.model, version)
        own[query_id, output.version] = size, until_us
        return True

    def _forget(self, query_id: str, model: str, version: str) -> None:
        others = tuple([one for one in self.get(query_id) if one.output[:2] != (model, version)])
        if others:
            self._kept[query_id] = others
        else:
            self._kept.pop(query_id, None)
        self._give_back(query_id, model, version)

    def _give_back(self, query_id: str, model: str, version: str) -> None:
        own = self._by_model.get(model)
        if own is not None and (query_id, version) in own:
            self._room.give_back(model, own.pop((query_id, version))[0])


def _size(output: ModelOutput) -> int:
    values = (output.answer, output.scores)
    return _OUTPUT_BYTES + sum(
        [len(each.data) if isinstance(each, DENSE) else len(each) if isinstance(each, str) else 0 for each in values]
    )


def _in_time(one: SideOutput, deadline_us: int) -> ModelOutput:
    """Return what a shadow would have said by a query's deadline."""
    output = one.output
    if output.outcome is not Outcome.OK or one.written_us <= deadline_us:
        return output
    return ModelOutput(output.model, output.version, Outcome.MISSING, None)


def _version_loss(output: ModelOutput, loss_of: Callable[[ModelOutput], float | None]) -> float | None:
    """Return the loss of a version's output. No answer costs 1, also where the version has refused the input.

    Other models may be right to refuse what a client sends, so that an arm's refusal says nothing about it. Versions
    are drawn by the query's id: what is wrong with an input strikes both alike.
    """
    if output.outcome in _NOT_ASKED:
        return None
    if output.reconstructed or output.outcome is not Outcome.OK or output.answer is None:
        return NO_ANSWER_LOSS
    try:
        return loss_of(output)
    except LossError:  # a shadow's: what answered has been checked
        return NO_ANSWER_LOSS


class VersionLosses:
    """Counts and losses of each version of the models that run in several."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._joined: defaultdict[tuple[str, ...], float] = defaultdict(float)
        self._losses: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def of(
        self, prediction: Prediction, beside: Iterable[SideOutput], loss_of: Callable[[ModelOutput], float | None]
    ) -> tuple[VersionLoss, ...]:
        """Return what each version cost, or would have cost; none of a model whose version the application names.

        Versions are compared on queries that are drawn for one or the other. One that gave no answer in time costs 1,
        whatever has stood in for it and whatever came later.

        Args:
            prediction: as it was answered.
            beside: what versions said beside it.
            loss_of: returns the loss of an answer; None = it is not known.
        """
        configuration, found = self._configuration, []
        if prediction.decision is not None and is_held_out(prediction.decision.state):
            return ()  # it was not drawn for one version or the other
        deployed = configuration.applications.get(prediction.application)
        named = () if deployed is None else deployed.application.versions
        shadows = [_in_time(one, prediction.deadline_us) for one in beside if not one.is_late]
        for output in (*prediction.outputs, *shadows):
            model = configuration.models.get(output.model)
            if model is None or not model.shares or not output.version or output.model in named:
                continue
            loss = _version_loss(output, loss_of)
            if loss is not None:
                found.append(VersionLoss(output.model, output.version, loss))
        return tuple(found)

    def add(self, application: str, losses: Iterable[VersionLoss], weight: float | None = None) -> None:
        """Count them, by the weight of their feedback."""
        part = 1.0 if weight is None else weight
        for model, version, loss in losses:
            label = "application", application, "model", model, "version", version
            self._joined["version_joined_total", *label] += part
            self._losses["version_loss_total", *label] += part * loss

    def rendered(self) -> dict[str, float]:
        """Return `version_joined_total` and `version_loss_total` by application, model and version."""
        return {render(key): found for sums in (self._joined, self._losses) for key, found in sums.items()}
