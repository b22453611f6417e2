"""Observations into policy states: a fold whose result depends on the log alone, bit for bit."""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, TypeVar

from policies import calibration, registry
from policies.contract import is_placing, is_weighing
from policies.errors import PolicyError
from policies.lessons import Lesson
from schemas.records import OtherState, PolicyState
from streams.operators.cold_start import for_all, is_forgotten, started, states_of
from streams.operators.ids import SeenIds
from streams.operators.learn.bounds import LessonCounts, Reach
from streams.operators.policy_state import MOST_OTHERS, adopted, numbers
from streams.operators.promises import covered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from policies.contract import Policy, State
    from schemas.records import Decision, Observation, PlaceLoss

    _Parts = tuple[tuple[str, ...], int, State, State, State]  # arms, version, values, confidences, coverage

T = TypeVar("T")

# Cached policies of decisions: more than a poll has of an application and a version of its state.
_DECISIONS = 1024


class Fold:
    """One state during a fold: observations change it one by one; values that they share are looked up once.

    Args:
        state: all that lies under its name so far.
        window_us: how long after its last observation another policy's state is kept; the learner's.
        common: what a context that is new to a policy starts from, if there is anything.
    """

    __slots__ = (
        "_arms",
        "_common",
        "_confidences",
        "_coverage",
        "_others",
        "_policy",
        "_taught_us",
        "_values",
        "_version",
        "_window_us",
        "taken",
    )

    def __init__(self, state: PolicyState | None, window_us: int, common: PolicyState | None = None) -> None:
        self._window_us = window_us
        self._common = common
        self._policy: str | None = None
        self._arms: tuple[str, ...] = ()
        self._version = 0
        self._values: State = ()
        self._confidences: State = ()
        self._coverage: State = ()
        self._others: dict[str, OtherState] = {}  # the one taught last comes last
        self._taught_us = 0
        if state is not None:
            self._policy, self._taught_us = state.policy, state.taught_us
            self._arms, self._version, self._values, self._confidences, self._coverage = _parts(state)
            self._others = {other.policy: other for other in state.others}
        self.taken = False  # whether an observation has changed it

    @property
    def state(self) -> PolicyState:
        """The state as it is now; there is one as soon as an observation was taken."""
        assert self._policy is not None
        others, taught_us = tuple(self._others.values()), self._taught_us
        known = self._policy, self._arms, self._version, self._values
        return PolicyState(*known, others, taught_us, self._confidences, self._coverage)

    def take(self, seen: Observation, timestamp_us: int) -> None:
        """Fold one observation: it teaches the policy that decided, and its apprentice.

        A policy of which nothing is known (or with other parameters) starts anew; that of other arms is re-mapped by
        name. What the policy before has learnt stays for a window beside it: its observations may still come.

        Args:
            seen: the observation.
            timestamp_us: its record's.

        Raises:
            PolicyError: the decision names a policy that does not exist, or does not fit its arms; the state stays.
        """
        decision, learning = seen.decision, checked(seen)
        policy = decision.policy
        if policy == self._policy:
            has_promise = seen.label_set is not None or seen.interval is not None
            coverage = covered(seen, self._coverage) if has_promise else self._coverage
            self._values = _learnt(learning, policy, seen, self._arms, self._values)
            self._version += 1
            self._coverage = coverage
            if self._confidences or seen.confidence is not None:
                self._confidences = _judged(seen, self._arms, self._confidences)
        else:
            arms, version, values, confidences, coverage = self._known(policy)
            coverage = covered(seen, coverage)
            values = _learnt(learning, policy, seen, arms, values)
            self._step_back(policy, timestamp_us)
            self._policy, self._version, self._values = policy, version + 1, values
            self._confidences, self._coverage = _judged(seen, arms, confidences), coverage
        self._arms = decision.arms
        if decision.apprentice:
            self._teach(decision.apprentice, seen, timestamp_us)
        if self._others:
            self._forget(timestamp_us)
        if seen.forget_us:
            self._taught_us = max(self._taught_us, seen.observed_us)
        self.taken = True

    def _known(self, policy: str) -> _Parts:
        """Return what is known of a policy that did not decide last; no arms if it starts anew."""
        return _parts(self._others.get(policy) or self._adopted(policy) or started(self._common, policy))

    def _adopted(self, policy: str) -> PolicyState | None:
        """Return the state to go on from, if the policy that decided until now had other parameters alone."""
        return None if self._policy is None else adopted(self.state, policy)

    def _step_back(self, policy: str, timestamp_us: int) -> None:
        """Put what decided until now beside another policy, which decides."""
        self._others.pop(policy, None)
        if self._policy is not None:
            known = self._policy, self._arms, self._version, self._values
            self._others[self._policy] = OtherState(*known, timestamp_us, self._confidences, self._coverage)

    def _teach(self, apprentice: str, seen: Observation, timestamp_us: int) -> None:
        """Let an apprentice learn; if it cannot, nobody else is to suffer for it."""
        if apprentice == self._policy:
            return
        try:
            learning = registry.parse(apprentice)
            known = self._others.get(apprentice) or started(self._common, apprentice)
            arms, version, values, confidences, coverage = _parts(known)
            values = _learnt(learning, apprentice, seen, arms, values)
        except PolicyError:
            return
        self._others.pop(apprentice, None)
        confidences = _judged(seen, arms, confidences)
        self._others[apprentice] = OtherState(
            apprentice, seen.decision.arms, version + 1, values, timestamp_us, confidences, coverage
        )

    def _forget(self, timestamp_us: int) -> None:
        """Drop what no late observation can teach any more, and what there is no room for: the longest untaught."""
        while self._others:
            policy, longest = next(iter(self._others.items()))
            if len(self._others) <= MOST_OTHERS and timestamp_us - longest.taught_us <= self._window_us:
                break
            del self._others[policy]


