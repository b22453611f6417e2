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

    memory        which copies are in memory, are being loaded, or are taken out
    turns         whose batch is next, and what runs
    outcomes      what comes of loading copies and of losing them
    ahead         which models are loaded before anybody asks them
    host_figures  what reports say
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import TYPE_CHECKING

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Model
from streams.operators.contract import (
    NONE_UNREAD,
    GroupNeeds,
    Load,
    Loaded,
    LogMessage,
    Needs,
    Operator,
    Phase,
    Predict,
    Ran,
    Unload,
)
from workers.kernel.alarms import Alarms
from workers.kernel.host.ahead import Ahead
from workers.kernel.host.failures import Outcomes
from workers.kernel.host.figures import AskedLately, figures_of
from workers.kernel.host.memory import Memory
from workers.kernel.host.models import Hosted
from workers.kernel.host.plan import PlanFollower
from workers.kernel.host.profiles import ProfileLog
from workers.kernel.host.scheduler import HostScheduler
from workers.kernel.model.offers import SharedHost, Trunks
from workers.kernel.model.worker import ModelWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.codec import Codec
    from schemas.records import Plan
    from streams.operators.contract import Effects, Record, Unread
    from workers.kernel.schedule.contract import Schedule
    from workers.kernel.schedule.residency import Eviction, Residency
    from workers.settings import WorkerSettings


