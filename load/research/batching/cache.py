"""`cache`: the requests of a production cache as queries; each key that is not in the cache costs one model query.

The keys are the first 500,000 of Twitter's cache cluster 52 (Yang, Yue and Rashmi, OSDI 2020), in their order. All go
through the selection kernel with room for 1,000 and for 10,000 keys, and through the whole system with room for 1,000.
The short form uses a prefix of them. The queries that reach the model's topic give the hits. Every answer is compared
with the model's. The result also has the hits of CLOCK, the cost of either rule, and the cost of a cache if every input
is new.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from load.figures import CPU_US, DEFAULTS, FAULTS, NONE, SHOWN, SHOWN_US, Better, Figures, Kind, at_least, at_most
from load.harness import topics
from load.harness.data import DATA, need
from load.harness.driving import deployed
from load.harness.probes import written
from load.harness.system import Deployment
from load.harness.wire import linger_ms
from load.harness.workload import Rows, query_id
from load.models.functions import MODULUS, residue
from load.research.batching.replacement import clock, lru
from load.research.harness.virtual import Fleet, Scene
from load.results.results import Result
from load.scenario import Scenario
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Application, Model, ModelQueries, Query, Status, Tensor
from streams.operators.contract import NONE_UNREAD
from streams.operators.selection.cache import ENTRY_BYTES
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.testing import START_US
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from load.harness.system import Stage
    from schemas.records import PolicyState, Prediction
    from streams.operators.contract import Effects, Record, StateKey, Unread

NAME = "cache"
KEYS = DATA / "traces/twitter_cluster52_first500k.npz"
ROOMS = (1_000, 10_000)  # keys that there is room for
_MODEL = "residue"
_APPLICATION = Application("keys", (_MODEL,), "single", slo_ms=2_000.0)
_PREFIX = 20_000  # keys that the whole system gets in the short form
_SYSTEM_ROOM = 1_000
_RATE, _SHORT_RATE = 2_000.0, 800.0
_POLL = 500
_WIDTHS = (32, 384)  # numbers of 8 bytes in a row that was never seen: 256 bytes and 3 KiB
_NEW = 10_000  # such rows in each round: one that fills the cache, and three


_HITS = Kind("", Better.HIGHER, 0.0, 0.005)
# Of a plain LRU on these keys, counted once.
_LRU_HITS: Mapping[int, float] = {1_000: 322_134 / 500_000, 10_000: 386_530 / 500_000}
FIGURES = Figures(
    *(
        _HITS(f"kernel_{room}_hit_ratio", must=(at_least(hits - 0.005), at_most(hits + 0.005)))
        for room, hits in _LRU_HITS.items()
    ),
    _HITS("kernel_*_lru_hit_ratio", "kernel_*_clock_hit_ratio", "system_hit_ratio", "system_lru_hit_ratio"),
    SHOWN_US("kernel_*_us_per_key", "new_*_us_per_query"),
    *(FAULTS(f"{part}_wrong", f"{part}_lost", must=NONE) for part in ("kernel_1000", "kernel_10000", "system")),
    Kind("", Better.LOWER, 0.0, 0.005)("system_off_lru", must=at_most(0.005)),
    DEFAULTS("system_defaults", must=NONE),
    SHOWN("system_defaults_*"),
    CPU_US("system_cpu_us_per_query"),
)


async def run(stage: Stage) -> Result:
    """Replay the keys.

    Raises:
        MissingDataError: they are not there.
    """
    need(KEYS)
    keys: list[int] = np.load(KEYS)["key"].tolist()
    figures: dict[str, float] = {}
    for room in ROOMS:
        replay = Replay(room)
        await asyncio.to_thread(replay.run, keys)
        figures |= {
            f"kernel_{room}_hit_ratio": 1 - replay.asked / len(keys),
            **await asyncio.to_thread(_rules, keys, room),
            f"kernel_{room}_wrong": replay.wrong,
            f"kernel_{room}_lost": replay.lost,
        }
    for width in _WIDTHS:
        figures |= await asyncio.to_thread(_new_inputs, width)
    asked, rate = (keys[:_PREFIX], _SHORT_RATE) if stage.short else (keys, _RATE)
    return Result(
        NAME,
        figures={**figures, **await _through_the_system(stage, asked, rate)},
        parameters={
            "form": stage.form,
            "keys": len(keys),
            "system_keys": len(asked),
            "system_room": _SYSTEM_ROOM,
            "rate": rate,
        },
    )


def room_bytes(room: int, width: int = 1) -> int:
    """Return the setting under which so many keys have room."""
    return room * (ENTRY_BYTES + len(_input(0, width).data))


def _rules(keys: Sequence[int], room: int) -> dict[str, float]:
    """Return each rule's hits, and what it takes a key."""
    found: dict[str, float] = {}
    for name, rule in (("lru", lru), ("clock", clock)):
        started = perf_counter()
        hits = rule(keys, room)
        found[f"kernel_{room}_{name}_us_per_key"] = (perf_counter() - started) / len(keys) * 1e6
        found[f"kernel_{room}_{name}_hit_ratio"] = hits / len(keys)
    return found


def _new_inputs(width: int) -> dict[str, float]:
    """Return what selection and combiner take a query where every input is new, without a cache and with a full one."""
    replays = {"off": Replay(0, width), "full": Replay(_NEW, width)}
    took: dict[str, list[float]] = {name: [] for name in replays}
    for start in range(0, 4 * _NEW, _NEW):
        for name, replay in replays.items():
            before_s = replay.busy_s
            replay.run(range(start, start + _NEW))
            took[name].append((replay.busy_s - before_s) / _NEW * 1e6)
    return {f"new_{8 * width}_bytes_{name}_us_per_query": median(each[1:]) for name, each in took.items()}


