"""The records that travel: frozen values, one class for each `.avsc` file beside this one.

Records made for every query are named tuples, the rest are dataclasses: a prediction costs 0.3 us instead of 3.8
(CPython 3.11).

Times are microseconds since the epoch (`_us`) unless the name says otherwise. The first field of every record about a
query is its `query_id`, so that a role that only routes or matches can read it without decoding the rest.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np

from schemas.topics import MODEL_PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

# Element types a tensor may have; the wire carries the index into this tuple (an Avro enum of the same order).
DTYPES = ("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool")
_NAMES = {np.dtype(name): name for name in DTYPES}  # numpy makes a dtype's name anew each time it is asked: 1.7 us
_NONE: Mapping[str, float] = MappingProxyType({})
_LONG_MAX = 2**63 - 1
_SHOWN_BYTES = 128  # of a tensor, in what a person reads: 16 float64
# Of named tensors: what they are made of is remembered for the last few hundred signatures.
_MOST_DIMENSIONS, _MOST_TENSORS, _LONGEST_NAME = 8, 64, 128


def called(dtype: np.dtype[Any]) -> str:
    """Return the name of an element type; of one that travels always the same text, which compiled writers look for."""
    return _NAMES.get(dtype) or dtype.name


@dataclass(frozen=True, slots=True)
class Tensor:
    """A dense array as it travels: element type, shape and little-endian C-order bytes.

    The bytes pass through untouched, so 784 floats cost no per-element Python.
    """

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def __repr__(self) -> str:
        """Return dtype and shape, and the numbers where they are few."""
        few = len(self.data) <= _SHOWN_BYTES
        shown = f", {self.numpy().tolist()}" if few else f", {len(self.data)} bytes"
        return f"Tensor({self.dtype}{list(self.shape)}{shown})"

    @classmethod
    def of(cls, array: NDArray[np.generic]) -> Tensor:
        """Wrap an array; its bytes are copied once."""
        return cls(called(array.dtype), array.shape, array.tobytes())

    def numpy(self) -> NDArray[np.generic]:
        """Return a read-only view of the bytes with dtype and shape; shape (n, ...) for batches, (...) for a row."""
        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)


class TensorForm(NamedTuple):
    """A named tensor as a signature has it; part of `NamedTensors` and of a `Model`."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()


# What an array is made of: numbers of one type, or named tensors.
Element: TypeAlias = str | tuple[TensorForm, ...]


@lru_cache(maxsize=256)
def element(dtype: Element) -> np.dtype[Any]:
    """Return it as numpy has it: of named tensors a packed record with a field for each.

    Raises:
        ValueError: it is none, is empty, or a name is there twice.
    """
    if isinstance(dtype, str):
        return np.dtype(dtype)
    if len(dtype) > _MOST_TENSORS or not all(
        0 < len(name) <= _LONGEST_NAME and kind in DTYPES and len(shape) <= _MOST_DIMENSIONS
        for name, kind, shape in dtype
    ):
        raise ValueError(
            f"named tensors are at most {_MOST_TENSORS}, each with a name of at most {_LONGEST_NAME} characters, a type"
            f" that travels, and at most {_MOST_DIMENSIONS} dimensions"
        )
    if not sum(math.prod(shape) for _, _, shape in dtype) or min(min(shape, default=0) for _, _, shape in dtype) < 0:
        raise ValueError("named tensors hold at least one number")
    return np.dtype([(name, np.dtype(kind).newbyteorder("<"), shape) for name, kind, shape in dtype])


def forms_of(records: np.dtype[Any]) -> tuple[TensorForm, ...]:
    """Return the tensors of numpy's records; none of numbers."""
    fields = [(name, records[name]) for name in records.names or ()]
    return tuple([TensorForm(name, called(found.base), found.shape) for name, found in fields])


@dataclass(frozen=True, slots=True)
class NamedTensors:
    """Several tensors by name, as a model takes or answers them; or an array of rows of such.

    It has what a `Tensor` has. Its bytes are those of an array of packed records of numpy's, so they are stacked, cut
    and compared as a tensor's are.

    Raises:
        ValueError: the bytes are not what dtype and shape call for.
    """

    dtype: tuple[TensorForm, ...]
    shape: tuple[int, ...]  # () = one of each tensor; (n,) = n rows
    data: bytes

    def __post_init__(self) -> None:
        size = math.prod(self.shape) * element(self.dtype).itemsize
        if min(self.shape, default=0) < 0 or len(self.data) != size:
            raise ValueError(f"named tensors need {size} bytes of data, not {len(self.data)}")

    def __repr__(self) -> str:
        """Return the tensors."""
        shown = [f"{name}={Tensor.of(array)!r}" for name, array in self.arrays().items()]
        return f"NamedTensors({', '.join(shown)})"

    @classmethod
    def of(cls, array: NDArray[np.void]) -> NamedTensors:
        """Wrap an array of records, each a number or array a field; its bytes are copied once."""
        forms = forms_of(array.dtype)
        return cls(forms, array.shape, array.astype(element(forms), copy=False).tobytes())

    @classmethod
    def named(cls, arrays: Mapping[str, NDArray[np.generic]], rows: tuple[int, ...] = ()) -> NamedTensors:
        """Make them of arrays by name, the first dimensions of which are `rows`."""
        forms = [TensorForm(name, called(array.dtype), array.shape[len(rows) :]) for name, array in arrays.items()]
        found = np.empty(rows, element(tuple(forms)))
        for name, array in arrays.items():
            found[name] = array
        return cls(tuple(forms), rows, found.tobytes())

    def numpy(self) -> NDArray[np.void]:
        """Return a read-only view of the bytes: records with a field for each tensor."""
        return np.frombuffer(self.data, element(self.dtype)).reshape(self.shape)

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """Return the tensors by name."""
        records = self.numpy()
        return {name: np.asarray(records[name]) for name, _, _ in self.dtype}

    def lists(self) -> dict[str, Any]:
        """Return the tensors by name as numbers, in lists as deep as the tensor."""
        return {name: array.tolist() for name, array in self.arrays().items()}