class Folding:
    """Folds observations of one partition of the log into its states, by runs of one state.

    Args:
        states: by name; changed by `settle`.
        window_us: of the learner.

    Attributes:
        changed: what the observations have changed, by name.
        numbers: how many the states in `changed` have.
    """

    __slots__ = ("_fold", "_name", "_states", "_window_us", "changed", "numbers")

    def __init__(self, states: dict[str, PolicyState | None], window_us: int) -> None:
        self._states = states
        self._window_us = window_us
        self._name: str | None = None
        self._fold = Fold(None, window_us)
        self.changed: dict[str, PolicyState] = {}
        self.numbers = 0

    def take(self, seen: Observation, timestamp_us: int, reach: Reach = Reach.ALL) -> None:
        """Fold one observation, with its record's timestamp and reach; the states that it teaches are there.

        Raises:
            PolicyError: it cannot be; the states stay.
        """
        if reach is Reach.NOTHING:
            return
        if seen.context is None:  # one state to teach, as `taught` would say
            name = seen.decision.state
            if name != self._name:
                self.settle()
                self._name, self._fold = name, Fold(self._states[name], self._window_us)
            self._fold.take(seen, timestamp_us)
        else:
            self.settle()
            for name, state in taught(self._states, seen, timestamp_us, self._window_us, reach).items():
                self.put(name, state)

    def settle(self) -> None:
        """Store the state that the latest run ended in."""
        if self._name is not None and self._fold.taken:
            self.put(self._name, self._fold.state)
        self._name = None

    def put(self, name: str, state: PolicyState) -> None:
        """Note a state that observations have changed; there may be no run of it, see `settle`."""
        if name not in self.changed:
            self.numbers += numbers(state)
        self._states[name] = self.changed[name] = state


def taught(
    states: Mapping[str, PolicyState | None],
    seen: Observation,
    timestamp_us: int,
    window_us: int,
    reach: Reach = Reach.ALL,
) -> dict[str, PolicyState]:
    """Return the states that an observation changes, by name, as they are after it.

    Args:
        states: by name, as they are before it.
        seen: the observation.
        timestamp_us: its record's.
        window_us: of the learner.
        reach: how far it teaches.

    Raises:
        PolicyError: as `Fold.take`.
    """
    if reach is Reach.NOTHING:
        return {}
    own, *others = states_of(seen)
    common = states.get(others[0]) if others else None
    before = states.get(own)
    if before is not None and seen.context is not None and is_forgotten(before, seen.observed_us, seen.forget_us):
        before = None
    mine = Fold(before, window_us, common)
    mine.take(seen, timestamp_us)
    found = {own: mine.state}
    if others and reach is Reach.ALL and (after := _common_after(common, seen, timestamp_us, window_us)) is not None:
        found[others[0]] = after
    return found


def _common_after(
    common: PolicyState | None, seen: Observation, timestamp_us: int, window_us: int
) -> PolicyState | None:
    """Return the common state after an observation of a context."""
    under_way, its = Fold(common, window_us), for_all(seen)
    try:
        under_way.take(its, timestamp_us)
    except PolicyError:
        if its.decision.policy == seen.decision.policy:
            raise
        return common  # only an apprentice was to learn from it
    return under_way.state


