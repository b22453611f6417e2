"""What versions and policies cost, by what the simulator's models answer and its clients tell, and by no other code.

    answers, labels ─▶ cost of every arm and version, silence included ─▶ held against observations, and the evidence

What a version of a model answers to an input is known beforehand (`models.said`), and the version that a query is for
follows from its id. So each loss has a truth that no kernel has computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from load.research.seeds.models import said
from load.research.seeds.plan import MODELS, Configure
from policies import registry
from policies.contract import is_stepwise
from policies.draw import version
from schemas import topics
from schemas.records import JoinStatus, Model, Outcome
from streams.promotion.apprentice import ApprenticeEvidence
from streams.promotion.versions import VersionEvidence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from load.research.seeds.ledger import Ledger
    from load.research.seeds.plan import Plan
    from schemas.codec import Codec
    from schemas.records import ModelOutput, Observation, Prediction
    from streams.testing.broker import FakeBroker

_FOLLOWED_US = 10_000_000  # within which a process follows a change, unless something goes wrong for longer
_NOT_ASKED = (Outcome.OVERLOADED, Outcome.UNKNOWN_VERSION)
_TELLING_NOTHING = (*_NOT_ASKED, Outcome.INVALID)
_OF_WORKERS = (Outcome.OK, Outcome.FAILED, Outcome.EXPIRED)
_ALPHA = 0.05


class Told(NamedTuple):
    """A query's first observation, when it was written, and its answer."""

    written_us: int
    seen: Observation
    prediction: Prediction


class Truth:
    """Holds what a run has observed against what is true, of all queries whose models answer labels."""

    def __init__(self, plan: Plan, broker: FakeBroker, ledger: Ledger, codec: Codec) -> None:
        self._plan = plan
        self._ledger = ledger
        self._followed_us = _FOLLOWED_US + int(sum(fault.for_s for fault in plan.faults) * 1e6)
        names = [name.encode() for name in MODELS]
        log = [record for record in broker.logs[topics.MODELS, 0] if record.key in names]
        self._models = [(each.timestamp_us, codec.decode(Model, each.value)) for each in log]
        changed = [change.application for change in plan.changes if isinstance(change, Configure)]
        self._applications = (*plan.applications, *changed)
        others = {each.name for each in self._applications if each.stages or {*each.models} - {*MODELS}}
        self._labelling = {each.name for each in self._applications} - others

    def untrue(self) -> Iterator[str]:
        """Yield what is not as it should be."""
        told = [*self._told()]
        for one in told:
            found = (*_said(one), *self._arms(one), *self._versions(one))
            yield from (f"{one.seen.query_id}: {what}" for what in found)
        yield from self._compared(told)
        yield from self._judged()

    def _told(self) -> Iterator[Told]:
        ids = {name for name in self._ledger.answers if not name[1:].isdecimal()}  # what was asked for was not ours
        for _, log in sorted(self._ledger.log.items()):
            for written_us, seen in log:
                answer = self._ledger.decided.get(seen.query_id)
                if seen.query_id not in ids and seen.application in self._labelling and answer is not None:
                    ids.add(seen.query_id)
                    yield Told(written_us, seen, answer.prediction)

    def _cost(self, one: Told, output: ModelOutput) -> float:
        """Return what an output has cost: 1 where there was no answer in time."""
        if output.outcome is not Outcome.OK:
            return 1.0
        if one.seen.status is JoinStatus.DEFAULT:
            return self._ledger.default_loss(one.seen.application) or 0.0
        return float(output.answer != one.seen.label)

    def _arms(self, one: Told) -> Iterator[str]:
        """Hold the losses of the arms against what each has answered; an ensemble's late answer may have come since."""
        outputs = {output.model: output for output in one.prediction.outputs}
        for arm, loss in zip(one.seen.decision.arms, one.seen.losses, strict=True):
            output = outputs.get(arm)
            if output is None or output.outcome in _TELLING_NOTHING:
                true: set[float | None] = {None}
            else:
                true = {self._cost(one, output)}
            if output is not None and output.outcome is Outcome.MISSING and len(outputs) > 1:
                number = int(one.seen.query_id[1:])
                late = [output._replace(outcome=Outcome.OK, answer=said(arm, its, number)) for its in ("1", "2")]
                true |= {self._cost(one, each) for each in late}
            if loss not in true:
                yield f"{arm} has cost {sorted(true, key=str)}, observed is {loss}"

    def _versions(self, one: Told) -> Iterator[str]:
        """Hold what versions have cost against the answers: each that was drawn counts, also where it is silent."""
        for output in one.prediction.outputs:
            records = self._in_force(output.model, one)
            drawn = _drawn(one, records)
            if output.outcome in _NOT_ASKED or not all(record.shares for record in records) or not records:
                continue
            if output.version and output.outcome in _OF_WORKERS:
                drawn = {output.version}  # one that serves may stand in
            shadows = {its for record in records for its, share in record.shares.items() if not share}
            found = [(its, loss) for name, its, loss in one.seen.versions if name == output.model]
            true = self._cost(one, output)
            # One may have been drawn by one of the records, and a shadow by another.
            own = [its for its, loss in found if its in drawn and loss == true]
            named = {other for other, _ in found}
            if len(named) < len(found) or not any(named - {its} <= shadows for its in own):
                yield f"{output.model} has cost {true} as one of {sorted(drawn)}, observed is {found}"

    def _in_force(self, model: str, one: Told) -> Sequence[Model]:
        """Return the records of a model by which a query may have been asked and observed."""
        first_us, last_us = one.prediction.received_us - self._followed_us, one.written_us + self._followed_us
        its = [(at_us, record) for at_us, record in self._models if record.name == model]
        before = [record for at_us, record in its if at_us <= first_us][-1:]
        return before + [record for at_us, record in its if first_us < at_us <= last_us]

    def _compared(self, told: Sequence[Told]) -> Iterator[str]:
        """Hold the evidence on a canary against comparisons of the true costs, written down plainly."""
        for model in MODELS:
            fold, true = VersionEvidence(model, "2", "1"), Comparisons()
            for one in told:
                records = self._in_force(model, one)
                drawn = _drawn(one, records)
                outputs = [output for output in one.prediction.outputs if output.model == model]
                is_steady = len(drawn) == 1 and all(any(record.shares.values()) for record in records)
                if not is_steady or any(output.version not in drawn for output in outputs):
                    continue
                fold.take(one.seen)
                for output in outputs:
                    if output.outcome not in _NOT_ASKED:
                        true.take(one.seen.application, min(drawn), self._cost(one, output))
            found = fold.evidence(_ALPHA)
            if found.pairs != true.pairs or abs(found.difference - true.mean) > 1e-9:
                yield (
                    f"evidence on {model} has {found.pairs} comparisons and a difference of {found.difference:.4f},"
                    f" true are {true.pairs} and {true.mean:.4f}"
                )

    def _judged(self) -> Iterator[str]:
        """Count the queries that judge an apprentice: all but those of which nothing can be told, which are counted."""
        ways = {(its.name, registry.spec(registry.policy_of(its)), its.apprentice) for its in self._applications}
        for application, policy, apprentice in sorted(ways):
            if not apprentice or apprentice == policy:
                continue
            own, memory_us = (application, policy, apprentice), self._plan.joiner.memory_us
            fold = ApprenticeEvidence(application, apprentice, policy, memory_us, learns_along=True)
            ids: set[str] = set()
            unknown = known = 0
            for _, log in sorted(self._ledger.log.items()):
                for written_us, seen in log:
                    if seen.query_id in ids:
                        continue
                    ids.add(seen.query_id)
                    fold.take(seen, written_us)
                    if (seen.application, seen.decision.policy, seen.decision.apprentice) == own:
                        unknown, known = unknown + _is_unknown(seen), known + (not _is_unknown(seen))
            found = fold.evidence(_ALPHA)
            if (found.pairs, found.left_out) != (known, unknown):
                yield (
                    f"{apprentice} beside {policy} of {application}: {found.pairs} queries judge and"
                    f" {found.left_out} are left out; of {known} the cost is known, of {unknown} it is not"
                )