DENSE: Final = (Tensor, NamedTensors)


def dense(dtype: Element, shape: tuple[int, ...], data: bytes) -> Tensor | NamedTensors:
    """Return an array as it travels."""
    return Tensor(dtype, shape, data) if isinstance(dtype, str) else NamedTensors(dtype, shape, data)


def dense_of(array: NDArray[Any]) -> Tensor | NamedTensors:
    """Wrap an array of numbers, or of records with a field for each tensor."""
    return Tensor.of(array) if array.dtype.names is None else NamedTensors.of(array)


Input: TypeAlias = Tensor | NamedTensors | str | bytes
# A class label (int or str), a number, a vector of scores, the places of the best candidates, or several tensors.
Value: TypeAlias = int | float | str | Tensor | NamedTensors


class Status(enum.Enum):
    """How complete an answer is."""

    COMPLETE = "complete"  # every model that was asked answered in time
    PARTIAL = "partial"  # the deadline came first: combined from the models that had answered
    DEFAULT = "default"  # no usable output: the application's default output, with a reason


class Outcome(enum.Enum):
    """What became of one model query."""

    OK = "ok"
    EXPIRED = "expired"  # dropped before predicting: it could not make its deadline
    INVALID = "invalid"  # the input does not fit the model's signature (dtype, shape, NaN)
    FAILED = "failed"  # the model raised on this row, or returned something that is not an answer
    MISSING = "missing"  # nothing had arrived when the answer was given
    UNKNOWN_VERSION = "unknown_version"  # the query names a version of the model that does not run
    OVERLOADED = "overloaded"  # not asked: so much waited for the model that its output would have come too late


class JoinStatus(enum.Enum):
    """Where an observation's losses come from."""

    JOINED = "joined"  # from feedback inside the window
    DEFAULT = "default"  # the window ended without feedback: the application's default loss


class Query(NamedTuple):
    """A question to an application. Topic `queries`, key = context if any, else query_id."""

    query_id: str
    application: str
    input: Input
    context: str | None = None
    sent_us: int = 0  # when the client meant to send it; 0 = take the record's own timestamp
    slo_ms: float | None = None  # instead of the application's objective, at most its max_slo_ms
    priority: int = 0  # an overloaded model refuses or drops queries of the lowest first
    features: tuple[float, ...] = ()  # input of contextual policies; at most `inputs.MAX_FEATURES`, finite
    version: str | None = None  # or label that must answer, or MODEL@VERSION; None = any
    reply_token: str = ""  # drawn by the client, repeated in the prediction; other answers are not for this query
    candidates: Tensor | tuple[str, ...] | None = (
        None  # rows of features, or ids, of which the best are asked for; at most `inputs.MAX_CANDIDATES`
    )
    top: int = 1  # so many of them
    episode: str = ""  # several queries that one feedback is about; "" = none


class ModelQueries(NamedTuple):
    """What one poll asks of a model for one reply partition: columns, row i belongs to query_ids[i].

    Topic `models.<model>.queries`. A record a query would cost 12 us more a query, both sides together (CPython 3.11).
    """

    query_ids: tuple[str, ...]
    reply_partition: int  # partition of `model-predictions` (= the queries' own partition)
    due_us: tuple[int, ...]  # the output must be on its way back by then, or it is useless
    inputs: Tensor | NamedTensors | tuple[str | bytes, ...]  # (n, ...) rows of one dtype and shape, or one a row
    priorities: tuple[int, ...] = ()  # one a row, empty if all are 0; beyond the cap the lowest wait
    version: str = ""  # named by these queries, as `Query.version`; "" = none
    spare_us: int = 0  # how much later than due an output may still be useful; tried if no other row has to wait
    step: int = 0  # of the plans of these queries: 0 = the first models asked, 1 = those asked after their answers, ...