class Host(Operator):
    """The kernel of one host.

    Attributes:
        instance: unique in the deployment.
    """

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
        self.instance = instance
        self._settings = settings
        self._belongs = belongs
        self._models: dict[str, Hosted] = {}
        self._records: dict[str, dict[bytes, Record]] = {}  # of topic `models`, by model; a version may come before it
        self._topics: frozenset[str] = frozenset()
        # No two models have copies of one number, so no load counts for another model.
        self._shared = SharedHost(count(), Trunks(settings))
        self._timers = Alarms()  # of workers
        self._held = 0
        self._now_us = 0
        self._paused: frozenset[str] = frozenset()
        self.counters: Counter[str] = Counter()
        self._profiles = schedule.profiles
        self._profile_log = ProfileLog(codec, schedule.profiles)
        memory = self._memory = Memory(residency, schedule.profiles, self.counters)
        self._turns = HostScheduler(schedule, memory, lanes, self._touch, self.counters)
        self._outcomes = Outcomes(memory, self._measured, self._of_worker)
        self._follower = PlanFollower(codec, pool, instance)
        self._ahead = Ahead(self._follower, self._profile_log)
        self._asked = AskedLately()

    def on_phase(self, phase: Phase, now_us: int) -> Effects:
        """Load what fits before anybody asks, as all models are known; at the stop write profiles that have changed."""
        if phase is Phase.STOPPING:
            return self._profile_log.write_all(now_us)
        self._ahead.is_on = True
        self._ahead.begin_anew()
        return self._advance(now_us)

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
            before = hosted.offers.asked
            effects += self._of_worker(hosted, hosted.worker.on_records(its, now_us), now_us)
            self._asked.add(name, hosted.offers.asked - before, now_us)
            if not before:
                self._begin_to_need(hosted, now_us)
        return effects + self._advance(now_us)

    def on_timer(self, now_us: int, unread: Unread = NONE_UNREAD) -> Effects:
        """Do what is due."""
        effects: Effects = []
        for name in self._timers.take(now_us):
            hosted = self._models.get(name)
            if hosted is None or hosted.worker is None or hosted.due_us is None or hosted.due_us > now_us:
                continue  # it is due at another time by now
            hosted.due_us = None
            effects += self._of_worker(hosted, hosted.worker.on_timer(now_us), now_us)
        self._memory.on_timer(now_us)
        if (due_us := self._profile_log.due_us) is not None and due_us <= now_us:
            effects += self._profile_log.write(now_us)
        if (due_us := self._follower.due_us) is not None and due_us <= now_us:
            self._follower.advance(now_us)
            self._follow()
            self._ahead.begin_anew()
        return effects + self._advance(now_us)

    @property
    def plan(self) -> Plan | None:
        """The plan of its pool that it follows; None = there is none."""
        return self._follower.plan

    def needs(self) -> Needs:
        """Tell when something is due, how many rows wait, and which topics belong to the models."""
        parts = (self._timers, self._turns, self._memory, self._profile_log, self._follower)
        due_us = min((part.due_us for part in parts if part.due_us is not None), default=None)
        is_ready = self._ahead.is_over and not self._memory.moving
        group = GroupNeeds(self._topics, self._follower.homes, is_getting_ready=not is_ready)
        return Needs(due_us, self._held, self._paused, group=group)

    @property
    def last_eviction(self) -> Eviction | None:
        """What was unloaded last to make room for another one."""
        return self._memory.last_eviction

    def on_predicted(self, batch_id: int, ran: Ran, now_us: int) -> Effects:
        """Give a batch's results to the worker that asked for it; a model that was lost over it is taken out."""
        memory = self._memory
        run, joint = self._turns.ended(batch_id, ran.took_us, now_us, is_lost=ran.is_lost)
        hosted, predict, fault = run.hosted, run.predict, ran.results.fault
        if not self._is_gone(hosted):
            if run.batch.name:
                self._measured(run.unit, hosted, now_us)
            memory.residency.use(run.unit, now_us, is_busy=False)
        elif run.unit not in memory.units:
            self._profiles.forget(run.unit)
        if ran.is_lost and run.epoch == memory.epoch:
            memory.lose(self._turns.busy, now_us)
        assert hosted.worker is not None, "it has asked"
        effects = self._of_worker(hosted, hosted.worker.ended(predict.batch_id, ran, now_us, joint), now_us)
        if ran.is_lost:
            effects += self._outcomes.lost_over(hosted, predict.copy, fault, now_us)
        return effects + self._advance(now_us)

    def on_loaded(self, loaded: Loaded, now_us: int) -> Effects:
        """Take the outcome of loading a copy; without a fault, one that is lost was lost through another model."""
        memory = self._memory
        epoch = memory.ended(loaded.model, loaded.copy)
        if loaded.is_lost and epoch in (None, memory.epoch):
            memory.lose(self._turns.busy, now_us)
            self._ahead.begin_anew()
        hosted = self._models.get(loaded.model)
        known = hosted.copies.get(loaded.copy) if hosted is not None else None
        if hosted is None or known is None or not (epoch is not None or loaded.is_lost):
            return self._advance(now_us)
        if loaded.is_lost:
            return self._outcomes.on_lost(hosted, known, loaded.fault, now_us) + self._advance(now_us)
        effects = self._outcomes.on_loaded(hosted, known, loaded, now_us)
        if not (hosted.is_asked or loaded.model in self._follower.expected):
            memory.residency.release(known.unit)
        return effects + self._advance(now_us)

    def on_partitions(self, starts: Mapping[int, int | None]) -> None:
        """Drop what is queued: a rebalance takes all partitions, and gives them anew."""
        for hosted in self._models.values():
            if hosted.worker is not None:
                hosted.worker.on_partitions(starts)
                self._touch(hosted)

    def statistics(self) -> Mapping[str, float]:
        """Return the figures of the host, and of models that were asked."""
        own = {name: float(number) for name, number in self.counters.items()}
        figures = figures_of(self._models, self._memory, self._profiles, self._now_us)
        return {**own, **figures, **self._asked.figures()}

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
                return [LogMessage(f"a record about model {name} cannot be read: {fault}", is_fault=True)]
        records = self._records.setdefault(name, {})
        records.pop(key, None)  # in the order in which they were written last
        records[key] = record
        if not is_version:
            if name not in self._models:
                self._models[name] = Hosted(model, records)
                self._topics |= {topics.model_queries(name)}
                self._ahead.begin_anew()
            self._models[name].model = model
        hosted = self._models.get(name)
        if hosted is None or hosted.worker is None:
            return []
        effects = self._of_worker(hosted, hosted.worker.on_records([record], now_us), now_us)
        return effects + self._outcomes.reconsider(hosted, now_us)

    def _on_profile(self, record: Record) -> Effects:
        """Take what topic `profiles` says of a model; what is in memory of that version may be waiting for it."""
        effects = self._profile_log.on_record(record)
        unit = (record.key or b"").decode(errors="replace")
        if unit in self._memory.units:
            self._profile_log.restore(unit, self._memory.units[unit][1].load.model.version)
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
            self._follow()
        self._ahead.begin_anew()
        return effects

    def _follow(self) -> None:
        """Let what is not read here any more make room before all others."""
        own, memory = self._follower.own, self._memory
        for unit in reversed([*memory]) if self._follower.plan is not None else ():  # the least recently used first
            if memory.units[unit][0].model.name not in own:
                memory.residency.release(unit)

    def _load(self, hosted: Hosted, now_us: int) -> Effects:
        """Have the version that serves loaded, although it may not have been asked yet."""
        effects = self._made(hosted, now_us)
        self._memory.want(hosted.model.name, now_us)
        return effects

    def _load_ahead(self, now_us: int) -> Effects:
        """Have the next model loaded that nobody asks yet, if nothing else is to be loaded, and there is room."""
        effects: Effects = []
        while self._memory.residency.is_at_rest and not self._ahead.is_over:
            name = self._ahead.next(self._models, self._fits)
            if name is not None:
                effects += self._load(self._models[name], now_us)
        return effects

    def _fits(self, name: str) -> bool:
        """Tell whether a model that is not there would fit; one that is expected here may take the place of others."""
        hosted, memory = self._models[name], self._memory
        if name in memory or any(map(memory.is_loading, hosted.copies.values())):
            return False
        spare_bytes = self._spare_bytes() if name in self._follower.expected else 0
        return memory.has_room(hosted, hosted.model, spare_bytes)

    def _spare_bytes(self) -> int:
        """Return what models take that are here, and are asked elsewhere or nowhere."""
        own, planned, memory = self._follower.own, self._follower.per_s, self._memory
        found = 0
        for unit in memory:
            hosted, _ = memory.units[unit]
            name = hosted.model.name
            if name not in own and (not hosted.is_asked or name in planned):
                found += memory.residency.bytes_of(unit)
        return found

    def _forget(self, name: str, now_us: int) -> Effects:
        """Drop a model that was removed, with what waits for it: its topic is read no more."""
        self._records.pop(name, None)
        hosted = self._models.pop(name, None)
        if hosted is None:
            return []
        self._topics -= {topics.model_queries(name)}
        self._paused -= {topics.model_queries(name)}
        self._held -= hosted.held
        self._turns.forget(hosted)
        self._ahead.begin_anew()
        return [effect for number in [*hosted.copies] for effect in self._memory.release(hosted, number)]

    def _made(self, hosted: Hosted, now_us: int) -> Effects:
        """Make the worker of a model that is asked for the first time."""
        if hosted.worker is not None:
            return []
        worker = ModelWorker(self._codec, hosted.model, self.instance, self._settings, shared=self._shared)
        hosted.worker = worker
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
                kept += self._memory.release(hosted, effect.copy)
                self._ahead.begin_anew()
            elif isinstance(effect, Predict):
                self._turns.add_trial(hosted, effect)
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
        needs, hosted.offers = worker.needs(), worker.offers()
        self._held += needs.held - hosted.held
        hosted.held = needs.held
        if needs.deadline_us != hosted.due_us:
            hosted.due_us = needs.deadline_us
            if hosted.due_us is not None:
                self._timers.set(hosted.due_us, hosted.model.name)
        self._pause(hosted)
        for number, offer in hosted.offers.by_copy.items():
            copy = hosted.copies.get(number)
            if copy is None or offer.fault is not None:
                continue
            # The schedule and the residency know what runs by its name.
            if offer.is_idle and copy.unit != offer.unit and offer.unit not in self._memory.units:
                self._memory.rename(hosted, copy, offer.unit)
            self._memory.changed[copy.unit] = None

    def _pause(self, hosted: Hosted) -> None:
        """Read a model's topic only while it holds no more than it leaves free of the room for all."""
        topic = topics.model_queries(hosted.model.name)
        is_full = hosted.held > max(0, self._settings.queue_rows - self._held)
        if is_full != (topic in self._paused):
            self._paused ^= {topic}

    def _on_wanted(self, hosted: Hosted, load: Load, now_us: int) -> None:
        """Note that a worker wants a copy of a version."""
        memory, serving = self._memory, hosted.worker.offers().serving if hosted.worker is not None else None
        copy = memory.add(hosted, load)
        if copy.unit == load.model.name:
            self._profile_log.restore(copy.unit, load.model.version)
        # What nobody needs yet, and what could not be loaded the last time, is not worth another model's place.
        is_spare = not hosted.is_asked and (load.is_beside or (serving is not None and serving.fault is not None))
        if not is_spare or memory.has_room(hosted, load.model):
            memory.want(copy.unit, now_us)

    def _begin_to_need(self, hosted: Hosted, now_us: int) -> None:
        """Have all copies loaded that a model's worker wants: it is asked for the first time."""
        for copy in hosted.copies.values():
            self._memory.want(copy.unit, now_us)

    def _advance(self, now_us: int) -> Effects:
        """Do everything that can be done now: batches start, copies are loaded and unloaded."""
        self._now_us = now_us
        effects = self._turns.advance(now_us)
        effects += self._load_ahead(now_us)
        effects += self._memory.moves(now_us)
        return effects + self._outcomes.give_up_too_large(now_us)
