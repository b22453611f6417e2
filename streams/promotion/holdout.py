"""What a policy as a whole is worth: those for whom it decides, against those who are held out of it.

Who is held out is drawn by the context, once and for ever. So a context is one value, the mean of all that its answers
cost, and two runs of contexts are compared as those of two versions are: in the order in which contexts first appear.
Queries without a context are left out on both sides, as none of theirs is held out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from streams.operators.weighing import weighed
from streams.promotion.serving_losses import served_loss
from streams.promotion.versions import ComparedRun, Mean
from streams.topology import is_held_out

if TYPE_CHECKING:
    from schemas.records import Observation
    from streams.promotion.evidence import Evidence


class HoldoutReport(NamedTuple):
    """What the observations of a time say.

    Attributes:
        policy: people for whom the policy decided.
        held_out: people for whom it did not.
        answers: of both together.
        without_context: answers to queries that name nobody.
        evidence: mean loss of those held out less that of the others, by person: above 0 the policy saves.
    """

    policy: int
    held_out: int
    answers: int
    without_context: int
    evidence: Evidence


class HoldoutEvidence:
    """Folds an application's observations, each once, into the comparison.

    Args:
        application: name.
    """

    def __init__(self, application: str) -> None:
        self._application = application
        self._people: dict[tuple[str, bool], Mean] = {}  # in order of appearance; the flag says who is held out
        self._without_context = 0

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation; those of a partition come in its order."""
        loss = served_loss(weighed(seen)) if seen.application == self._application else None
        if loss is None:
            return
        if seen.context is None:
            self._without_context += 1
            return
        key = seen.context, is_held_out(seen.decision.state)
        self._people[key] = self._people.get(key, Mean()).plus(loss, 1.0 if seen.weight is None else seen.weight)

    def report(self, alpha: float) -> HoldoutReport:
        """Return what is known, at confidence 1 - alpha."""
        run, counts = ComparedRun(), [0, 0]
        for (_, held_out), mean in self._people.items():
            counts[held_out] += 1
            side = "incumbent" if held_out else "candidate"
            run.extend(mean.parts / mean.losses, **{side: mean.value}, answers=mean.answers)
        answers = sum(mean.answers for mean in self._people.values())
        return HoldoutReport(counts[0], counts[1], answers, self._without_context, run.totals.evidence(alpha))


def lines(application: str, found: HoldoutReport) -> list[str]:
    """Say it for people."""
    told = found.evidence
    if not found.held_out or not found.policy:
        who = "held out of the policy" if not found.held_out else "decided for by the policy"
        return [f"nobody who has asked {application} was {who}: set `holdout`, and name who asks by `context`"]
    said = [
        f"{'':12}{'people':>10}{'mean loss':>12}",
        f"{'policy':12}{found.policy:>10,}{told.candidate_loss or 0.0:>12.4f}",
        f"{'held out':12}{found.held_out:>10,}{told.incumbent_loss or 0.0:>12.4f}",
        f"the policy saves {told.difference:.4f} [{told.lower:.4f}, {told.upper:.4f}] a query, by person",
    ]
    if found.without_context:
        said.append(f"left out: {found.without_context:,} answers to queries without a context")
    if told.lower > 0.0:
        return [*said, "it is shown to be better than the first model alone"]
    if told.upper < 0.0:
        return [*said, "it is shown to be worse than the first model alone"]
    return [*said, "it is not shown to be better or worse than the first model alone: wait for more people"]