class ModelPredictions(NamedTuple):
    """What one worker batch answered for one reply partition: columns, row i belongs to query_ids[i]."""

    model: str
    version: str
    worker: str
    query_ids: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    # (n,) labels, numbers or rows of named tensors, or n string labels; meaningless where the outcome is not OK
    answers: Tensor | NamedTensors | tuple[str, ...]
    scores: Tensor | None  # (n, k) one score a class, where the model gives scores
    waited_us: tuple[int, ...]  # per row: from the worker's fetch to the start of its batch
    predict_us: int  # the whole batch
    batch_rows: int  # rows predicted together, all reply partitions
    batch_cap: int  # the controller's cap when the batch was taken
    queue_rows: int  # rows still waiting when the batch was taken
    released: str = ""  # why the batch started: cap, eager, deadline, linger; "" = none ran
    messages: tuple[str, ...] = ()  # one a row: why its outcome is not OK, for a person; empty where no row has one
    earliest_us: int = 0  # when the batch could start, and did; 0 = none ran
    # When it had to start so that its most urgent row would be in time, by the estimate; 0 = none ran.
    latest_us: int = 0
    steps: tuple[int, ...] = ()  # one a row, as its model query has it; empty where all are 0


class Decision(NamedTuple):
    """What the policy decided and with what probability: everything learning needs, never recomputed.

    `propensities[i]` is the probability, under the state in force, that arm i is asked; `chosen` are the indices asked.
    Many queries share one decision; its first fields tell it from the others.
    """

    chosen: tuple[int, ...]
    state_version: int  # observations folded into the state that decided
    state: str  # name of the policy state that decided: the application, or application/context
    policy: str  # policy and parameters, as `policies.registry.spec()` writes them
    arms: tuple[str, ...]  # the application's models, in order
    propensities: tuple[float, ...]
    features: tuple[float, ...] = ()  # the query's, so that learning needs nothing but the log
    apprentice: str = ""  # a policy that learns from it, too, and has decided nothing; "" = none
    # Per arm: the probability that the version that serves answers; 0 = a canary was drawn. Empty = 1 for all.
    stable: tuple[float, ...] = ()


class Step(NamedTuple):
    """A question after a query's first one: what it was about, how likely it was, and what came of it."""

    kind: str  # escalate: an answer was there; overdue: none was, and the time left is needed; hedge: the same again
    arms: tuple[int, ...]  # indices of the arms that it asks
    at_us: int  # when it was decided
    probability: float  # that it is asked, given the answers and the time left; 0 = there was no time
    outcome: str  # asked, kept (the answer that was there will do) or late (there was no time)
    confidence: float = 0.0  # in [0, 1], of the answers that were there
    threshold: float = 0.0  # in [0, 1]: below this confidence it is asked for certain
    needed_us: int = 0  # what its models take to answer, at a high quantile; 0 = not known


class ModelOutput(NamedTuple):
    """One asked model's part of a prediction."""

    model: str
    version: str
    outcome: Outcome
    answer: Value | None  # if the outcome is not OK: its substitute, if there is one
    scores: Tensor | None = None
    reconstructed: bool = (
        False  # answer and scores are not the model's own, which is missing: a parity model's sum tells
    )
    # Of applications with `timings`; else, and where no batch answered (the cache did, or nothing), 0.
    waited_us: int = 0  # from when its worker had the row until its batch began
    predict_us: int = 0  # how long its batch took
    batch_rows: int = 0  # rows of its batch

    def timed(self, waited_us: int, predict_us: int, batch_rows: int) -> ModelOutput:
        """Return it with these times."""
        return self._replace(waited_us=waited_us, predict_us=predict_us, batch_rows=batch_rows)

    @property
    def times(self) -> tuple[int, int, int]:
        """What `timed` takes."""
        return self.waited_us, self.predict_us, self.batch_rows


class LabelSet(NamedTuple):
    """Labels of which one is the true one, with the frequency that the application promises."""

    labels: tuple[int | str, ...]  # the set, the likeliest first; at least one
    is_all: bool  # every other label is in it, too: too little is known for the promise
    coverage: float  # promised: the share of such sets that hold the true label, at least
    alpha: float  # in force: the share of misses aimed at; below 0 where the promise needs that
    least: float  # the weight that a label needs to be in it; 0 = every label is, more than 1 = only the likeliest is
    weights: tuple[float, ...]  # in [0, 1], of `labels` and then of `others`; any other label has none
    others: tuple[int | str, ...] = ()  # labels of less weight, which are not in it


class NumberInterval(NamedTuple):
    """Numbers of which one is the true one, with the frequency that the application promises."""

    low: float | None  # the least of them; None = any number is one: too little is known for the promise
    high: float | None  # the largest; None as `low` is
    coverage: float  # promised: the share of such intervals that hold the true number, at least
    alpha: float  # in force: the share of misses aimed at; below 0 where the promise needs that
    middle: float  # the answer around which it lies


class StageOutput(NamedTuple):
    """What a stage of an application's graph was asked, and what came of it; part of a prediction."""

    stage: str
    model: str
    version: str  # that answered; "" = none
    outcome: Outcome  # overloaded: not asked, its answer would have come too late; invalid: its input does not fit
    answer: Value | None
    scores: Tensor | None = None
    before: int = -1  # index of the entry whose answer it was asked about; -1 = the query
    item: int = 0  # which item of that answer
    at_us: int = 0  # when it could be asked: the query, or the answer before it, had been read
    took_us: int = 0  # from then until it was known what became of it; 0 = it was not asked, or was remembered
    until_us: int = 0  # by when it had to have answered
    left_out: int = 0  # so many items, from this one on, were not asked about, as they are too many
    beside: tuple[int, ...] = ()  # indices of the other entries whose answers its model was given