def fold(log: Iterable[tuple[int, Observation]], window_us: int) -> dict[str, PolicyState]:
    """Fold one partition's log offline; the states equal the learner's bit for bit.

    Args:
        log: every observation of the partition in order, with its record's timestamp (us).
        window_us: the learner's window of query ids.
    """
    seen_ids, counts = SeenIds(window_us), LessonCounts()
    states: dict[str, PolicyState] = {}
    for timestamp_us, seen in log:
        reach = counts.reach(seen, timestamp_us)
        if seen_ids.add(seen.query_id, timestamp_us):
            states.update(taught(states, seen, timestamp_us, window_us, reach))
    return states


def _learnt(policy: Policy, spec: str, seen: Observation, arms: tuple[str, ...], values: State) -> State:
    """Return a policy's values after an observation.

    Args:
        policy: that learns.
        spec: its name and parameters.
        seen: the observation, whose parts fit each other.
        arms: of the values; none if the policy starts anew.
        values: before it.

    Raises:
        PolicyError: it cannot learn from it.
    """
    decision, lesson = seen.decision, _lesson(seen, is_weighing=is_weighing(policy))
    names, count = decision.arms, len(decision.arms)
    try:
        if arms != names:
            values = policy.extend(values, arms, names) if arms else policy.init(count)
        values = policy.observe(values, count, lesson)
        if seen.places and is_placing(policy):
            for one in seen.places:
                values = policy.observe(values, count, _of_place(lesson, one))
    except IndexError as error:
        raise PolicyError(f"the stored state has {len(values)} values, which do not fit {count} arms") from error
    except PolicyError:
        raise
    except (ArithmeticError, ValueError) as error:  # of a policy's numbers: reading again would not help
        raise PolicyError(f"{spec} cannot learn from it: {error!r}") from error
    # A sum of finite numbers may overflow, one with others is never finite.
    if not isfinite(sum(values)) and not all(map(isfinite, values)):
        raise PolicyError(f"{spec} leaves the finite numbers on these losses; make its parameters smaller")
    return values


def _lesson(seen: Observation, *, is_weighing: bool) -> Lesson:
    """Return what an observation teaches a policy; to one that does not weigh, lighter lessons cost less."""
    decision, losses, weight = seen.decision, seen.losses, 1.0 if seen.weight is None else seen.weight
    if weight != 1.0 and not is_weighing:
        losses, weight = tuple([None if loss is None else weight * loss for loss in losses]), 1.0
    lesson = Lesson(
        decision.chosen,
        decision.propensities,
        losses,
        decision.features,
        seen.answers,
        seen.steps,
        seen.scores,
        seen.label,
        weight,
    )
    return _of_stable(lesson, decision.stable) if decision.stable else lesson


def _of_place(lesson: Lesson, one: PlaceLoss) -> Lesson:
    """Return what one place of a ranking teaches, after the first: of its item, or of its own features.

    Which model is how good it does not say: what each would have answered is not known.
    """
    unknown = (None,) * len(lesson.losses)
    if one.item < 0:
        scores = (one.features, *unknown[1:])  # candidates are ranked by the features of the first model
        return lesson._replace(
            losses=unknown, answers=None, scores=scores, label=one.label, steps=(), examined=one.examined
        )
    losses, answers = (one.loss, *unknown[1:]), (one.item, *unknown[1:])
    return lesson._replace(losses=losses, answers=answers, label=None, steps=(), examined=one.examined)


def _of_stable(lesson: Lesson, stable: tuple[float, ...]) -> Lesson:
    """Return a lesson as the versions that serve teach it: canaries teach nothing of an arm.

    A version that serves was asked with the probability that its model was, times that it was drawn among its versions.
    So estimates that divide by the probability stay unbiased.
    """
    drawn = zip(lesson.propensities, stable, strict=True)
    return lesson._replace(
        propensities=tuple([share * part if part else share for share, part in drawn]),
        losses=_where(stable, lesson.losses),
        answers=None if lesson.answers is None else _where(stable, lesson.answers),
        scores=None if lesson.scores is None else _where(stable, lesson.scores),
    )


def _where(stable: tuple[float, ...], column: Sequence[T | None]) -> tuple[T | None, ...]:
    """Return what a column has of the arms whose version that serves was asked, None for the others."""
    return tuple([each if part else None for each, part in zip(column, stable, strict=True)])


