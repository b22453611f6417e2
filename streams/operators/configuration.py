"""The applications and models, as the compacted topics say; the last value of a key wins."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from policies import assignment, conformal, intervals, metrics, registry
from policies.combine import COMBINES, VOTE
from policies.contract import is_answering, is_choosing, is_placing, is_stepwise, ranks_by
from policies.errors import PolicyError, require
from policies.graph import faults
from policies.loss_rules import fault as fault_of_loss
from policies.loss_rules import rule
from policies.outside import comes_from_outside
from schemas import topics
from schemas.errors import DecodeError
from schemas.inputs import MAX_FEATURES
from schemas.records import Application, Model
from streams.topology import SPREAD, TOGETHER, application_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from policies.contract import Policy
    from schemas.codec import Codec
    from schemas.records import Cross, Source
    from streams.operators.contract import Record

# How an application treats a model that has not answered in time.
LEAVE_OUT, RUNNING_MEAN = MISSING = ("leave_out", "running_mean")
# What a source's features are looked up by: a field of a query, or each of its candidates; and where.
CANDIDATE = "candidate"
KEYS, STORES = ("context", "input", "query_id", CANDIDATE), ("topic", "redis")
_SOURCE = re.compile(r"[a-z0-9][a-z0-9-]{0,62}", re.ASCII)
# Predictions and feedback are kept for as long: a longer window could not be read back.
MAX_WINDOW_S = 604_800.0
# An objective longer than the retention of the models' topics is invalid.
MAX_SLO_MS = 3_600_000.0
_ROUNDED = 1e-6
# Of a ranking, from which is learnt: of each one more, features stand in an observation.
MOST_PLACES = 64
_EXAMINATION = f"make it 1 of the first place, then shares in [0, 1], of {MOST_PLACES} places at most"
# With a larger one a usual lesson would teach next to nothing.
MOST_WEIGHT = 1e6
# The longest objective of a query, in objectives of its application, unless that sets one: patience costs the others.
MOST_OBJECTIVES = 10.0


@dataclass(frozen=True, slots=True)
class Deployed:
    """An application with its policy made, its objective as a query needs it, and the longest that one may have.

    Attributes:
        apprentice: the policy that learns along beside another, in canonical form; empty = none.
        forget_us: after how long without a lesson a context is forgotten; 0 = never.
    """

    application: Application
    policy: Policy
    slo_us: int
    longest_us: int
    apprentice: str = ""
    forget_us: int = 0


# Who asks more about a query than its policy's models once.
GRAPH, CASCADE, HEDGE = "graph", "cascade", "hedge"


class Configuration:
    """Follows the topics `applications` and `models`."""

    __slots__ = ("_by_model", "_codec", "applications", "classes", "has_shares", "models")

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self.applications: dict[str, Deployed] = {}
        self.models: dict[str, Model] = {}
        self.classes: dict[str, tuple[str, ...]] = {}  # by MODEL@VERSION
        self._by_model: dict[str, dict[str, tuple[str, ...]]] = {}  # the same, by model and version
        self.has_shares = False  # whether a model runs in more than one version

    def on_record(self, record: Record) -> None:
        """Take one record; a null value (tombstone) removes what its key names.

        Raises:
            DecodeError: not an application or model, or one whose policy cannot be made; what was there before stays.
        """
        name = (record.key or b"").decode(errors="replace")
        if record.topic == topics.MODELS and topics.MODEL_VERSION in name:
            if record.value is not None:  # a version that is known, whether it serves or not
                self._note_classes(self._codec.decode(Model, record.value))
            return
        if record.topic == topics.APPLICATIONS:
            if record.value is None:
                self.applications.pop(name, None)
                return
            application = self._codec.decode(Application, record.value)
            check(application)
            try:
                policy = registry.policy_of(application)
                policy.init(len(application.models))
                along = apprentice_of(application, policy)
                check_answering(application, policy)
                check_ranking(application, policy)
                check_graph(application, policy)
            except PolicyError as error:
                raise DecodeError("invalid", f"application {application.name}: {error}") from error
            slo_us = int(min(application.slo_ms, MAX_SLO_MS) * 1_000)
            longest_ms = (
                MOST_OBJECTIVES * application.slo_ms if application.max_slo_ms is None else application.max_slo_ms
            )
            longest_us = int(min(longest_ms, MAX_SLO_MS) * 1_000)
            forget_us = int((application.forget_s or 0.0) * 1e6) if application.per_context else 0
            found = Deployed(application, policy, slo_us, max(slo_us, longest_us), along, forget_us)
            self.applications[application.name] = found
        elif record.value is None:
            self.models.pop(name, None)
        else:
            model = self._codec.decode(Model, record.value)
            if model.partitions < 1:
                raise DecodeError("invalid", f"model {model.name}: {model.partitions} partitions; make it at least 1")
            self.models[model.name] = model
            self._note_classes(model)
        self.has_shares = any(model.shares for model in self.models.values())

    def _note_classes(self, model: Model) -> None:
        self.classes[topics.model_version(model.name, model.version)] = model.classes
        self._by_model.setdefault(model.name, {})[model.version] = model.classes

    def classes_of(self, models: Iterable[str]) -> frozenset[str]:
        """Return the classes of all versions of some models, as text; none where one does not say which it has."""
        found: set[str] = set()
        for name in models:
            versions = self._by_model.get(name, {}).values()
            if not versions or not all(versions):
                return frozenset()
            found.update(*versions)
        return frozenset(found)


def apprentice_of(application: Application, policy: Policy) -> str:
    """Return the policy that learns along beside this one, in canonical form; empty = none.

    Raises:
        PolicyError: it cannot.
    """
    if not application.apprentice:
        return ""
    learning, count = apprentice(application.apprentice), len(application.models)
    if sum(learning.propensities(learning.init(count), count)) > 1.0 + _ROUNDED:
        raise PolicyError(f"{learning.name} asks several models: what they would have answered is not in the log")
    return "" if learning == policy else registry.spec(learning)


def check_answering(application: Application, policy: Policy) -> None:
    """Refuse a promise and a holdout where the policy answers by itself: its models compute features.

    Raises:
        PolicyError: it does, with numbers.
    """
    if not is_answering(policy):
        return
    require(not application.coverage, f"coverage is of models' answers, and {policy.name} answers numbers")
    require(
        not application.holdout,
        f"holdout is answered by the first model, and {policy.name} answers and ranks itself: leave it out, or compare"
        " two applications",
    )


def check_tensors(application: Application, policy: Policy, models: Mapping[str, Model]) -> None:
    """Refuse what cannot be made of an answer of several tensors: it is given as its model gives it.

    Args:
        application: that asks.
        policy: the application's.
        models: as far as they are known, by name.

    Raises:
        PolicyError: the message says what to change.
    """
    several = [name for name in application.models if name in models and models[name].output == "tensors"]
    if not several:
        return
    answers = f"{', '.join(several)} answers several tensors"
    is_averaged = application.combine != VOTE and _is_ensemble(policy)
    require(
        is_averaged or registry.asks_one(registry.spec(policy)),
        f"{answers}, and {policy.name} makes one answer of several models': take a policy that asks one model, such as"
        " `single` or `exp3`, or `exp4` with `combine: mean` or `median`",
    )
    require(not application.coverage, f"{answers}, and coverage is of one label or number: leave it out")
    judged = rule(application.loss)
    require(
        judged.kind not in ("log", "cost"),
        f"{answers}, and the loss `{judged.kind}` is of one model's classes: take `outputs`, with a loss of each",
    )
    for name in several:
        lacking = {*judged.outputs} - {form.name for form in models[name].outputs}
        require(
            not lacking,
            f"the loss `outputs` judges {', '.join(sorted(lacking))}, and {name} answers"
            f" {', '.join(form.name for form in models[name].outputs)}",
        )


def _is_ensemble(policy: Policy) -> bool:
    """Tell whether a policy asks all models once, and their answers are combined as the application says."""
    return policy.full_information and not (is_answering(policy) or comes_from_outside(policy))


def check_ranking(application: Application, policy: Policy) -> None:
    """Refuse sources of candidates' features that the policy does not rank by, and places from which it cannot learn.

    Raises:
        PolicyError: the message says what to change.
    """
    if application.examination:
        require(is_placing(policy), f"{policy.name} learns from no places: leave out examination, or take `ridge`")
        is_earned = min(application.examination) < 1.0 and getattr(policy, "low", 0.0) > 0.0
        require(not is_earned, "a place that nobody looks at earns 0: make low at most 0, or all of examination 1")
    if application.shuffle:
        require(
            ranks_by(policy) is not None and bool(application.examination),
            "shuffle is for rankings by features of which all places teach: take `ridge`, and set examination",
        )
    sources = [source for source in application.sources if source.key == CANDIDATE]
    if not sources:
        return
    names, width = ", ".join(source.name for source in sources), ranks_by(policy)
    if is_choosing(policy):
        raise PolicyError(f"{policy.name} ranks the items of its models by their ids: leave out the source {names}")
    if width is None:
        raise PolicyError(f"{policy.name} does not rank candidates: leave out the source {names}, or take `ridge`")
    found = candidate_width(application)
    require(
        found == width,
        f"{policy.name} ranks candidates by {width} features, and the source {names} has {found}: make the widths"
        f" {width} together, or set the parameter features={found}",
    )


def candidate_width(application: Application) -> int:
    """Return how many numbers are looked up for a candidate, or made of these by crosses."""
    crosses = [cross.width for cross in application.crosses if is_of_candidates(cross, application)]
    return sum([source.width for source in application.sources if source.key == CANDIDATE]) + sum(crosses)


def is_of_candidates(cross: Cross, application: Application) -> bool:
    """Tell whether a cross is of a query's features with those of its candidates."""
    return any(source.key == CANDIDATE and source.name in cross[:2] for source in application.sources)


