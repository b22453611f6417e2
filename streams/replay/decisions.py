"""Decisions and answers again: selection, given the state that a prediction names and the outputs it was made from.

    query ─▶ its state's version ─▶ Selection at `received_us` ─▶ its outputs, or the timer, at `answered_us`
                                                                     ─▶ a prediction: the same bytes, or a difference

Each prediction is asked for anew, many at once. So it does not matter which process had answered it, nor how often.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from policies import registry
from policies.contract import Situation, is_contextual
from policies.errors import PolicyError
from schemas import topics
from schemas.records import Outcome, Prediction, is_ranked
from streams.operators.cold_start import started
from streams.operators.configuration import HEDGE
from streams.operators.contract import Emit, Record, StateKey
from streams.operators.selection.again.plan import OVERDUE
from streams.operators.selection.features.lookup import Recalled
from streams.operators.selection.kernel import Selection
from streams.operators.selection.state_view import arms_of
from streams.replay.configurations import Configured
from streams.replay.outputs import batched, batches, has_substitutes, is_whole
from streams.replay.questions import RecordedAdmission, RecordedLatencies, outputs_before
from streams.replay.report import ANSWERS, DECISIONS
from streams.replay.stages import told
from streams.runtime.role.local import LocalCodec
from streams.topology import application_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from schemas.codec import Codec
    from schemas.records import Decision, ModelPredictions, PolicyState
    from streams.operators.contract import Effects
    from streams.operators.selection.kernel import SelectionSettings
    from streams.replay.configurations import Timeline
    from streams.replay.report import ReplayReport
    from streams.replay.states import StateHistory

# Asked in one go: the kernel's calls then cost little beside what they do, and all of it is at hand.
AT_ONCE: Final = 1_024
# Answers without a decision that follow from the query, its time and the configuration alone.
_ALONE: Final = ("expired", "unknown_application")
# Common states that a new context may have started from, of which so many are tried.
_STARTS: Final = 512
_States: TypeAlias = "tuple[tuple[StateKey, PolicyState | None], ...]"


class RecordedDecision(NamedTuple):
    """A prediction as it was recorded, its query, and the states that decided.

    Attributes:
        record: of the prediction.
        prediction: in it.
        query: its record.
        states: that selection is given; of a decision the first is its own.
    """

    record: Record
    prediction: Prediction
    query: Record
    states: _States

    @property
    def version(self) -> tuple[str, str, int]:
        """What decided: queries with the same are asked together."""
        decision = self.prediction.decision
        return ("", "", 0) if decision is None else (decision.state, decision.policy, decision.state_version)


_received, _answered = attrgetter("prediction.received_us"), attrgetter("prediction.answered_us")


class Decisions:
    """Checks predictions, some at a time.

    Args:
        codec: of the trace's records.
        settings: of the selection role; its cache and its admission are left out, as the outputs are recorded.
        timeline: of applications and models.
        history: of the policy states.
        report: that is told what differs.
    """

    def __init__(
        self, codec: Codec, settings: SelectionSettings, timeline: Timeline, history: StateHistory, report: ReplayReport
    ) -> None:
        self._codec = codec
        self._local = LocalCodec(codec)
        self._timeline = timeline
        self._history = history
        self._report = report
        own = replace(settings, cache_bytes=0, admission=False, inside=frozenset())
        self._latencies, self._admission = RecordedLatencies(), RecordedAdmission()
        self._kernel = Configured(timeline, lambda: self._assuming(Selection(self._local, own)))
        self._waiting: list[RecordedDecision] = []
        self._ids: set[str] = set()

    def take(self, record: Record, prediction: Prediction, query: Record, names_version: bool) -> bool:
        """Take a prediction to check; False if its state has not been folded yet.

        Args:
            record: of the prediction.
            prediction: in it.
            query: its record.
            names_version: whether the query names a version.
        """
        why = _unchecked(prediction, names_version=names_version)
        if why is None:
            try:
                states = self._states(prediction.decision)
            except LookupError:
                return False
            if prediction.query_id in self._ids:
                self.flush()
            self._ids.add(prediction.query_id)
            self._waiting.append(RecordedDecision(record, prediction, query, states))
            if len(self._waiting) >= AT_ONCE:
                self.flush()
        else:
            self._report.unchecked[why] += 1
        return True

    def flush(self) -> None:
        """Check what waits."""
        asked, self._waiting = self._waiting, []
        self._ids.clear()
        epoch: Callable[[RecordedDecision], int] = lambda one: self._timeline.at(one.prediction.received_us)  # noqa: E731
        for number, several in groupby(sorted(asked, key=epoch), key=epoch):
            its = [*several]
            for one, value in zip(its, self._replayed(its, number), strict=True):
                self._judge(one, value)

    def _judge(self, one: RecordedDecision, value: bytes | None) -> None:
        report, recorded = self._report, one.record.value
        report.checked[ANSWERS] += 1
        report.checked[DECISIONS] += one.prediction.decision is not None
        if one.prediction.received_us == one.prediction.answered_us and one.prediction.outputs:
            report.inferred["cached"] += 1
        if value == recorded:
            return
        replayed = self._decoded(value)
        if self._is_same(one.prediction, replayed):
            return  # in another framing, or by an older schema
        here = self._timeline.at(one.prediction.received_us)
        starts = [one._replace(states=its) for its in self._starts(one)] if len(one.states) > 1 else []
        if any(self._fits(start, here) for start in starts):
            return
        if has_substitutes(one.prediction) or (replayed is not None and has_substitutes(replayed)):
            self._check_decision_alone(one, replayed)
        elif any(
            self._fits(start, epoch)
            for epoch in self._timeline.near(one.prediction.received_us)
            for start in (one, *starts)
        ):
            report.inferred["configuration_near"] += 1
        else:
            self._differ(one, replayed)

    def _fits(self, one: RecordedDecision, epoch: int) -> bool:
        return self._is_same(one.prediction, self._decoded(self._replayed([one], epoch)[0]))

    def _check_decision_alone(self, one: RecordedDecision, replayed: Prediction | None) -> None:
        """Leave the answer out: a running mean belongs to a process, and follows from all that it has seen."""
        if replayed is None or replayed.decision != one.prediction.decision:
            self._differ(one, replayed)
        else:
            is_decoded = any(output.reconstructed for output in one.prediction.outputs)
            self._report.unchecked["reconstructed" if is_decoded else "running_mean"] += 1
            self._report.checked[ANSWERS] -= 1

    def _differ(self, one: RecordedDecision, replayed: Prediction | None) -> None:
        """Tell what differs, if it can be known what it should be."""
        report, prediction = self._report, one.prediction
        known = self._timeline.knows(prediction.application, self._timeline.at(prediction.received_us))
        if not known and prediction.reason != "unknown_application":
            report.unchecked["configuration_missing"] += 1
            report.checked.subtract({ANSWERS: 1, DECISIONS: int(prediction.decision is not None)})
        elif replayed is None or replayed.decision != prediction.decision:
            report.add(DECISIONS, prediction.query_id, prediction.decision, replayed and replayed.decision)
        else:
            report.add(ANSWERS, prediction.query_id, prediction, replayed)

    def _decoded(self, value: bytes | None) -> Prediction | None:
        return None if value is None else self._codec.decode(Prediction, value)

    def _is_same(self, recorded: Prediction, replayed: Prediction | None) -> bool:
        again = recorded._replace(steps=tuple([step for step in recorded.steps if step.kind != HEDGE]))
        if replayed is not None:
            replayed = _as_told(recorded, replayed)
        if replayed is not None and is_ranked(recorded):  # when its state and its features came, nobody has recorded
            replayed = replayed._replace(answered_us=recorded.answered_us)
        if replayed is not None and not recorded.message:  # earlier releases said less
            replayed = replayed._replace(message="")
        return replayed is not None and self._codec.encode(again) == self._codec.encode(replayed)

    def _states(self, decision: Decision | None) -> _States:
        """Return what selection had read when it decided.

        Raises:
            LookupError: it is not known, or not yet.
        """
        if decision is None:
            return ()
        key = self._history.key(decision.state)
        if decision.state_version or application_of(decision.state) == decision.state:
            return ((key, self._history.find(decision)),)
        self._report.inferred["new_context"] += 1
        return next(self._starts_of(decision))

    def _starts(self, one: RecordedDecision) -> Iterator[_States]:
        """Yield what else a new context may have started from: propensities do not tell all of it.

        First none: where the store was slow at a start, contexts began without any, and of a policy whose propensities
        say nothing every common state fits. Then what there was when it was taken, as many observations may have
        followed since.
        """
        decision, common = one.prediction.decision, one.states[1][1]
        assert decision is not None
        yield self._without_state(decision)
        yield from islice(self._starts_of(decision, 0 if common is None else common.version), _STARTS)
        yield from islice(self._starts_of(decision), 1, _STARTS)

    def _starts_of(self, decision: Decision, latest: int | None = None) -> Iterator[_States]:
        """Yield the states that a decision for a new context may follow from: with each common state that fits."""
        history, key = self._history, self._history.key(decision.state)
        tried: set[tuple[object, ...]] = set()
        for common, state in history.commons(decision, latest):
            begun = started(state, decision.policy)
            learnt = () if begun is None else (begun.values, begun.confidences, begun.coverage)
            if begun is None or learnt in tried:
                continue
            tried.add(learnt)
            if _shares(decision, begun) == decision.propensities:
                yield (key, None), (common, state)
        yield self._without_state(decision)

    def _without_state(self, decision: Decision) -> _States:
        """Return the states of a context that began without any."""
        key = self._history.key(decision.state)
        return (key, None), (StateKey(key.partition, application_of(decision.state)), None)

    def _assuming(self, kernel: Selection) -> Selection:
        kernel.assume(self._latencies, self._admission)
        return kernel

    def _replayed(self, asked: Sequence[RecordedDecision], epoch: int) -> list[bytes | None]:
        """Return what selection writes for each, all of different ids."""
        kernel = self._kernel.at(epoch)
        whole = [one for one in asked if is_whole(one.prediction) and not _has_steps(one.prediction)]
        partial = [one for one in asked if not is_whole(one.prediction) or _has_steps(one.prediction)]
        found: dict[tuple[int, int], bytes] = {}
        self._ask(kernel, whole, found)
        self._tell(kernel, whole, found)
        self._drop(kernel, whole)
        for one in partial:  # one by one, as the timer answers all whose time has come
            self._ask_in_steps(kernel, one, found)
            if not is_whole(one.prediction):
                _note(kernel.on_timer(_over_us(one.prediction)), found)
            self._drop(kernel, [one])  # and with it what its models refused
        return [found.get(one.query[1:3]) for one in asked]

    def _ask(self, kernel: Selection, asked: Sequence[RecordedDecision], found: dict[tuple[int, int], bytes]) -> None:
        key: Callable[[RecordedDecision], tuple[tuple[str, str, int], int]] = lambda one: (  # noqa: E731
            one.version,
            one.prediction.received_us,
        )
        given: object = None
        for (version, now_us), several in groupby(sorted(asked, key=key), key=key):
            its = [*several]
            for one in its:
                if one.states and (version != given or len(one.states) > 1):
                    given = version
                    kernel.on_states(dict(one.states), now_us)
            kernel.recall({one.prediction.query_id: _recalled(one.prediction) for one in its})
            _note(kernel.on_records([one.query for one in its], now_us), found)

    def _ask_in_steps(self, kernel: Selection, one: RecordedDecision, found: dict[tuple[int, int], bytes]) -> None:
        """Ask a query, and bring for each of its steps what had come by then."""
        its = one.prediction
        self._latencies.follow(its)
        self._admission.follow(its)
        self._ask(kernel, [one], found)
        for now_us, rows in told(its):
            self._bring(kernel, now_us, batched((one.query.partition, row) for row in rows), found)
        for number, step in enumerate(its.steps):
            if step.kind == HEDGE:
                continue  # the same models again: no answer depends on it
            if step.kind == OVERDUE:
                _note(kernel.on_timer(step.at_us), found)
            else:
                known = its._replace(outputs=outputs_before(its, number), answered_us=step.at_us)
                self._tell(kernel, [one._replace(prediction=known)], found)
        self._tell(kernel, [one], found)

    def _tell(self, kernel: Selection, asked: Sequence[RecordedDecision], found: dict[tuple[int, int], bytes]) -> None:
        for now_us, several in groupby(sorted(asked, key=_answered), key=_answered):
            its = ((one.query.partition, one.prediction) for one in several if not one.prediction.stages)
            self._bring(kernel, now_us, batches(its), found)

    def _bring(
        self,
        kernel: Selection,
        now_us: int,
        made: Sequence[tuple[int, ModelPredictions]],
        found: dict[tuple[int, int], bytes],
    ) -> None:
        """Bring the kernel worker batches, each with its partition."""
        records = [
            Record(topics.MODEL_PREDICTIONS, partition, 0, now_us, None, self._local.encode(batch))
            for partition, batch in made
        ]
        if records:
            _note(kernel.on_records(records, now_us), found)

    def _drop(self, kernel: Selection, asked: Sequence[RecordedDecision]) -> None:
        """Have the kernel forget the ids: each may be asked again."""
        kernel.on_partitions({one.query.partition: None for one in asked})


def _over_us(prediction: Prediction) -> int:
    """Return when a query was answered with what there was; what was decoded may have been answered long before.

    Here its group is unknown, so it is over at the deadline. `sums` computes decoded outputs again.
    """
    is_decoded = any(output.reconstructed for output in prediction.outputs)
    return prediction.deadline_us if is_decoded else prediction.answered_us


def _recalled(prediction: Prediction) -> Recalled:
    features = () if prediction.decision is None else prediction.decision.features
    ranked = prediction.ranked
    if ranked is None:
        return Recalled(features, prediction.imputed)
    return Recalled(features, prediction.imputed, ranked.rows, ranked.imputed)


def _note(effects: Effects, found: dict[tuple[int, int], bytes]) -> None:
    for effect in effects:
        if effect.__class__ is Emit and effect.topic == topics.PREDICTIONS:
            found[effect.completes[0][1:]] = effect.value


def _as_told(recorded: Prediction, replayed: Prediction) -> Prediction:
    """Leave out of what is missing which version was asked, where the record does not say it: older ones do not."""
    unsaid = {one.model for one in recorded.outputs if one.outcome is Outcome.MISSING and not one.version}
    if not unsaid:
        return replayed
    outputs = [
        one._replace(version="") if one.outcome is Outcome.MISSING and one.model in unsaid else one
        for one in replayed.outputs
    ]
    return replayed._replace(outputs=tuple(outputs))


def _has_steps(prediction: Prediction) -> bool:
    """Tell whether a query asked more after its first models."""
    return bool(prediction.steps or prediction.stages)


def _shares(decision: Decision, state: PolicyState | None) -> tuple[float, ...]:
    """Return the propensities of a policy in a state, for the features of a decision."""
    arms = arms_of(registry.parse(decision.policy), decision.arms, decision.state, state)
    if arms.propensities_in is not None:
        return arms.propensities_in(Situation(decision.features))
    return arms.choices[0].decision.propensities


def _unchecked(prediction: Prediction, *, names_version: bool) -> str | None:
    """Return why a prediction cannot be checked, None if it can be."""
    decision = prediction.decision
    if prediction.reason == "oversized_outputs":
        return "oversized"
    if decision is None:
        if prediction.reason in _ALONE:
            return None
        return "named_version" if names_version else "undecided"
    return "latencies" if _goes_by_latencies(decision.policy) else None


def _goes_by_latencies(spec: str) -> bool:
    try:
        policy = registry.parse(spec)
    except PolicyError:
        return False
    return is_contextual(policy) and policy.uses == "latencies"
