"""Which models a query asks by name, and what one call of the kernel asks of each model.

    MODEL@VERSION ─▶ that model, if the application asks one model alone
    VERSION       ─▶ the model that was drawn, if it runs that version; else one that does, by the query's own draw
    neither       ─▶ the models that were drawn; the version that the application names for one of them, if it does

    query, query, query ──add──▶ rows by (models' topics, reply partition, form) ──flush──▶ ModelQueries, encoded once

Each arm of a decision is drawn for a version: that is noted, so that canaries teach the arm nothing.

A query that names a version is the client's choice, not the policy's. Its answer teaches nothing: it would be compared
with models that were never tried on such queries.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from policies import draw
from policies.draw import uniform
from schemas import topics
from schemas.errors import SchemaError
from schemas.records import DENSE, ModelQueries, dense
from streams.operators.contract import Emit
from streams.operators.selection.pending import size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Application, Decision, Element, Input, Model, NamedTensors, Tensor
    from streams.operators.contract import Effects
    from streams.operators.selection.pending import Pending

# Labels of the version that serves, and of those beside it that answer a share of the queries.
STABLE, CANARY = "stable", "canary"

# Decisions that are kept, so that many queries go on sharing one.
_DECISIONS = 1_024
_NONE: Mapping[str, str] = MappingProxyType({})
# A quarter of what a record may hold: larger ones delay their first row for the sake of the last.
RECORD_BYTES = 131_072
ROW_BYTES = 64  # of a row beside its input: id and due time
ITS_TURN = -1  # the place of rows that go to the partition whose turn it is
# Rows of one form can be stacked: dtype and shape of tensors; None = text and byte strings.
_Form: TypeAlias = "tuple[Element, tuple[int, ...]] | None"


class Row(NamedTuple):
    """What a model is asked about: a query, when its output is due (us), and its input."""

    query: Pending
    due_us: int
    input: Input


class _RowGroup(NamedTuple):
    """What rows have in common that go into one record, for each of the topics."""

    asked: tuple[str, ...]  # topics
    reply_partition: int
    form: _Form
    version: str
    place: int
    step: int


def named(
    version: str, query_id: str, drawn: tuple[str, ...], arms: tuple[str, ...], models: Mapping[str, Model]
) -> tuple[str, ...]:
    """Return the models to ask.

    Args:
        version: that the query names: a version, label, or MODEL@VERSION.
        query_id: draws among several.
        drawn: what the policy would ask.
        arms: the application's models.
        models: that are deployed, by name.

    Returns:
        `drawn` itself if that will do; nothing if no model of the application can answer.
    """
    model, is_of_one, _ = version.partition(topics.MODEL_VERSION)
    if is_of_one and model not in arms:
        return ()
    if len(drawn) != 1:  # an ensemble: models that do not run it are left out
        return drawn
    if is_of_one:
        return drawn if drawn == (model,) else (model,)
    if _runs(models.get(drawn[0]), version):
        return drawn
    others = [name for name in arms if _runs(models.get(name), version)]
    return (others[int(uniform(query_id, "named") * len(others))],) if others else drawn


def _runs(model: Model | None, version: str) -> bool:
    """Tell whether a version of a model can be asked, by its number or label; shadows never answer."""
    if model is None:
        return False
    if version == CANARY:
        return any(share > 0 for share in model.shares.values())
    if version in {STABLE, model.version} or version in model.labels:
        return True
    if version in model.shares:
        return model.shares[version] > 0
    return version in model.standby or version in model.labels.values()


def _version(named: str | None, model: str, versions: Mapping[str, str]) -> str:
    """Return what a model's row names: what the query does, if that is about this model, else the application."""
    name, is_of_one, _ = (named or "").partition(topics.MODEL_VERSION)
    if named and (not is_of_one or name == model):
        return named
    return versions.get(model, named or "")