class Ranked(NamedTuple):
    """A query's candidates, and what is known of them; part of a `Prediction` and an `Observation`.

    Candidates that are rows stand in it where the application has an examination: feedback on any place needs them.
    """

    ids: tuple[str, ...]  # empty = the query brought the rows
    place: int  # in `ids`, of the one that stands first
    items: tuple[int, ...] = ()  # index of each among the models' items, -1 = not known; empty = features are ranked
    imputed: tuple[str, ...] = ()  # of the ids, those whose features had not come: running means stand in
    rows: Tensor | None = (
        None  # features of each (n, features), as they were looked up; in observations if it was drawn
    )
    drawn: tuple[int, ...] = ()  # the whole answer, where all its places were drawn evenly from the candidates


class Prediction(NamedTuple):
    """The answer to a query. Topic `predictions`, key and partition as the query's."""

    query_id: str
    application: str
    context: str | None
    decision: Decision | None  # None where nothing was decided (unknown application, no models)
    status: Status
    reason: str | None  # why the status is not `complete`, e.g. `low_confidence` for a default
    answer: Value | None
    confidence: float  # in [0, 1]: weight of the asked models that agree with the answer
    outputs: tuple[ModelOutput, ...]
    sent_us: int
    received_us: int
    deadline_us: int
    answered_us: int
    reply_token: str = ""  # the query's
    message: str = ""  # the reason for a person, e.g. the input that the model takes and the one it got
    steps: tuple[Step, ...] = ()  # after the first question; its decision has what all of them asked
    first: tuple[float, ...] = ()  # of each candidate or item: the probability that it stands first in the answer
    label_set: LabelSet | None = None  # where the application promises coverage, and models have answered
    imputed: tuple[str, ...] = ()  # sources whose features had not come: their running means stand in
    stages: tuple[StageOutput, ...] = ()  # of an application with a graph: all that its stages were asked
    ranked: Ranked | None = None  # where candidates were ids
    drawn: str = ""  # the draw of its context or episode that counted: SALT/PERIOD; "" = the query drew by its own id
    episode: str = ""  # the query's
    interval: NumberInterval | None = None  # where the application promises coverage, and the answer is a number

    def __repr__(self) -> str:
        """Return what a person asks first; `_asdict()` has every field."""
        because = f" ({self.reason}{f': {self.message}' if self.message else ''})" if self.reason else ""
        asked = ", ".join(f"{output.model} {output.version}".strip() for output in self.outputs) or "no model"
        return (
            f"Prediction({self.application!r}, answer={list(self.best) or self.answer!r}, {self.status.value}{because},"
            f" confidence={self.confidence:.2f}, asked {asked}, query_id={self.query_id!r})"
        )

    @property
    def best(self) -> tuple[str, ...]:
        """The ids of the best candidates, the best first; empty where they were no ids."""
        if self.ranked is None or not self.ranked.ids or not isinstance(self.answer, Tensor):
            return ()
        return tuple([self.ranked.ids[place] for place in self.answer.numpy().tolist()])


class PlaceFeedback(NamedTuple):
    """What is told of one place of a ranking; part of a `Feedback`."""

    position: int = 0  # in the answer, from 0; not looked at where `item` is given
    item: str = ""  # id of the candidate instead
    label: Value | None = None
    loss: float | None = None  # in [0, 1]


class Feedback(NamedTuple):
    """What the application learnt later: the true label, or the loss of the served answer. Key as the query's."""

    query_id: str
    label: Value | None = None
    loss: float | None = None  # in [0, 1]
    sent_us: int = 0
    weight: float | None = None  # how much it counts, above 0 and at most the application's `max_weight`; None = 1
    application: str = ""  # that it may teach; "" = whose the query is
    teacher: str = ""  # who tells it, as the gateway or the mapping knows; "" = nobody says
    places: tuple[PlaceFeedback, ...] = ()  # of a ranking, instead of label and loss, which are about the first


class KeyedFeedback(NamedTuple):
    """What the application learnt later about the last answer of a context. Key: the context."""

    query_id: str  # empty: it is looked up
    application: str
    context: str
    within_us: int  # how old that answer is at most
    label: Value | None = None
    loss: float | None = None  # in [0, 1]
    sent_us: int = 0  # the answer is the last one before
    revises: bool = False  # `context` is a query's id, about which the last record counts
    weight: float | None = None  # as of `Feedback`
    teacher: str = ""  # as in `Feedback`
    episode: str = ""  # about all its answers by then, instead of the last one of a context; "" = not
    places: tuple[PlaceFeedback, ...] = ()  # as of `Feedback`
    metric: str = ""  # that is told instead of label, loss and places; "" = none
    value: float = 0.0  # what the metric came to, in its unit


class MetricFeedback(NamedTuple):
    """What a metric came to on a query, as the application learnt later. Key as the query's."""

    query_id: str
    metric: str  # of the query's application
    value: float  # in the metric's unit
    sent_us: int = 0
    application: str = ""  # as in `Feedback`
    teacher: str = ""  # likewise


