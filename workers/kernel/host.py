"""A host's kernel: many models, each with a worker's kernel of its own, in one process that has one budget of memory.

    models.<m>.queries ─▶ worker of m ─▶ its queue ─▶ schedule ─▶ Predict ─▶ on_predicted ─▶ model-predictions
                             │                          ▲ resident?
                             └─ Load, Unload ─▶ residency ─▶ Load, Unload ─▶ on_loaded

A worker says which copies of its model it wants, and it never notices when one leaves memory and comes back. What runs
next is the schedule's choice among all models, and so many batches run at a time as there are lanes. A batch may have
parts of several models that have one trunk. Rows that wait for a copy are answered in time, or expire.

All models run in one child process. When it ends, or is ended because a model hangs, every copy is lost. The model to
blame is taken out: its rows fail with the reason, and it is loaded again later, seldom. The others are loaded again,
and asked again about the rows that they had.
"""

from __future__ import annotations

from collections import Counter, deque
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Model
from streams.operators.contract import NONE_UNREAD, Load, Log, Needs, Operator, Predict, Unload
from streams.operators.statistics import as_label, render
from workers.kernel.asked import AskedLately
from workers.kernel.host_figures import predicted, times_of
from workers.kernel.hosted import Copy, Hosted
from workers.kernel.joint import Batch, Part, Trunks, joined
from workers.kernel.plan_follower import PlanFollower
from workers.kernel.profile_log import ProfileLog
from workers.kernel.schedule.contract import Queue
from workers.kernel.schedule.residency import UNKNOWN_BYTES
from workers.kernel.worker import ModelWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Plan
    from streams.operators.contract import Effects, Predicted, Record, Unread
    from workers.kernel.schedule.contract import Schedule, Start
    from workers.kernel.schedule.residency import Eviction, Residency
    from workers.settings import WorkerSettings

# Loading a model keeps others from being loaded for ten times as long as it usually takes, and at least so long (us):
# then they are loaded beside it. A library that is imported takes some seconds.
SLOW_US: Final = 5_000_000
SLOWER: Final = 10
# Models whose own figures a report has: with more it would grow too large.
MOST_TOLD: Final = 64


class _Running(NamedTuple):
    """A batch that is with the models' process."""

    hosted: Hosted
    predict: Predict  # as its worker asked for it
    unit: str
    epoch: int
    batch: Batch


