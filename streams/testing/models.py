"""Models and features with scripted service times, in virtual time: what answers the driver's roles.

Predict ─▶ Service.predict ─▶ (results, how long) ─▶ later: on_predicted
                └─ None: it hangs ─▶ after its patience: a vital one ends its role, another one is lost
Load ────▶ Service.load ────▶ (fault, how long) ───▶ later: on_loaded
FetchFeatures ─▶ Lookup ────▶ (value, how long) ───▶ later: on_records; None: never
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from schemas import topics
from streams.operators.contract import LOOKED_UP, FetchFeatures, Load, Loaded, Predict, Predicted, Ran, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from streams.operators.contract import Effects, Operator


# How a store of features answers a key: with the record's value (None = nothing is stored), and after how long (us).
Lookup: TypeAlias = "Callable[[str], tuple[bytes | None, int] | None]"


def _at_once(_load: Load) -> tuple[str | None, int]:
    return None, 0


@dataclass(frozen=True, slots=True)
class ModelBehaviour:
    """How one model behaves.

    Attributes:
        predict: results of a batch, and how long they take (us); None = it hangs.
        load: why a version cannot be loaded, None if it can, and how long that takes (us).
        is_blocking: nothing of its role goes on while it predicts, as on an event loop's own thread.
    """

    predict: Callable[[Predict], tuple[Predicted, int] | None]
    load: Callable[[Load], tuple[str | None, int]] = _at_once
    is_blocking: bool = False


class ToldOutcome(NamedTuple):
    """What a role is told at a time.

    Attributes:
        role: which.
        start: which start of it had asked; another one is told nothing.
        tell: has its operator decide; None = the role ends, and is started again.
        is_over: whether what was predicted there kept the role from everything else.
    """

    role: str
    start: int
    tell: Callable[[Operator, int], Effects] | None
    is_over: bool = False


class Services:
    """All models of a driver and its store of features.

    Args:
        services: how models behave, by name.
        look_up: how the store answers.
        later: takes when a role is told something, and what.
    """

    def __init__(
        self, services: dict[str, ModelBehaviour], look_up: Lookup | None, later: Callable[[int, ToldOutcome], None]
    ) -> None:
        self._services = services
        self._look_up = look_up
        self._later = later

    def take(self, effect: Predict | Load | FetchFeatures, role: str, start: int, now_us: int) -> bool:
        """Do what a role asks for; returns whether it does nothing else meanwhile."""
        if isinstance(effect, Predict):
            return self._predict(effect, role, start, now_us)
        if isinstance(effect, Load):
            self._load(effect, role, start, now_us)
        else:
            self._features(effect, role, start, now_us)
        return False

    def _load(self, load: Load, role: str, start: int, now_us: int) -> None:
        """Load a copy of a version."""
        model = load.model
        fault, took_us = self._service(model.name).load(load)

        def tell(operator: Operator, now_us: int) -> Effects:
            return operator.on_loaded(Loaded.of(load, fault, took_us), now_us)

        self._later(now_us + took_us, ToldOutcome(role, start, tell))

    def _features(self, fetch: FetchFeatures, role: str, start: int, now_us: int) -> None:
        """Look up features; each key is answered by itself."""
        for key in fetch.keys:
            found = None if self._look_up is None else self._look_up(key)
            if found is not None:
                record = Record(topics.FEATURES, LOOKED_UP, LOOKED_UP, now_us, key.encode(), found[0])
                self._later(now_us + found[1], ToldOutcome(role, start, partial(_read, record)))

    def _predict(self, batch: Predict, role: str, start: int, now_us: int) -> bool:
        """Predict a batch; returns whether its role does nothing else meanwhile."""
        if batch.joined:
            self._together(batch, role, start, now_us)
            return False
        service = self._service(batch.model)
        found = service.predict(batch)
        if found is None:
            self._hang(batch, role, start, now_us + batch.patience_us)
            return service.is_blocking
        results, took_us = found

        def tell(operator: Operator, now_us: int) -> Effects:
            return operator.on_predicted(batch.batch_id, Ran(results, took_us, service.is_blocking), now_us)

        self._later(now_us + took_us, ToldOutcome(role, start, tell, service.is_blocking))
        return service.is_blocking

    def _together(self, batch: Predict, role: str, start: int, now_us: int) -> None:
        """Predict the parts of a batch, which takes as long as the longest; after one that hangs none is answered."""
        at_us, is_lost = now_us, False
        for part in (batch, *batch.joined):
            found = None if is_lost else self._service(part.model).predict(part)
            if found is not None:
                at_us = max(at_us, now_us + found[1])
                self._later(at_us, ToldOutcome(role, start, partial(_told, part, found[0], at_us - now_us)))
            elif is_lost:
                results = replace(Predicted.failed(len(part.rows), ""), fault=None)
                self._later(
                    at_us, ToldOutcome(role, start, partial(_told, part, results, at_us - now_us, is_lost=True))
                )
            else:
                is_lost, at_us = True, at_us + part.patience_us
                self._hang(part, role, start, at_us)

    def _hang(self, batch: Predict, role: str, start: int, at_us: int) -> None:
        fault = f"the model did not answer {len(batch.rows)} rows within {batch.patience_us / 1e6:.1f} s"
        results = Predicted.failed(len(batch.rows), fault)

        def tell(operator: Operator, now_us: int) -> Effects:
            told = operator.on_predicted(batch.batch_id, Ran(results, batch.patience_us, is_lost=True), now_us)
            return told + operator.on_loaded(Loaded(batch.model, batch.version, batch.copy, fault), now_us)

        self._later(at_us, ToldOutcome(role, start, None if batch.is_vital else tell))

    def _service(self, model: str) -> ModelBehaviour:
        if model not in self._services:
            raise LookupError(f"nothing says how model {model} behaves; name it in `models`")
        return self._services[model]


def _told(
    part: Predict, results: Predicted, took_us: int, operator: Operator, now_us: int, *, is_lost: bool = False
) -> Effects:
    """Tell an operator of a part of a batch."""
    return operator.on_predicted(part.batch_id, Ran(results, took_us, is_lost=is_lost), now_us)


def _read(record: Record, operator: Operator, now_us: int) -> Effects:
    """Bring an operator what was looked up."""
    return operator.on_records([record], now_us)