def version_asked(query: Pending, model: Model | None, row_id: str) -> str:
    """Return the version that a row of a query asks of a model, as its workers route it; "" = it asks none that runs.

    Args:
        query: may name a version, and so may its application.
        model: as it is deployed; None = it is not.
        row_id: under which the model was asked: it draws.
    """
    if model is None:
        return ""
    versions = _NONE if query.application is None else query.application.versions
    version = _version(query.version, model.name, versions).rpartition(topics.MODEL_VERSION)[2]
    if not version:
        return (
            draw.version(row_id, model.shares) if not is_drawn_for(query) else query.beside(model.shares)
        ) or model.version
    if version == CANARY:
        total = sum(model.shares.values())
        return draw.version(row_id, {name: share / total for name, share in model.shares.items()}) if total else ""
    return model.version if version == STABLE else model.labels.get(version, version)


def drawn_versions(query: Pending, asked: Sequence[str], models: Mapping[str, Model]) -> dict[str, str]:
    """Return what a query's row names of models that have canaries, by model: what its context or episode has drawn.

    A canary is named as one that need not be loaded: then the version that serves answers for it.
    """
    found = {}
    for index, shares in canary_shares(asked, models, query.application).items():
        drawn = query.beside(shares)
        found[asked[index]] = drawn + topics.OR_SERVING if drawn else STABLE
    return found


def is_drawn_for(query: Pending) -> bool:
    """Tell whether a query's versions are not drawn by the id under which models are asked."""
    return bool(query.drawn) or query.is_held_out


def canary_shares(
    arms: Sequence[str], models: Mapping[str, Model], application: Application | None
) -> dict[int, Mapping[str, float]]:
    """Return the shares of the canaries of arms, by index; an arm whose version the application names has none.

    Args:
        arms: models by name.
        models: that are deployed, by name.
        application: that asks them.
    """
    named = () if application is None else application.versions
    found = {}
    for index, name in enumerate(arms):
        model = models.get(name)
        if model is not None and model.shares and name not in named and any(model.shares.values()):
            found[index] = model.shares
    return found


def with_versions(query: Pending, shares: Mapping[int, Mapping[str, float]]) -> Decision | None:
    """Return a query's decision with the probability that the version that serves was drawn, by arm.

    It is 0 where a canary was. A query that names a version is as it was: its prediction has no decision.

    Workers draw by the same id and shares, or are told. Where a canary is not loaded, the version that serves answers
    for it; that teaches nothing either, so that what does teach is drawn independently of who is loaded.

    Args:
        query: that was decided.
        shares: of the canaries, by index of the arm.
    """
    decision = query.decision
    if decision is None or query.version is not None:
        return decision
    stable = [1.0] * len(decision.arms)
    for index, each in shares.items():
        stable[index] = 0.0 if draw.version(query.draw_id, each) else max(0.0, 1.0 - sum(each.values()))
    return _noted(decision, tuple(stable))


@lru_cache(maxsize=_DECISIONS)
def _noted(decision: Decision, stable: tuple[float, ...]) -> Decision:
    return decision._replace(stable=stable)