class VersionLoss(NamedTuple):
    """What one version of a model cost, or would have cost, on one query: it answered, or saw it as a shadow."""

    model: str
    version: str
    loss: float  # in [0, 1]; 1 where it gave no answer


class TeachingBound(NamedTuple):
    """How many lessons one teacher, and one context, may give within a minute."""

    teacher: str  # who told it; "" = nobody, or one of those who are not known
    most: int  # lessons of one teacher; 0 = any number
    most_context: int  # lessons of one context that teach what all contexts share; 0 = any number


class PlaceLoss(NamedTuple):
    """What one place of a ranking, after the first, has cost; part of an `Observation`."""

    position: int  # in the answer, from 1
    place: int  # among the query's candidates
    loss: float | None = None  # in [0, 1]; None = a label was told
    label: Value | None = None
    examined: float = 1.0  # probability that somebody looked at the place, as the application says
    item: int = -1  # index among the models' items; -1 = its features are ranked
    features: Tensor | None = None  # its own, by which it was ranked; None where it is an item of the models


class Observation(NamedTuple):
    """One line of the exploration log: the decision and what it cost. Policies are folds over these."""

    query_id: str
    application: str
    context: str | None
    decision: Decision
    losses: tuple[float | None, ...]  # per arm, in [0, 1]; None = that arm's loss is not known
    loss: float | None  # of the served answer
    label: Value | None
    status: JoinStatus
    predicted_us: int
    observed_us: int  # event time: the feedback's timestamp, or the end of the window
    answers: tuple[int | str | None, ...] | None = None  # labels by arm, where the policy learns from them
    span: float | None = None  # the error that cost 1, where the losses are absolute or squared
    versions: tuple[VersionLoss, ...] = ()  # of models that run in several
    forget_us: int = 0  # a context that was taught nothing for longer starts anew; 0 = never
    steps: tuple[Step, ...] = ()  # the prediction's
    scores: tuple[Tensor | None, ...] | None = None  # by arm: what its model computed, where the state answers
    first: tuple[float, ...] = ()  # the prediction's
    confidence: float | None = None  # of the one model asked: its own, in [0, 1]; None = it did not say, or no feedback
    label_set: LabelSet | None = None  # the prediction's, where a label was told
    stages: tuple[StageOutput, ...] = ()  # the prediction's
    imputed: tuple[str, ...] = ()  # the prediction's: sources whose running means stood in
    ranked: Ranked | None = None  # the prediction's, without the rows
    worth: float | None = None  # what a loss of 1 costs, in the unit of the application's loss; None = it has none
    weight: float | None = None  # the part of a full lesson that it is, in (0, 1]; None = 1
    bound: TeachingBound | None = None  # how far it may teach; None = as it stands
    drawn: str = ""  # the prediction's: those of one context and draw are no independent evidence
    episode: str = ""  # the prediction's
    places: tuple[PlaceLoss, ...] = ()  # what the places of a ranking after the first have cost, as far as it was told
    interval: NumberInterval | None = None  # the prediction's, where a number was told


class Observations(NamedTuple):
    """Observations that were made at once and teach one state, in order. A record of the topic with one is that one."""

    items: tuple[Observation, ...]


class MetricValue(NamedTuple):
    """What one metric came to; part of a `Measurement`."""

    metric: str
    value: float  # in its unit, as it was told or measured
    loss: float  # the same in [0, 1], by the metric's span; 0 = best


class Measurement(NamedTuple):
    """What metrics came to on one query, as soon as that was known; part of `Measurements`."""

    query_id: str
    application: str
    context: str | None
    decision: Decision
    values: tuple[MetricValue, ...]  # none: what was told before is withdrawn, as its query had to be forgotten
    versions: tuple[str, ...] = ()  # MODEL@VERSION that was drawn, of models that run in several
    predicted_us: int = 0
    measured_us: int = 0  # event time: of the answer, the feedback, or the end of the window
    drawn: str = ""  # the prediction's: those of one context and draw are no independent evidence
    episode: str = ""  # the prediction's
    final_us: int = 0  # event time before which it must not be compared: silence counts from then on; 0 = at once


class Measurements(NamedTuple):
    """Measurements of one policy state, in order. Topic `observations`, whose readers see no observation in it."""

    items: tuple[Measurement, ...]


@dataclass(frozen=True, slots=True)
class Metric:
    """What an application measures beside its loss; part of an `Application`. `policies.metrics` says what it means."""

    name: str  # lower case, digits, dashes
    of: str = "feedback"  # feedback: it is told; latency: how long answers take, ms; price: of the models asked
    is_higher_better: bool = False
    least: float = 0.0  # the least value that counts as itself
    most: float = 1.0  # the largest
    unit: str = ""
    guardrail: float | None = None  # how much worse, in the unit, a candidate may be on the average; None = any amount
    absent: float | None = None  # its value where the window ended and none was told; None = that tells nothing
    prices: Mapping[str, float] = field(
        default_factory=dict
    )  # what it costs to ask a model once, by model or MODEL@VERSION


class Source(NamedTuple):
    """Where features of an application's queries come from; part of an `Application`."""

    name: str  # of the source: lower case, digits, dashes
    width: int  # numbers that it has for a key
    key: str = "context"  # looked up by the query's context, input (a text) or query_id, or by each `candidate` id
    store: str = "topic"  # topic: `features`, followed as a table; redis: read when they are asked for
    wait: float = 0.5  # share of its time that a query may wait for them, in [0, 1]; 0 = not at all