class Comparisons:
    """The comparisons of a canary with its incumbent: of runs that end as soon as both have answered."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, list[float]]] = {}
        self.pairs = 0
        self._total = 0.0

    def take(self, application: str, name: str, cost: float) -> None:
        """Take what one of them has cost."""
        run = self._runs.setdefault(application, {"1": [], "2": []})
        run[name].append(cost)
        if all(run.values()):
            mine, its = (sum(run[each]) / len(run[each]) for each in ("2", "1"))
            self.pairs += 1
            self._total += its - mine
            del self._runs[application]

    @property
    def mean(self) -> float:
        """What the candidate was better by."""
        return self._total / self.pairs if self.pairs else 0.0


def _said(one: Told) -> Iterator[str]:
    """Hold the answers against what the models say."""
    for output in one.prediction.outputs:
        if output.outcome is Outcome.OK:
            true = said(output.model, output.version, int(one.seen.query_id[1:]))
            if output.answer != true:
                yield f"{output.model} {output.version} says {true}, answered is {output.answer}"


def _drawn(one: Told, records: Sequence[Model]) -> set[str]:
    """Return the versions that a query may have been for."""
    return {version(one.seen.query_id, record.shares) or record.version for record in records}


def _is_unknown(seen: Observation) -> bool:
    """Tell whether it cannot be known what other models would have cost on a query."""
    if is_stepwise(registry.parse(seen.decision.policy)):
        return True
    losses = [seen.losses[arm] for arm in seen.decision.chosen]
    if len(losses) == 1:
        return seen.loss is None and losses[0] is None
    is_silent = all(loss == 1.0 for loss in losses)
    return (seen.loss is None and not is_silent) or len({loss is None for loss in losses}) == 2