class Dispatcher:
    """Gathers rows until they are flushed, in order of arrival.

    Attributes:
        spare_us: how much later than due an output may still be of use, by the latest query.
    """

    __slots__ = ("_codec", "_groups", "_inside", "_is_ranked", "_models", "_refuse", "spare_us")

    def __init__(
        self,
        codec: Codec,
        models: Mapping[str, Model],
        refuse: Callable[[Pending], Effects],
        inside: frozenset[str] = frozenset(),
    ) -> None:
        """Start with nothing to ask.

        Args:
            codec: of the records.
            models: that are deployed, by name, as they change.
            refuse: answers a query whose input fits the query's record, but not the larger one to the model.
            inside: topics whose models run in this process.
        """
        self._codec = codec
        self._models = models
        self._refuse = refuse
        self._inside = inside
        self._groups: dict[_RowGroup, list[Row]] = {}
        self._is_ranked = False  # some row gathered has a priority
        self.spare_us = 0

    def add(
        self,
        asked: tuple[str, ...],
        rows: Sequence[Row],
        versions: Mapping[str, str] = _NONE,
        step: int = 0,
        place: int = ITS_TURN,
    ) -> None:
        """Ask the models behind these topics.

        Args:
            asked: the topics.
            rows: for each of them.
            versions: that the application names, by model.
            step: of the rows' plans.
            place: the partition that the rows go to; by default the one whose turn it is.
        """
        if not versions:
            self._add(asked, rows, step, place)
            return
        for topic in asked:  # each may name another version, which is said once a record
            self._add((topic,), rows, step, place, topics.asked_model(topic), versions)

    def _add(
        self,
        asked: tuple[str, ...],
        rows: Sequence[Row],
        step: int,
        place: int,
        model: str = "",
        versions: Mapping[str, str] = _NONE,
    ) -> None:
        for row in rows:
            query, given = row.query, row.input
            self._is_ranked |= query.priority != 0
            form = (given.dtype, given.shape) if isinstance(given, DENSE) else None
            group = _RowGroup(asked, query.partition, form, _version(query.version, model, versions), place, step)
            self._groups.setdefault(group, []).append(row)

    def clear(self) -> None:
        """Forget what a call that failed had gathered."""
        self._groups.clear()

    def flush(self, turn: int, effects: Effects) -> None:
        """Append the records of everything gathered, all of a model's to the partition whose turn it is."""
        groups, self._groups = self._groups, {}  # first, so that what cannot be asked is not tried again and again
        for group, rows in groups.items():
            most = max(1, RECORD_BYTES // (ROW_BYTES + size(rows[0].input)))
            for start in range(0, len(rows), most):
                self._emit(group, rows[start : start + most], turn, effects)
        self._is_ranked = False

    def _emit(self, group: _RowGroup, rows: Sequence[Row], turn: int, effects: Effects) -> None:
        """Append one record for each topic; if one is too large, halve its rows, down to a row that never fits."""
        try:
            value = self._codec.encode(self._batch(group, rows))
        except SchemaError:
            middle = len(rows) // 2
            if not middle:
                effects += self._refuse(rows[0].query)
                return
            for half in (rows[:middle], rows[middle:]):
                self._emit(group, half, turn, effects)
        else:
            its = turn if group.place == ITS_TURN else group.place
            effects += [Emit(topic, self.place(topic, its), None, value) for topic in group.asked]

    def _batch(self, group: _RowGroup, rows: Sequence[Row]) -> ModelQueries:
        return ModelQueries(
            query_ids=tuple([row.query.row_id for row in rows]),
            reply_partition=group.reply_partition,
            due_us=tuple([row.due_us for row in rows]),
            inputs=_stacked(group.form, [row.input for row in rows]),
            priorities=tuple([row.query.priority for row in rows]) if self._is_ranked else (),
            version=group.version,
            # A model inside this process needs no time for the way back.
            spare_us=0 if self._inside.issuperset(group.asked) else self.spare_us,
            step=group.step,
        )

    def place(self, topic: str, turn: int) -> int:
        """Return the partition of a model's topic whose turn it is: as many take turns as the model's record says."""
        model = self._models.get(topics.asked_model(topic))
        return turn % (topics.MODEL_PARTITIONS if model is None else model.partitions)


def _stacked(form: _Form, inputs: Sequence[Input]) -> Tensor | NamedTensors | tuple[str | bytes, ...]:
    """Put inputs of one form into one column."""
    if form is None:
        return tuple(inputs)  # type: ignore[arg-type] # only tensors have a form
    dtype, shape = form
    return dense(dtype, (len(inputs), *shape), b"".join([row.data for row in inputs]))  # type: ignore[union-attr]