class Cross(NamedTuple):
    """Products of the features of two sources, of one query or of it and its candidates; part of an `Application`."""

    left: str  # a source
    right: str  # another one, or the same
    width: int  # numbers that it adds: as many products have a place each, more are hashed


class Features(NamedTuple):
    """Features of one key. Topic `features` (compacted), key = SOURCE/KEY; under SOURCE alone their running mean."""

    values: tuple[float, ...]
    weight: int = 0  # of a mean: how many queries it is of


class Stage(NamedTuple):
    """A part of an application's graph: which model is asked about what. `policies.graph` says what it means."""

    name: str
    model: str  # "" = the one that the policy chooses: its answer is the application's
    after: str = ""  # the stage about whose answer it is asked; "" = it is asked about the query
    input: str = "query"  # what the model is given: query, a stage, or STAGE.FIELD; several with commas between them
    crop: str = ""  # field with the box to which the query's image is cut; "" = it is not
    where: str = ""  # which items of the answer before it is asked about; "" = all
    most: int = 16  # of how many items of one answer at most
    share: float = 1.0  # of the time to answer: by then it must have answered


@dataclass(frozen=True, slots=True)
class Application:
    """Desired state of one application. Topic `applications` (compacted), key = name; the last value wins."""

    name: str
    models: tuple[str, ...]
    policy: str = "exp3"
    parameters: Mapping[str, float] = field(default_factory=dict)
    per_context: bool = False  # one policy state per context instead of one for the application
    slo_ms: float = 100.0
    default_output: Value | None = None
    loss: str = "zero_one"  # a name, a JSON object with a rule, or a dotted path: see `policies.loss_rules`
    window_s: float = 600.0  # how long feedback is waited for
    default_loss: float | None = None  # learnt when the window ends without feedback; None = learn nothing
    combine: str = "weighted_vote"  # weighted_vote | mean | median
    confidence_floor: float = 0.0  # in [0, 1]: below it the answer is the default output; 0 = never
    missing: str = "leave_out"  # leave_out | running_mean: the substitute for a model that has not answered in time
    max_slo_ms: float | None = None  # the longest objective that a query may ask for; None = ten times slo_ms
    span: float | None = None  # of numbers: the error that costs 1; None = learnt, or as the loss says
    apprentice: str = ""  # a policy that learns along, as `policies.registry.spec()` writes it; "" = none
    spread: bool = False  # whether the contexts lie in all partitions of `observations`, instead of one
    forget_s: float | None = None  # a context that was taught nothing for longer starts anew; None = never
    versions: Mapping[str, str] = field(default_factory=dict)  # that answer for models: a version or a label, by model
    parity: str = ""  # a parity model, by which missing outputs of the model that it belongs to are decoded; "" = none
    hedge: float = 0.0  # share of the questions that may be put twice, where a model takes longer than usual; 0 = none
    options: str = ""  # parameters of a policy from outside the package, a JSON object; "" = none
    coverage: float = 0.0  # each prediction has a set of labels or an interval, this share has the true one; 0 = none
    sources: tuple[Source, ...] = ()  # of features that stand before a query's own, in this order
    stages: tuple[Stage, ...] = ()  # its graph; without one its models are asked about the query, and nothing else is
    mapping: str = ""  # what it reads and writes of others' topics: `from`, `to`, `feedback` as JSON; "" = nothing
    timings: bool = False  # outputs in its predictions say how long rows waited, and about their batch
    max_weight: float = (
        1.0  # the largest weight of feedback; a lesson of this weight counts whole, of a smaller in part
    )
    lessons_per_teacher: int = 0  # in a minute at most; 0 = any number
    lessons_per_context: int = 0  # in a minute that teach what all contexts share; 0 = any number
    teachers: tuple[str, ...] = ()  # whose lessons are counted each, all others as one; () = each name counts
    metrics: tuple[Metric, ...] = ()  # what is measured beside the loss
    assign: str = "query"  # query | context | episode: who draws versions and arms, see `policies.assignment`
    sticky_s: float = 0.0  # how long a draw of a context stands; 0 = for ever
    salt: str = ""  # another one draws anew for every context
    holdout: float = 0.0  # share of the contexts that the first model answers for ever, whatever the policy is
    episodes: bool = False  # feedback may be about all answers of an episode
    # Of rankings: the probability that each place is looked at, beside the first; () = only the first one teaches.
    examination: tuple[float, ...] = ()
    shuffle: float = 0.0  # share of its rankings whose places are all drawn evenly, so that others can be judged
    crosses: tuple[Cross, ...] = ()  # of its sources: what they add stands behind the features of these

    @property
    def asks(self) -> tuple[str, ...]:
        """All models that it may ask: those among which its policy chooses, and those of its stages."""
        return (*self.models, *[stage.model for stage in self.stages if stage.model])


class Service(NamedTuple):
    """A time during which a version of a model served; part of a `Model`."""

    version: str
    since_us: int = 0  # 0 = not known
    until_us: int = 0  # likewise