def asks_more(application: Application, policy: Policy) -> str:
    """Return who asks more about an application's queries than its policy's models once; empty = nobody."""
    if application.stages:
        return GRAPH
    if is_stepwise(policy):
        return CASCADE
    return HEDGE if application.hedge else ""


def apprentice(spec: str) -> Policy:
    """Return the policy that is to learn along.

    Raises:
        PolicyError: there is no such policy, or the log does not say what it would have cost.
    """
    policy = registry.parse(spec)
    if policy.full_information:
        raise PolicyError(
            f"{policy.name} asks all models: what their vote would have cost is not in the log, not even in that of"
            " another such policy. Run it as an application of its own beside this one"
        )
    if is_stepwise(policy):
        raise PolicyError(f"{policy.name} asks again by what is answered: what that would have cost is not in the log")
    if hasattr(policy, "features_of"):
        raise PolicyError(f"{policy.name} makes its features of the inputs, and the log of another policy has none")
    return policy


def check_graph(application: Application, policy: Policy) -> None:
    """Refuse stages that cannot be run, or by this policy.

    Raises:
        PolicyError: the message names every fault.
    """
    if not application.stages:
        return
    found = faults(application.stages)
    if policy.full_information or is_stepwise(policy) or is_answering(policy) or comes_from_outside(policy):
        found.append(f"policy {application.policy} does not choose one model, and one is to answer: take `single`")
    found += [
        f"`{name}` is not for applications with stages"
        for name in ("parity", "hedge", "coverage")
        if getattr(application, name)
    ]
    if found:
        raise PolicyError("; ".join(found))


