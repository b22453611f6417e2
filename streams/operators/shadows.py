"""What each version of a model costs where several run: of those that answered, and of shadows, whose outputs wait."""

from __future__ import annotations

from collections import defaultdict
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from policies.errors import LossError
from schemas.records import Outcome
from streams.operators.combiner import outputs_of
from streams.operators.counters import Counters, render
from streams.operators.late import Beside
from streams.operators.observing import NO_ANSWER_LOSS, output_loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Feedback, ModelOutput, ModelPredictions, Prediction
    from streams.operators.applications import Configuration

    IsClosed: TypeAlias = Callable[[str], bool]

# By query id: outputs that answered nothing, one a version.
Shadows: TypeAlias = dict[str, tuple[Beside, ...]]


def keep(kept: Shadows, batch: ModelPredictions, is_closed: IsClosed, bound: int, *, is_late: bool) -> int:
    """Keep what a shadow answered, or one of an ensemble's models too late, until their queries' feedback comes.

    Args:
        kept: what is kept already.
        batch: the outputs.
        is_closed: tells of a query id whether its feedback has come, or its window ended.
        bound: on the queries kept.
        is_late: whether the outputs came too late.

    Returns:
        How many queries, the first, were forgotten because of the bound.
    """
    for query_id, output in zip(batch.query_ids, outputs_of(batch), strict=True):
        if is_closed(query_id) or output.outcome in (Outcome.INVALID, Outcome.EXPIRED):
            continue  # it says nothing about the version
        others = (o for o in kept.get(query_id, ()) if o.output[:2] != output[:2])  # model and version
        kept[query_id] = (*others, Beside(output, is_late))
    gone = [*islice(kept, max(0, len(kept) - bound))]
    for query_id in gone:
        del kept[query_id]
    return len(gone)


class VersionLosses:
    """Counts and losses of each version of the models that run in several."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._joined = Counters()
        self._losses: defaultdict[tuple[str, ...], float] = defaultdict(float)

    def add(self, prediction: Prediction, feedback: Feedback, kind: str, shadows: tuple[ModelOutput, ...]) -> None:
        """Count what each version cost, or would have cost."""
        configuration = self._configuration
        for output in (*prediction.outputs, *shadows):
            model = configuration.models.get(output.model)
            if model is None or not model.shares:
                continue
            try:
                loss = output_loss(output, prediction, feedback, kind, configuration.classes)
            except LossError:  # a shadow's: what answered has been checked
                loss = NO_ANSWER_LOSS
            if loss is not None:
                label = "application", prediction.application, "model", output.model, "version", output.version
                self._joined["version_joined_total", *label] += 1
                self._losses["version_loss_total", *label] += loss

    def rendered(self) -> dict[str, float]:
        """Return `version_joined_total` and `version_loss_total` by application, model and version."""
        return {**self._joined.rendered(), **{render(key): loss for key, loss in self._losses.items()}}