class Host(Operator):
    """The kernel of one host."""

    def __init__(
        self,
        codec: Codec,
        instance: str,
        settings: WorkerSettings,
        belongs: Callable[[str], bool],
        schedule: Schedule,
        residency: Residency,
        lanes: int = 1,
        pool: str = "",
    ) -> None:
        """Know no model.

        Args:
            codec: of all records.
            instance: unique in the deployment.
            settings: how each model is batched; the bounds on what waits are for all models together.
            belongs: tells whether a model, by its name, runs here.
            schedule: chooses the next batch.
            residency: chooses which models are in memory.
            lanes: so many batches run at a time.
            pool: whose plan it follows.
        """
        self._codec = codec
        self._instance = instance
        self._settings = settings
        self._belongs = belongs
        self._schedule = schedule
        self._residency = residency
        self._lanes = lanes
        self._models: dict[str, Hosted] = {}
        self._records: dict[str, dict[bytes, Record]] = {}  # of topic `models`, by model; a version may come before it
        self._topics: frozenset[str] = frozenset()
        self._units: dict[str, tuple[Hosted, Copy]] = {}
        self._changed: dict[str, None] = {}  # units that the schedule must hear of
        self._emptied: list[str] = []  # names under which nothing waits any more
        self._number = count().__next__  # each worker counts its own batches
        self._copies = count()  # no two models have copies of one number, so no load counts for another model
        self._running: dict[int, _Running] = {}
        self._at_work = 0  # batches that run; of one that several models share, each has a part
        self._trunks = Trunks(settings)
        self._trials: deque[tuple[Hosted, Predict]] = deque()  # wait for their turn: they come before all others
        self._loading: dict[tuple[str, int], int] = {}  # the epoch of each copy that is being loaded
        self._epoch = 0  # number of the models' process
        self._timers: list[tuple[int, str]] = []  # of workers
        self._dues: list[tuple[int, str]] = []  # when the first rows of units expire
        self._slow: list[tuple[int, str]] = []  # when loading a unit has taken too long for others to wait for it
        self._later: list[tuple[int, str]] = []  # units that were taken out
        self._held = 0
        self._now_us = 0
        self._paused: frozenset[str] = frozenset()
        self._profile_log = ProfileLog(codec, schedule.profiles)
        self._follower = PlanFollower(codec, pool, instance)
        self._asked = AskedLately()
        self.counters: Counter[str] = Counter()
        self.last_eviction: Eviction | None = None

    def on_records(self, records: Sequence[Record], now_us: int) -> Effects:
        """Let each model's worker take its records, and all hear of versions."""
        effects: Effects = []
        by_model: dict[str, list[Record]] = {}
        for record in records:
            if record.topic == topics.MODELS:
                effects += self._on_model(record, now_us)
            elif record.topic == topics.PROFILES:
                effects += self._on_profile(record)
            elif record.topic == topics.PLAN:
                effects += self._on_plan(record, now_us)
            elif record.topic in self._topics:
                by_model.setdefault(topics.asked_model(record.topic), []).append(record)
        for name, its in by_model.items():
            hosted = self._models[name]
            effects += self._made(hosted, now_us)
            assert hosted.worker is not None, "it has just been made"
            before = hosted.worker.asked
            effects += self._of_worker(hosted, hosted.worker.on_records(its, now_us), now_us)
            self._asked.add(name, hosted.worker.asked - before, now_us)
        return effects + self._advance(now_us)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Do what is due."""
        effects: Effects = []
        for name in _due(self._timers, now_us):
            hosted = self._models.get(name)
            if hosted is None or hosted.worker is None or hosted.due_us is None or hosted.due_us > now_us:
                continue  # it is due at another time by now
            hosted.due_us = None
            effects += self._of_worker(hosted, hosted.worker.on_timer(now_us), now_us)
        for unit in _due(self._dues, now_us):
            effects += self._expire(unit, now_us)
        for unit in _due(self._later, now_us):
            self._want(unit, now_us)
        for unit in _due(self._slow, now_us):
            self._put_aside(unit, now_us)
        if (due_us := self._profile_log.due_us) is not None and due_us <= now_us:
            effects += self._profile_log.write(now_us)
        if (due_us := self._follower.due_us) is not None and due_us <= now_us:
            self._follower.advance(now_us)
            effects += self._follow(now_us)
        return effects + self._advance(now_us)

    def on_stop(self, now_us: int) -> Effects:
        """Write the profiles that have changed."""
        return self._profile_log.write_all(now_us)

    @property
    def plan(self) -> Plan | None:
        """The plan of its pool that it follows; None = there is none."""
        return self._follower.plan

    def needs(self) -> Needs:
        """Tell when something is due, how many rows wait, and which topics belong to the models."""
        dues = [heap[0][0] for heap in (self._timers, self._dues, self._later, self._slow) if heap]
        others = (self._schedule.due_us(), self._residency.due_us, self._profile_log.due_us, self._follower.due_us)
        dues += [due_us for due_us in others if due_us is not None]
        due_us, homes = min(dues, default=None), self._follower.homes
        return Needs(due_us, self._held, self._paused, topics=self._topics, spread=homes)

    def on_predicted(
        self,
        batch_id: int,
        results: Predicted,
        took_us: int,
        now_us: int,
        *,
        is_blocking: bool = False,
        is_lost: bool = False,
    ) -> Effects:
        """Give a batch's results to the worker that asked for it; a model that was lost over it is taken out."""
        run = self._running.pop(batch_id)
        hosted, predict, unit, epoch, batch = run
        batch.left -= 1
        if not batch.left:
            self._at_work -= 1
            if batch.name:
                self._schedule.done(batch.name, 0 if is_lost else batch.rows, took_us, now_us)
        if not self._is_gone(hosted):
            if batch.name:
                self._measured(unit, hosted, now_us)
            self._residency.use(unit, now_us, is_busy=False)
        elif unit not in self._units:
            self._schedule.profiles.forget(unit)
        if is_lost and epoch == self._epoch:
            self._lose(now_us)
        assert hosted.worker is not None, "it has asked"
        told: Effects = []
        if not is_lost or results.fault is not None or not hosted.worker.again(predict.batch_id):
            told = hosted.worker.on_predicted(
                predict.batch_id, results, took_us, now_us, is_blocking=is_blocking, is_lost=is_lost
            )
        effects = self._of_worker(hosted, told, now_us)
        if is_lost:
            effects += self._lost_over(hosted, predict.copy, results.fault, now_us)
        return effects + self._advance(now_us)

    def on_loaded(
        self,
        model: str,
        version: str,
        fault: str | None,
        took_us: int,
        now_us: int,
        *,
        copy: int = 0,
        size_bytes: int = 0,
        is_lost: bool = False,
    ) -> Effects:
        """Take the outcome of loading a copy; without a fault, one that is lost was lost through another model."""
        is_awaited = (model, copy) in self._loading
        epoch = self._loading.pop((model, copy), self._epoch)
        if is_lost and epoch == self._epoch:
            self._lose(now_us)
        hosted = self._models.get(model)
        known = hosted.copies.get(copy) if hosted is not None else None
        if hosted is None or known is None or not (is_awaited or is_lost):
            return self._advance(now_us)
        if fault is None and not is_lost:
            return self._loaded(hosted, known, took_us, size_bytes, now_us) + self._advance(now_us)
        self._drop(known.unit)
        if fault is None:
            self._want(known.unit, now_us)
            return self._advance(now_us)
        if is_lost:
            return self._lost_over(hosted, copy, fault, now_us) + self._advance(now_us)
        if known.is_told:  # it was in memory before; its worker does not try again by itself
            return self._taken_out(hosted, known, fault, now_us) + self._advance(now_us)
        return self._refused(hosted, copy, fault, now_us) + self._advance(now_us)

    def on_assigned(self, starts: Mapping[int, int]) -> None:
        """Start with nothing queued."""
        self.on_revoked(tuple(starts))

    def on_revoked(self, partitions: Sequence[int]) -> None:
        """Drop what is queued: a rebalance takes all partitions, and gives them anew."""
        for hosted in self._models.values():
            if hosted.worker is not None:
                hosted.worker.on_revoked(partitions)
                self._touch(hosted)

    def statistics(self) -> Mapping[str, float]:
        """Return the figures of the host, and of the models that were asked; of many, those that are in memory."""
        asked = [hosted for hosted in self._models.values() if hosted.worker is not None]
        if len(asked) > MOST_TOLD:
            asked = [self._units[unit][0] for unit in self._residency if "@" not in unit]
        figures = {name: float(number) for name, number in self.counters.items()}
        told = asked[-MOST_TOLD:]
        for hosted in told:
            figures |= hosted.worker.statistics() if hosted.worker is not None else {}
        figures |= times_of(self._schedule.profiles, [hosted.model.name for hosted in told])
        for unit in self._residency:
            model = self._units[unit][1].load.model
            figures[render(("resident", "model", model.name, "version", model.version))] = 1.0
        figures |= self._taken_out_now()
        if (last := self.last_eviction) is not None:
            labels = ("model", last.unit, "needed_by", last.needed_by or "memory")
            figures[render(("host_last_eviction_idle_s", *labels))] = last.idle_us / 1e6
        figures |= {**self._asked.figures(), **predicted(self._schedule.profiles)}
        return figures | {
            "host_known_models": float(len(self._models)),
            "host_resident_models": float(len(self._residency)),
            "host_resident_bytes": float(self._residency.used_bytes),
            "host_budget_bytes": float(self._residency.budget_bytes),
        }

    def _taken_out_now(self) -> dict[str, float]:
        """Return which versions are taken out, each with the reason, and how often in a row they were."""
        return {
            render(("taken_out", "model", name, "version", version, "reason", as_label(out.fault))): float(out.times)
            for name, hosted in self._models.items()
            for (version, _), out in hosted.out.items()
            if out.until_us > self._now_us
        }

    def _on_model(self, record: Record, now_us: int) -> Effects:
        """Take what topic `models` says about a model that runs here."""
        key = record.key or b""
        name, is_version, _ = key.decode(errors="replace").partition(topics.MODEL_VERSION)
        if not self._belongs(name):
            return []
        if record.value is None:
            return [] if is_version else self._forget(name, now_us)
        if not is_version:
            try:
                model = self._codec.decode(Model, record.value)
            except DecodeError as fault:
                return [Log(f"a record about model {name} cannot be read: {fault}", is_fault=True)]
        records = self._records.setdefault(name, {})
        records.pop(key, None)  # in the order in which they were written last
        records[key] = record
        if not is_version:
            if name not in self._models:
                self._models[name] = Hosted(model, records)
                self._topics |= {topics.model_queries(name)}
            self._models[name].model = model
        hosted = self._models.get(name)
        if hosted is None or hosted.worker is None:
            return []
        effects = self._of_worker(hosted, hosted.worker.on_records([record], now_us), now_us)
        return effects + self._reconsider(hosted, now_us)

    def _reconsider(self, hosted: Hosted, now_us: int) -> Effects:
        """Let a worker wait no longer for versions that are taken out: it may want another one by now."""
        effects: Effects = []
        for number, copy in [*hosted.copies.items()]:
            if not copy.is_told and hosted.out_until(copy.load.model) > now_us:
                effects += self._refused(hosted, number, hosted.why_out(copy.load.model), now_us)
        return effects

    def _on_profile(self, record: Record) -> Effects:
        """Take what topic `profiles` says of a model; what is in memory of that version may be waiting for it."""
        effects = self._profile_log.on_record(record)
        unit = (record.key or b"").decode(errors="replace")
        if unit in self._units:
            self._profile_log.restore(unit, self._units[unit][1].load.model.version)
        return effects

    def _measured(self, unit: str, hosted: Hosted, now_us: int) -> None:
        """Note that a unit was run or loaded; profiles that are kept are of versions that serve."""
        if unit == hosted.model.name:
            self._profile_log.measured(unit, now_us)

    def _on_plan(self, record: Record, now_us: int) -> Effects:
        """Take the next plan: a model that comes is loaded beforehand, if there is room."""
        before = self._follower.homes
        effects = self._follower.on_record(record, now_us)
        if self._follower.homes is not before:
            return effects + self._follow(now_us)
        free_bytes = self._residency.budget_bytes - self._residency.used_bytes
        for name, per_s in self._follower.coming.items():
            hosted = self._models.get(name)
            size_bytes = hosted.size_of(hosted.model) or UNKNOWN_BYTES if hosted is not None else 0
            if per_s and hosted is not None and size_bytes <= free_bytes:
                free_bytes -= size_bytes
                effects += self._load(hosted, now_us)
        return effects

    def _follow(self, now_us: int) -> Effects:
        """Load what is asked here from now on; what is not read here any more makes room before all others."""
        own = self._follower.own
        for unit in [*self._residency] if self._follower.plan is not None else ():
            if self._units[unit][0].model.name not in own:
                self._residency.release(unit)
        effects: Effects = []
        for name, per_s in own.items():
            if per_s and (hosted := self._models.get(name)) is not None:
                effects += self._load(hosted, now_us)
        return effects

    def _load(self, hosted: Hosted, now_us: int) -> Effects:
        """Have the version that serves loaded, although it may not have been asked yet."""
        effects = self._made(hosted, now_us)
        self._want(hosted.model.name, now_us)
        return effects

    def _forget(self, name: str, now_us: int) -> Effects:
        """Drop a model that was removed, with what waits for it: its topic is read no more."""
        self._records.pop(name, None)
        hosted = self._models.pop(name, None)
        if hosted is None:
            return []
        self._topics -= {topics.model_queries(name)}
        self._paused -= {topics.model_queries(name)}
        self._held -= hosted.held
        effects: Effects = []
        for copy in hosted.copies.values():
            is_loading = self._loading.pop((name, copy.load.copy), None) is not None
            if is_loading or copy.unit in self._residency:
                effects.append(Unload(name, copy.load.model.version, copy.load.copy))
            self._retire(copy.unit)
        hosted.copies.clear()
        self._trials = deque(trial for trial in self._trials if trial[0] is not hosted)
        return effects

    def _made(self, hosted: Hosted, now_us: int) -> Effects:
        """Make the worker of a model that is asked for the first time."""
        if hosted.worker is not None:
            return []
        worker = hosted.worker = ModelWorker(
            self._codec, hosted.model, self._instance, self._settings, is_hosted=True, copies=self._copies
        )
        return self._of_worker(hosted, worker.on_records([*hosted.records.values()], now_us), now_us)

    def _of_worker(self, hosted: Hosted, effects: Effects, now_us: int) -> Effects:
        """Return what of a worker's effects is to be performed; what it wants of models is seen to."""
        if self._is_gone(hosted):  # a batch of it was at work when it was removed: it still answers, and wants no more
            return [effect for effect in effects if not isinstance(effect, Load | Unload | Predict)]
        kept: Effects = []
        for effect in effects:
            if isinstance(effect, Load):
                self._on_wanted(hosted, effect, now_us)
            elif isinstance(effect, Unload):
                kept += self._release(hosted, effect, now_us)
            elif isinstance(effect, Predict):
                self._trials.append((hosted, effect))
            else:
                kept.append(effect)
        self._touch(hosted)
        return kept

    def _is_gone(self, hosted: Hosted) -> bool:
        """Tell whether a model was removed; another one may have its name by now."""
        return self._models.get(hosted.model.name) is not hosted

    def _touch(self, hosted: Hosted) -> None:
        """Note what has changed for a model after a call of its worker."""
        worker = hosted.worker
        assert worker is not None, "it was called"
        needs = worker.needs()
        self._held += needs.held - hosted.held
        hosted.held = needs.held
        if needs.deadline_us != hosted.due_us:
            hosted.due_us = needs.deadline_us
            if hosted.due_us is not None:
                heappush(self._timers, (hosted.due_us, hosted.model.name))
        self._pause(hosted)
        for lane in worker.lanes:
            copy = hosted.copies.get(lane.copy)
            if copy is None or lane.fault is not None:
                continue
            is_idle = lane.running is None  # the schedule and the residency know what runs by its name
            if is_idle and copy.unit != (unit := hosted.unit_of(lane)) and unit not in self._units:
                self._rename(hosted, copy, unit)
            self._changed[copy.unit] = None

    def _pause(self, hosted: Hosted) -> None:
        """Read a model's topic only while it holds no more than it leaves free of the room for all."""
        topic = topics.model_queries(hosted.model.name)
        is_full = hosted.held > max(0, self._settings.queue_rows - self._held)
        if is_full != (topic in self._paused):
            self._paused ^= {topic}

    def _rename(self, hosted: Hosted, copy: Copy, unit: str) -> None:
        """Let a copy have another name, because it serves now, or no longer; nothing waits under the old one."""
        self._emptied.append(copy.unit)
        self._units[unit] = self._units.pop(copy.unit)
        self._residency.rename(copy.unit, unit)
        self._schedule.profiles.rename(copy.unit, unit)
        copy.unit, copy.due_us = unit, None
        if (hosted.model.name, copy.load.copy) in self._loading:
            heappush(self._slow, (self._slow_us(copy), unit))
        if until_us := hosted.out_until(copy.load.model):
            heappush(self._later, (until_us, unit))

    def _on_wanted(self, hosted: Hosted, load: Load, now_us: int) -> None:
        """Note that a worker wants a copy of a version."""
        name, version = load.model.name, load.model.version
        unit = name if not hosted.copies else f"{name}@{version}"
        if unit in self._units:
            unit = f"{name}@{version}#{load.copy}"
        copy = hosted.copies[load.copy] = Copy(load, unit)
        self._units[unit] = hosted, copy
        if unit == name:
            self._profile_log.restore(name, version)
        self._want(unit, now_us)

    def _want(self, unit: str, now_us: int) -> None:
        """Have a copy loaded, once its version is not taken out any more."""
        if unit not in self._units:
            return
        hosted, copy = self._units[unit]
        until_us = hosted.out_until(copy.load.model)
        if until_us > now_us:
            heappush(self._later, (until_us, unit))
        elif (hosted.model.name, copy.load.copy) not in self._loading:
            model = copy.load.model
            self._residency.want(unit, hosted.size_of(model), model.trunk, model.trunk_bytes)

    def _release(self, hosted: Hosted, unload: Unload, now_us: int) -> Effects:
        """Let go of a copy that its worker does not want any more."""
        copy = hosted.copies.pop(unload.copy, None)
        if copy is None:
            return []
        is_loading = self._loading.pop((unload.model, unload.copy), None) is not None
        is_there = is_loading or copy.unit in self._residency
        self._retire(copy.unit)
        return [unload] if is_there else []

    def _retire(self, unit: str) -> None:
        """Forget a unit: nobody wants it any more."""
        self._emptied.append(unit)
        self._drop(unit)
        self._units.pop(unit, None)
        self._schedule.profiles.forget(unit)

    def _drop(self, unit: str) -> None:
        self._residency.drop(unit)
        self._changed[unit] = None

    def _advance(self, now_us: int) -> Effects:
        """Do everything that can be done now: batches start, copies are loaded and unloaded."""
        self._now_us = now_us
        effects: Effects = []
        while True:
            self._tell_schedule(now_us)
            for model, rows, reason in self._schedule.refused(now_us):
                effects += self._refuse(model, rows, reason, now_us)
            self._tell_schedule(now_us)
            started = self._start(now_us)
            if started is None:
                break
            effects += started
        return effects + self._move(now_us)

    def _tell_schedule(self, now_us: int) -> None:
        emptied, self._emptied = self._emptied, []
        for unit in emptied:
            self._schedule.forget(unit, now_us)
        changed, self._changed = self._changed, {}
        for unit in changed:
            if unit in self._units:
                self._tell_of(unit, now_us)

    def _tell_of(self, unit: str, now_us: int) -> None:
        """Tell the schedule what waits for a unit, and wish that one for which rows wait is in memory."""
        hosted, copy = self._units[unit]
        lane = hosted.lane_of(copy.load.copy)
        if lane is None:
            return
        trunk = self._trunks.of(lane, copy.load.model)
        batcher, is_there = lane.batcher, unit in self._residency
        waits = lane.fault is None and len(batcher) > 0
        self._residency.ask(unit, is_asked=waits)
        load_us = 0 if is_there else self._left_to_load(hosted, copy, now_us)
        dues_us: Sequence[int] = batcher.dues_us if waits else ()
        since_us = batcher.since_us if waits else now_us
        size_bytes = hosted.size_of(copy.load.model)
        queue = Queue(unit, dues_us, since_us, is_there and lane.is_ready, load_us, size_bytes, batcher.cap, trunk)
        self._schedule.changed(queue, now_us)
        if waits and copy.due_us != (due_us := batcher.due_us(0) + batcher.spare_us):
            copy.due_us = due_us
            heappush(self._dues, (due_us, unit))
        if waits and not is_there:
            self._want(unit, now_us)

    def _left_to_load(self, hosted: Hosted, copy: Copy, now_us: int) -> int:
        """Return what is left of loading a copy (us), if it starts now or has started."""
        takes_us = self._schedule.profiles.load_us(copy.unit)
        if (hosted.model.name, copy.load.copy) not in self._loading:
            return takes_us
        return max(0, copy.loading_us + takes_us - now_us)

    def _start(self, now_us: int) -> Effects | None:
        """Start one batch; None = none can start now."""
        if self._at_work >= self._lanes:
            return None
        for index, (hosted, predict) in enumerate(self._trials):
            copy = hosted.copies.get(predict.copy)
            if copy is None or copy.unit in self._residency:
                del self._trials[index]
                return [] if copy is None else [self._alone(hosted, predict, copy.unit, now_us)]
            self._want(copy.unit, now_us)  # it has made room for another one meanwhile
        start = self._schedule.next(now_us)
        return None if start is None else self._begin(start, now_us)

    def _begin(self, start: Start, now_us: int) -> Effects:
        """Have every model of a batch begin its part."""
        effects: Effects = []
        parts: list[Part] = []
        try:
            self._divide(start, now_us, parts, effects)
        except Exception:  # the kernel starts over, and the schedule must not wait for this batch
            for part in parts:
                assert part.hosted.worker is not None, "it has begun a part"
                part.hosted.worker.again(part.predict.batch_id, is_there=True)
                self._touch(part.hosted)
            self._schedule.done(start.model, 0, 0, now_us)
            raise
        if not parts:
            self._schedule.done(start.model, 0, 0, now_us)
            return effects
        batch = joined(start.model, parts, now_us)
        self._at_work += 1
        if len(parts) > 1:
            self.counters["host_joint_batches_total"] += 1
            self.counters["host_joint_parts_total"] += len(parts)
        first, *others = [self._given(part.hosted, part.predict, part.unit, batch, now_us) for part in parts]
        return [*effects, first._replace(joined=tuple(others))]

    def _divide(self, start: Start, now_us: int, parts: list[Part], effects: Effects) -> None:
        """Have each model of a batch take its rows; adds the parts, and what else comes of it."""
        whole = start.rows if start.parts else 0
        for unit, rows in start.parts or ((start.model, start.rows),):
            hosted, copy = self._units[unit]
            lane = hosted.lane_of(copy.load.copy)
            assert hosted.worker is not None and lane is not None, "the schedule has heard of it"  # noqa: PT018 - one truth
            for effect in hosted.worker.start_now(lane, rows, now_us, start.latest_us, whole):
                if isinstance(effect, Predict):
                    parts.append(Part(hosted, unit, lane, effect))
                else:
                    effects.append(effect)
            self._touch(hosted)

    def _alone(self, hosted: Hosted, predict: Predict, unit: str, now_us: int) -> Predict:
        """Return a batch that no schedule has started."""
        self._at_work += 1
        return self._given(hosted, predict, unit, Batch("", len(predict.rows), 1), now_us)

    def _given(self, hosted: Hosted, predict: Predict, unit: str, batch: Batch, now_us: int) -> Predict:
        """Return a part under a number that no other worker here gives; it does not end the role if it hangs."""
        number = self._number()
        self._running[number] = _Running(hosted, predict, unit, self._epoch, batch)
        self._residency.use(unit, now_us, is_busy=True)
        return predict._replace(batch_id=number, is_vital=False)

    def _refuse(self, unit: str, rows: int, reason: str, now_us: int) -> Effects:
        """Drop rows that cannot be in time, with the reason."""
        hosted, copy = self._units[unit]
        lane = hosted.lane_of(copy.load.copy)
        if lane is None:
            return []
        self.counters["host_refused_total"] += rows
        effects = lane.refuse(rows, now_us, reason)
        self._touch(hosted)
        return effects

    def _expire(self, unit: str, now_us: int) -> Effects:
        """Give up the rows of a unit that are due by now."""
        hosted, copy = self._units.get(unit, (None, None))
        if hosted is None or copy is None or (lane := hosted.lane_of(copy.load.copy)) is None:
            return []
        copy.due_us = None
        effects = lane.expire(now_us - lane.batcher.spare_us)
        if effects:
            self._touch(hosted)
        return effects

    def _move(self, now_us: int) -> Effects:
        """Unload and load as the residency says."""
        effects: Effects = []
        for eviction in self._residency.excess(now_us):
            effects += self._evict(eviction)
        for load, evictions in self._residency.changes(now_us, self._load_by):
            for eviction in evictions:
                effects += self._evict(eviction)
            hosted, copy = self._units[load]
            self._loading[hosted.model.name, copy.load.copy] = self._epoch
            copy.loading_us = now_us
            heappush(self._slow, (self._slow_us(copy), load))
            self._changed[load] = None
            self.counters["host_loads_total"] += 1
            effects.append(copy.load._replace(is_vital=False))
        for unit in self._residency.too_large():
            hosted, copy = self._units[unit]
            assert hosted.worker is not None, "it has asked for the copy"
            fault = self._too_large(hosted.size_of(copy.load.model))
            hosted.worker.give_up(copy.load.model.version, fault)
            effects += self._refused(hosted, copy.load.copy, fault, now_us)
        return effects

    def _slow_us(self, copy: Copy) -> int:
        """Return from when on loading a copy is slow (us): by ten times what it usually takes, and not at once."""
        return copy.loading_us + max(SLOW_US, SLOWER * self._schedule.profiles.load_us(copy.unit))

    def _put_aside(self, unit: str, now_us: int) -> None:
        """Let others be loaded beside a unit whose loading is slow; it is looked at again if too many are."""
        _, copy = self._units.get(unit, (None, None))
        if copy is None or (copy.load.model.name, copy.load.copy) not in self._loading:
            return
        if (slow_us := self._slow_us(copy)) > now_us:  # it is another time that it is loaded
            heappush(self._slow, (slow_us, unit))
        elif self._residency.put_aside(unit):
            self.counters["host_slow_loads_total"] += 1
        else:
            heappush(self._slow, (now_us + SLOW_US, unit))

    def _load_by(self, unit: str) -> int:
        """Return when a unit would be in memory had it been loaded at once (us): that order starves none."""
        hosted, copy = self._units[unit]
        lane = hosted.lane_of(copy.load.copy)
        is_asked = lane is not None and len(lane.batcher) > 0 and lane.fault is None
        since_us = lane.batcher.since_us if lane is not None and is_asked else self._now_us
        return since_us + self._schedule.profiles.load_us(unit)

    def _too_large(self, size_bytes: int) -> str:
        needed, there = size_bytes / (1 << 20), self._residency.budget_bytes / (1 << 20)
        return f"it takes {needed:,.1f} MiB, and its host has {there:,.0f} for all models (hosts.<pool>.memory_mib)"

    def _evict(self, eviction: Eviction) -> Effects:
        self.last_eviction = eviction
        self.counters["host_evictions_total"] += 1
        self._changed[eviction.unit] = None
        _, copy = self._units[eviction.unit]
        return [Unload(copy.load.model.name, copy.load.model.version, copy.load.copy)]

    def _loaded(self, hosted: Hosted, copy: Copy, took_us: int, size_bytes: int, now_us: int) -> Effects:
        """Note that a copy is in memory; its worker hears of it for the first time, or if it has lost it."""
        worker, model = hosted.worker, copy.load.model
        if size_bytes > self._residency.budget_bytes:
            unload = Unload(model.name, model.version, copy.load.copy)
            self._drop(copy.unit)
            return [unload, *self._taken_out(hosted, copy, self._too_large(size_bytes), now_us)]
        size_bytes = hosted.measured(model, size_bytes)
        self._residency.loaded(copy.unit, size_bytes, now_us)
        self._schedule.profiles.switched(copy.unit, model.version)
        self._schedule.profiles.loaded(copy.unit, took_us, size_bytes)
        self._measured(copy.unit, hosted, now_us)
        self._changed[copy.unit] = None
        lane = hosted.lane_of(copy.load.copy)
        assert worker is not None, "it has asked for the copy"
        if copy.is_told and (lane is None or (lane.is_ready and lane.fault is None)):
            return []
        copy.is_told = True
        if lane is worker.serving:
            worker.recover()
        told = worker.on_loaded(model.name, model.version, None, took_us, now_us, copy=copy.load.copy)
        return self._of_worker(hosted, told, now_us)

    def _lose(self, now_us: int) -> None:
        """Note that the models' process is gone; what was in memory is loaded again, what was used last first."""
        self._epoch += 1
        self.counters["host_process_ends_total"] += 1
        busy = {run.unit for run in self._running.values()}
        for unit in reversed([*self._residency]):
            self._drop(unit)
            if unit not in busy:
                self._want(unit, now_us)

    def _lost_over(self, hosted: Hosted, number: int, fault: str | None, now_us: int) -> Effects:
        """See to a copy that was lost over a batch or over loading it; with a fault it is to blame, and taken out."""
        copy = hosted.copies.get(number)
        if copy is None:
            return []
        is_loading = (hosted.model.name, number) in self._loading
        if fault is None and is_loading:
            return []  # it is on its way already
        self._drop(copy.unit)
        if fault is None:
            copy.is_told &= hosted.lane_of(number) is not None  # a plan that tries it waits for it
            self._want(copy.unit, now_us)
            return []
        effects: Effects = []
        if is_loading:
            del self._loading[hosted.model.name, number]
            effects.append(Unload(hosted.model.name, copy.load.model.version, number))
        return effects + self._taken_out(hosted, copy, fault, now_us)

    def _taken_out(self, hosted: Hosted, copy: Copy, fault: str, now_us: int) -> Effects:
        """Take a version out for a while, which is longer each time."""
        model = copy.load.model
        wait_s = (hosted.take_out(model, fault, now_us) - now_us) / 1e6
        message = f"{model.name} {model.version} is taken out for {wait_s:g} s, the other models go on: {fault}"
        told = self._refused(hosted, copy.load.copy, hosted.why_out(model), now_us)
        return [Log(message, is_fault=True), *told]

    def _refused(self, hosted: Hosted, number: int, fault: str, now_us: int) -> Effects:
        """Tell a worker that it cannot have a copy."""
        worker, copy = hosted.worker, hosted.copies[number]
        assert worker is not None, "it has asked for the copy"
        if copy.is_told and hosted.lane_of(number) is worker.serving:
            self._want(copy.unit, now_us)
            return self._of_worker(hosted, worker.fail(fault, now_us), now_us)
        if hosted.lane_of(number) is None or not copy.is_told:
            hosted.copies.pop(number)
            self._retire(copy.unit)
        model = copy.load.model
        told = worker.on_loaded(model.name, model.version, fault, 0, now_us, copy=number)
        return self._of_worker(hosted, told, now_us)


def _due(heap: list[tuple[int, str]], now_us: int) -> list[str]:
    """Take what is due out of a heap."""
    found = []
    while heap and heap[0][0] <= now_us:
        found.append(heappop(heap)[1])
    return found