class _Timed(Selection):
    """A selection kernel that is timed."""

    busy_s = 0.0

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Take records."""
        return self._timed(super().on_records, records, now_us)

    def on_states(self, states: Mapping[StateKey, PolicyState | None], now_us: int) -> Effects:
        """Take states."""
        return self._timed(super().on_states, states, now_us)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Do what is due."""
        return self._timed(super().on_timer, now_us, unread)

    def _timed(self, call: Callable[..., Effects], *what: object) -> Effects:
        started = perf_counter()
        effects = call(*what)
        self.busy_s += perf_counter() - started
        return effects


class _Residues(Fleet):
    """A model that answers at once."""

    asked = 0

    def take(self, place: int, batch: ModelQueries, now_us: int) -> Effects:
        """Answer the rows of a record."""
        assert isinstance(batch.inputs, Tensor)
        self.asked += len(batch.query_ids)
        answers = residue(batch.inputs.numpy()[:, :1].astype(np.int64))
        return [self.answer(batch.query_ids, Tensor.of(answers))]


class Replay:
    """A selection kernel with room for so many keys, and a model that answers each poll's rows before the next.

    Attributes:
        wrong: answers that are not the model's.
        lost: queries without an answer.
    """

    def __init__(self, room: int, width: int = 1) -> None:
        self.wrong = self.lost = self._polls = 0
        self._width = width
        self._expected: dict[str, int] = {}
        codec = Codec()
        self._kernel = _Timed(codec, SelectionSettings(1, cache_bytes=room_bytes(room, width)))
        self._residues = _Residues(codec, _MODEL, names.MODEL_PARTITIONS)
        self._scene = Scene(codec, lambda: self._kernel, {_MODEL: self._residues}, self._answered, leg_us=0)
        self._scene.configure(_APPLICATION, [Model(_MODEL, "1", "function", "", "", "label", "int64", (width,))])

    @property
    def asked(self) -> int:
        """Rows that the model was asked."""
        return self._residues.asked

    @property
    def busy_s(self) -> float:
        """How long the kernel took."""
        return self._kernel.busy_s

    def run(self, keys: Sequence[int]) -> None:
        """Ask about every key, poll by poll."""
        for start in range(0, len(keys), _POLL):
            self._polls += 1
            now_us = START_US + 1_000 * self._polls
            asked = {query_id(self._polls, row): key for row, key in enumerate(keys[start : start + _POLL])}
            self._expected |= {name: key % MODULUS for name, key in asked.items()}
            inputs = {name: _input(key, self._width) for name, key in asked.items()}
            self._scene.ask(*[Query(name, _APPLICATION.name, row, None, now_us) for name, row in inputs.items()])
        self.lost = len(self._expected)

    def _answered(self, prediction: Prediction, _at_us: int) -> None:
        self.wrong += prediction.answer != self._expected.pop(prediction.query_id)


async def _through_the_system(stage: Stage, keys: Sequence[int], rate: float) -> dict[str, float]:
    package_function("load.models.functions:residue", stage.folder / _MODEL, _MODEL, "1", np.zeros((2, 1), np.int64))
    deployment = Deployment(
        topics.new_prefix(NAME),
        (_APPLICATION,),
        {_MODEL: stage.folder / _MODEL},
        roles=("selection", "worker"),
        settings={"selection": {"cache_bytes": room_bytes(_SYSTEM_ROOM)}},
    )
    expected = {query_id(stage.seed, row): key % MODULUS for row, key in enumerate(keys)}
    wrong, defaults = 0, Counter[str]()

    def check(predictions: Sequence[Prediction]) -> None:
        nonlocal wrong
        defaults.update(str(each.reason) for each in predictions if each.status is Status.DEFAULT)
        answers = (each for each in predictions if each.status is not Status.DEFAULT)
        wrong += sum(answer.answer != expected[answer.query_id] for answer in answers)

    workload = Rows(_APPLICATION.name, [_input(key) for key in keys], seed=stage.seed)
    offsets_us = [int(i * 1e6 / rate) for i in range(len(keys))]
    async with deployed(stage, deployment, _input(MODULUS * 2**40)) as driver:
        stretch = await driver.drive(
            offsets_us, workload, int(_APPLICATION.slo_ms * 1e3), check, linger_ms=linger_ms(rate)
        )
        asked = await asyncio.to_thread(_asked, stage, deployment.prefix)
    hit_ratio, reference = 1 - asked / len(keys), lru(keys, _SYSTEM_ROOM) / len(keys)
    return {
        "system_hit_ratio": hit_ratio,
        "system_lru_hit_ratio": reference,
        "system_off_lru": abs(hit_ratio - reference),
        "system_wrong": wrong,
        "system_lost": stretch.faults["lost"],
        "system_defaults": stretch.faults["defaults"],
        **{f"system_defaults_{reason}": count for reason, count in defaults.items()},
        "system_cpu_us_per_query": stretch.cpu_us_per_query,
    }


def _asked(stage: Stage, prefix: str) -> int:
    """Return how many rows the model was asked."""
    return sum(len(found.query_ids) for found in written(stage, prefix, names.model_queries(_MODEL), ModelQueries))


def _input(key: int, width: int = 1) -> Tensor:
    return Tensor.of(np.full(width, key, dtype=np.int64))


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "the keys of a production cache as queries: hits beside plain LRU and CLOCK, and what a cache costs",
    short=True,
)