@dataclass(frozen=True, slots=True)
class Model:
    """A deployed model version. Topic `models` (compacted), key = name."""

    name: str
    version: str
    runtime: str  # sklearn | torch | function | onnx | trees | linear
    path: str  # folder of the package, as the workers see it
    digest: str  # SHA-256 of the package's manifest
    output: str  # label | scores | value | tensors
    dtype: str | None  # of one input row; None for str or bytes inputs, and named tensors
    shape: tuple[int, ...]
    classes: tuple[str, ...] = ()
    # Versions beside this one and the share of queries that each answers (a canary); 0 = a shadow, which never answers.
    shares: Mapping[str, float] = field(default_factory=dict)
    partitions: int = MODEL_PARTITIONS  # of the topic with its queries, over which selection spreads them
    labels: Mapping[str, str] = field(default_factory=dict)  # versions by label; a version with a label is loaded
    # Versions that are loaded, and answer who names them unless they serve or have a share.
    standby: tuple[str, ...] = ()
    latest: int = 0  # so many of the versions added last stand by, whichever these are; 0 = those of `standby` as it is
    bytes: int = 0  # of the package's files; 0 = not known
    parity_of: str = ""  # MODEL@VERSION of whose outputs this model answers the sum; "" = it is no parity model
    parity_k: int = 0  # of so many rows' outputs, given the sum of their inputs
    # How often decoded answers are right, at each of `policies.calibration.KNOTS`; empty = not known.
    parity_right: tuple[float, ...] = ()
    trunk: str = ""  # digest of the leading part, which models of one host share; "" = none
    trunk_bytes: int = 0  # of the trunk's files, which are among `bytes`
    since_us: int = 0  # when it began to serve; 0 = not known
    served: tuple[Service, ...] = ()  # versions that can be gone back to: they served, and were not taken back
    inputs: tuple[TensorForm, ...] = ()  # of one input row, where its tensors have names
    outputs: tuple[TensorForm, ...] = ()  # of one answer, where the output is tensors
    usual: str = ""  # what the package's rows and the answers to them are like (`streams.usual.rows`); "" = not known

    @property
    def takes(self) -> Element | None:
        """What one input row is made of; None for str or bytes inputs."""
        return self.inputs or self.dtype


class WatchedMetric(NamedTuple):
    """A metric by which a candidate is compared, as it was when that began; part of a `Candidate`."""

    application: str
    metric: str
    width: float  # what a loss of 1 is in the unit: the most less the least
    unit: str = ""
    guardrail: float | None = None  # as of `Metric`


class MetricEvidence(NamedTuple):
    """How a candidate compares by a metric, in its unit; part of a `Promotion`."""

    application: str
    metric: str
    pairs: int = 0  # comparisons
    difference: float = 0.0  # by how much the candidate is better
    lower: float = 0.0  # bounds of it, at all times at once
    upper: float = 0.0
    unit: str = ""
    guardrail: float | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A version or policy that is to take over on evidence. Topic `candidates` (compacted), key = kind/name."""

    kind: str  # version: of the model `name`; policy: of the application `name`
    name: str
    candidate: str  # the version, or the policy as `policies.registry.spec()` writes it
    incumbent: str  # likewise
    since_us: int  # observations from then on count
    steps: tuple[float, ...]  # shares of the queries that it answers one after the other; 0 = none, 1 = it takes over
    holdback: float = 0.0  # share that the incumbent keeps afterwards
    alpha: float = 0.05  # probability of ever being wrong about which of the two is better
    least: int = 100  # comparisons at each share before the next
    dwell_us: int = 0  # time at each share before the next
    risk: float = 0.01  # of all queries: how many more errors the next share may cost, at confidence 1 - alpha
    budget: float = 50.0  # errors that it may have cost before it goes back
    tolerance: float = 0.0  # it may take over if it costs no more errors a query than this, at confidence 1 - alpha
    limits: Mapping[str, float] = field(default_factory=dict)  # of guards by name
    metrics: tuple[WatchedMetric, ...] = ()  # by which it is compared beside the loss


class Promotion(NamedTuple):
    """One step of a candidate, with its evidence. Topic `promotions`, key as of `candidates`."""

    kind: str
    name: str
    candidate: str
    incumbent: str
    since_us: int  # of the wish that it belongs to
    time_us: int
    action: str  # begin, step, promote, back, end
    share: float  # of the queries that the candidate answers from now on
    reason: str  # for a person
    pairs: int = 0  # comparisons
    effective: float = 0.0  # as many of equal weight would tell as much
    difference: float = 0.0  # loss of the incumbent less that of the candidate: positive = the candidate is better
    lower: float = -1.0  # bounds of it, at all times at once with confidence 1 - alpha
    upper: float = 1.0
    candidate_loss: float | None = None
    incumbent_loss: float | None = None
    cost: float = 0.0  # errors that the candidate has cost so far, more than the incumbent would have
    guards: Mapping[str, float] = _NONE  # measured values that were held against its limits
    offsets: tuple[int, ...] = ()  # by partition of `observations`: behind the last that the evidence goes by; 0 = none
    metrics: tuple[MetricEvidence, ...] = ()  # how it compares by further metrics


class Profile(NamedTuple):
    """What a model's batches and its loading take. Topic `profiles` (compacted), key = model."""

    model: str
    version: str  # that was measured
    sizes: tuple[int, ...]  # rows of batches, rising
    p99_us: tuple[int, ...]  # what each takes
    load_us: int = 0  # 0 = not known
    bytes: int = 0  # in memory; 0 = not known