def check(application: Application) -> None:
    """Refuse what would fail at every query or window of the application.

    Raises:
        DecodeError: it would; the message names every fault.
    """
    default_loss, floor = application.default_loss, application.confidence_floor
    longest_ms = application.max_slo_ms
    faults = {
        f"its name has a '{TOGETHER}' or '{SPREAD}', which separate application and context": (
            application_of(application.name) != application.name
        ),
        "it has no models": not application.models,
        f"slo_ms is {application.slo_ms}; make it positive": not application.slo_ms > 0,
        f"max_slo_ms is {longest_ms}; make it positive": longest_ms is not None and not longest_ms > 0,
        f"window_s is {application.window_s}; make it at most a week": not 0 < application.window_s <= MAX_WINDOW_S,
        f"combine is {application.combine!r}, none of {', '.join(COMBINES)}": application.combine not in COMBINES,
        f"confidence_floor is {floor}, not in [0, 1]": not 0 <= floor <= 1,
        f"hedge is {application.hedge}, not in [0, 1]": not 0 <= application.hedge <= 1,
        f"missing is {application.missing!r}, none of {', '.join(MISSING)}": application.missing not in MISSING,
        f"default_loss is {default_loss}, not in [0, 1]": default_loss is not None and not 0 <= default_loss <= 1,
    }
    coverage = application.coverage
    faults[f"coverage is {coverage}; make it 0 (no promise) to {conformal.MOST}"] = not 0 <= coverage <= conformal.MOST
    faults[f"coverage is {coverage}; make it at most {intervals.MOST_PROMISED} where answers are numbers"] = (
        application.combine != VOTE and coverage > intervals.MOST_PROMISED
    )
    span, forget_s, max_weight = application.span, application.forget_s, application.max_weight
    if fault := fault_of_loss(application.loss):
        faults[fault] = True
    faults[f"max_weight is {max_weight}; make it positive, at most {MOST_WEIGHT:g}"] = not 0 < max_weight <= MOST_WEIGHT
    faults |= dict.fromkeys((*_faulty(application.sources), *metrics.faults_of(application.metrics)), True)
    faults |= dict.fromkeys(assignment.faults(application), True)
    faults[f"shuffle is {application.shuffle}, not in [0, 1]"] = not 0 <= application.shuffle <= 1
    faults |= dict.fromkeys(_faulty_crosses(application), True)
    faults[f"examination is {[*application.examination]}; {_EXAMINATION}"] = not _is_examination(
        application.examination
    )
    faults[f"forget_s is {forget_s}; make it positive"] = forget_s is not None and not 0 < forget_s < inf
    faults[f"span is {span}; make it a positive number"] = span is not None and not 0 < span < inf
    found = [fault for fault, is_there in faults.items() if is_there]
    if found:
        raise DecodeError("invalid", f"application {application.name}: {', '.join(found)}")