def _parts(known: OtherState | PolicyState | None) -> _Parts:
    if known is None:
        return (), 0, (), (), ()
    return known.arms, known.version, known.values, known.confidences, known.coverage


def _judged(seen: Observation, arms: tuple[str, ...], known: State) -> State:
    """Return how often arms are right at each confidence, after an observation.

    Args:
        seen: the observation.
        arms: of what is known.
        known: before it; see `policies.calibration`.
    """
    decision = seen.decision
    if known and arms != decision.arms:
        known = calibration.extended(known, arms, decision.arms)
    if seen.confidence is None or len(decision.chosen) != 1:
        return known
    arm = decision.chosen[0]
    loss = None if decision.stable and not decision.stable[arm] else seen.losses[arm]
    return known if loss is None else calibration.observed(known, len(decision.arms), arm, seen.confidence, loss)


@lru_cache(_DECISIONS)
def _policy(decision: Decision) -> Policy | None:
    """Return the policy of a decision; None if its parts do not fit each other, or its policy does not exist."""
    count = len(decision.arms)
    if count == 0 or len(decision.propensities) != count or not all(map(_is_share, decision.propensities)):
        return None
    if decision.stable and (len(decision.stable) != count or not all(map(_is_share, decision.stable))):
        return None
    if decision.chosen and not 0 <= min(decision.chosen) <= max(decision.chosen) < count:
        return None
    try:
        return registry.parse(decision.policy)
    except PolicyError:
        return None


def checked(seen: Observation) -> Policy:
    """Return the policy of an observation's decision.

    Raises:
        PolicyError: its parts do not fit each other, or its policy does not exist.
    """
    decision, losses, answers, scores = seen.decision, seen.losses, seen.answers, seen.scores
    # A decision with the query's features belongs to this query alone, so it is not cached.
    policy = _policy.__wrapped__(decision) if decision.features else _policy(decision)
    count = len(decision.arms)
    if policy is None or len(losses) != count or (answers is not None and len(answers) != count):
        raise _fault(seen)
    if scores is not None and len(scores) != count:
        raise _fault(seen)
    for loss in losses:
        if loss is not None and not 0.0 <= loss <= 1.0:
            raise _fault(seen)
    if seen.weight is not None and not 0.0 < seen.weight <= 1.0:
        raise _fault(seen)
    if (made := seen.label_set) is not None and not all(map(_is_share, made.weights)):
        raise _fault(seen)
    if seen.confidence is not None and not 0.0 <= seen.confidence <= 1.0:
        raise _fault(seen)
    if seen.places and not all(0.0 < one.examined <= 1.0 and _is_share(one.loss) for one in seen.places):
        raise _fault(seen)
    if seen.steps and not all(0.0 <= step.probability <= 1.0 and 0.0 <= step.confidence <= 1.0 for step in seen.steps):
        raise _fault(seen)
    return policy


def _fault(seen: Observation) -> PolicyError:
    """Say what is wrong with an observation."""
    decision = seen.decision
    count = len(decision.arms)
    if count == 0 or len(decision.propensities) != count or len(seen.losses) != count:
        return PolicyError(f"{count} arms, {len(decision.propensities)} propensities, {len(seen.losses)} losses")
    if decision.chosen and not 0 <= min(decision.chosen) <= max(decision.chosen) < count:
        return PolicyError(f"chosen arms {decision.chosen} of {count}")
    weights = () if seen.label_set is None else seen.label_set.weights
    losses = [*seen.losses, *[one.loss for one in seen.places]]
    if not all(map(_is_share, (*decision.propensities, *decision.stable, *losses, *weights))):
        return PolicyError("propensities, also of versions, losses and weights of labels lie in [0, 1]")
    steps = [share for step in seen.steps for share in (step.probability, step.confidence)]
    examined = [one.examined for one in seen.places]
    if not all(map(_is_share, (seen.confidence, seen.weight, *steps, *examined))) or 0.0 in {seen.weight, *examined}:
        return PolicyError(
            "confidences, weights, examinations and probabilities of steps lie in [0, 1], weights above 0"
        )
    for word, column in (("answers", seen.answers), ("scores", seen.scores), ("versions", decision.stable or None)):
        if column is not None and len(column) != count:
            return PolicyError(f"{count} arms, {len(column)} {word}")
    try:
        registry.parse(decision.policy)
    except PolicyError as error:
        return error
    raise AssertionError(f"{decision} fits")


def _is_share(value: float | None) -> bool:
    return value is None or 0.0 <= value <= 1.0