class Place(NamedTuple):
    """A model on a host; part of a `Plan`."""

    host: str  # instance
    model: str
    partitions: tuple[int, ...]  # of the model's topic, that the host reads
    per_s: float  # rows a second that are provided for; 0 = nobody asks
    rows: int  # of a batch
    duty_us: int  # after which the host comes to the model again; 0 = nobody asks


class Plan(NamedTuple):
    """Which host of a pool reads the queries of which models, and why. Topic `plan` (compacted), key = pool."""

    pool: str
    time_us: int
    changed_us: int  # when the places last were others than before
    needed: int  # hosts that it takes
    hosts: tuple[str, ...]  # instances of those that there were
    places: tuple[Place, ...]
    why: str  # it was planned
    reasons: tuple[str, ...] = ()  # what moves, and what no host can do
    from_us: int = 0  # when hosts follow it: what moves is being loaded until then; 0 = at once


LAST_EXIT = "last_exit"  # gauge: how the process of this name before this one ended, where a supervisor has told
STOPPED = "stopped"  # gauge of the last report of a process that stops by a signal


@dataclass(frozen=True, slots=True)
class Report:
    """One report a second from every process. Topic `reports`, key = instance."""

    instance: str
    role: str
    time_us: int
    counters: Mapping[str, float]  # monotonic since start; labels as in `answers{application=digits,status=default}`
    gauges: Mapping[str, float]


class OtherState(NamedTuple):
    """What another policy has learnt from the same observations, or did until lately; part of a `PolicyState`."""

    policy: str
    arms: tuple[str, ...]
    version: int
    values: tuple[float, ...]
    taught_us: int  # the log's time of its last observation
    confidences: tuple[float, ...] = ()  # as of the policy that decided last
    coverage: tuple[float, ...] = ()  # of sets or intervals: `policies.conformal`, `policies.intervals`; empty = none


class PolicyState(NamedTuple):
    """A policy's state as it is stored: which policy, which arms, how many observations, the numbers.

    The policy is the one that decided what was observed last. Beside it stand its apprentice, and those that decided or
    learnt along lately: the one taught last stands last.
    """

    policy: str
    arms: tuple[str, ...]
    version: int
    values: tuple[float, ...]
    others: tuple[OtherState, ...] = ()
    taught_us: int = 0  # event time of the latest lesson; 0 = unknown: such a state is not forgotten
    confidences: tuple[float, ...] = ()  # how often arms are right: `policies.calibration`; empty = nothing is known
    coverage: tuple[float, ...] = ()  # as in `OtherState`


_Dense = TypeVar("_Dense", Tensor, NamedTensors)


def outputs_of(batch: ModelPredictions) -> list[ModelOutput]:
    """Split a worker batch into one output a row, without numpy scalars in them.

    Where the answer of a row is no label, finite number or text, the row has failed, whatever its outcome says.
    """
    scores: Iterable[Tensor | None] = repeat(None) if batch.scores is None else rows_of(batch.scores)
    return [
        ModelOutput(batch.model, batch.version, outcome, label, score)
        if outcome is Outcome.OK and label is not None
        else ModelOutput(batch.model, batch.version, Outcome.FAILED if outcome is Outcome.OK else outcome, None)
        for outcome, label, score in zip(batch.outcomes, values_of(batch.answers), scores, strict=False)
    ]


def values_of(answers: Tensor | NamedTensors | tuple[str, ...]) -> Sequence[Value | None]:
    """Return a column's labels, numbers, texts or tensors; None where there is none that a record can hold."""
    if isinstance(answers, tuple):
        return answers
    if isinstance(answers, NamedTensors):
        return [*rows_of(answers)]
    column = answers.numpy()
    if column.ndim != 1:
        return (None,) * len(column)
    found: list[int | float] = column.tolist()
    if column.dtype.kind == "f" and not isfinite(sum(found)):
        return [each if isfinite(each) else None for each in found]
    if answers.dtype == "uint64":
        return [each if each <= _LONG_MAX else None for each in found]
    return found


def rows_of(column: _Dense) -> Iterator[_Dense]:
    """Return the rows of a column as they lie."""
    of = type(column)
    rows, *shape = column.shape
    size = len(column.data) // rows if rows else 0
    for row in range(rows):
        yield of(column.dtype, tuple(shape), column.data[row * size : (row + 1) * size])


def answered_item(prediction: Prediction) -> Value | None:
    """Return the item that was answered: of several that were ranked the one that stands first."""
    ranked = prediction.ranked
    if ranked is None or not ranked.items:
        return prediction.answer
    return ranked.items[ranked.place] if 0 <= ranked.place < len(ranked.items) else None


def is_ranked(prediction: Prediction) -> bool:
    """Tell whether candidates were ranked, and no model was asked; one that has answered has a version."""
    return bool(prediction.first) and not any(output.version for output in prediction.outputs)