def _faulty_crosses(application: Application) -> Iterator[str]:
    """Yield what is impossible about crosses."""
    keys = {source.name: source.key for source in application.sources}
    for cross in application.crosses:
        if not {cross.left, cross.right} <= keys.keys():
            yield f"a cross is of {cross.left} and {cross.right}: name two of the sources, {', '.join(keys) or 'none'}"
        elif keys[cross.left] == keys[cross.right] == CANDIDATE:
            yield f"a cross is of {cross.left} and {cross.right}, both of candidates: cross one with a query's features"
        if not 0 < cross.width <= MAX_FEATURES:
            yield f"the width of a cross is {cross.width}; make it 1 to {MAX_FEATURES}"
    for of_candidates in (False, True):
        widths = [one.width for one in application.sources if (one.key == CANDIDATE) is of_candidates]
        widths += [one.width for one in application.crosses if is_of_candidates(one, application) is of_candidates]
        if application.crosses and sum(widths) > MAX_FEATURES:
            yield f"its sources and crosses have more than {MAX_FEATURES} features together"


def _is_examination(given: Sequence[float]) -> bool:
    """Tell whether these can be how likely places are looked at; nothing is."""
    if not given:
        return True
    return len(given) <= MOST_PLACES and given[0] == 1.0 and all(0.0 <= share <= 1.0 for share in given)


def _faulty(sources: Sequence[Source]) -> Iterator[str]:
    """Yield what is impossible about sources of features."""
    for source in sources:
        if not _SOURCE.fullmatch(source.name):
            yield f"source {source.name!r}: use lower-case letters, digits and dashes"
        if source.key not in KEYS or source.store not in STORES:
            yield f"source {source.name}: its key is one of {', '.join(KEYS)}, its store one of {', '.join(STORES)}"
        if source.width < 1 or not 0 <= source.wait <= 1:
            yield f"source {source.name}: make its width at least 1, its wait a share in [0, 1]"
    if len({source.name for source in sources}) < len(sources):
        yield "two of its sources have one name"
    if sum(source.width for source in sources if source.key != CANDIDATE) > MAX_FEATURES:
        yield f"its sources have more than {MAX_FEATURES} features together"
    if sum(source.width for source in sources if source.key == CANDIDATE) > MAX_FEATURES:
        yield f"its sources have more than {MAX_FEATURES} features for a candidate"
