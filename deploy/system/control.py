"""Role `control`: an app of Faust that reads reports, and the page beside it.

Faust ends an app for some answers of a broker that may pass. One that reads no more, though Kafka is there, does not
notice by itself. Then another one begins in this process.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from deploy.connect.stores import store_server
from deploy.errors import StartError, UsageError
from deploy.process.ports import fault_of
from deploy.system.roles import joiner_settings
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaRecent
from streams.runtime.kafka.refusals import refusal
from streams.runtime.stopping import AFTER_ROLES_S, Stopping
from streams.runtime.vetting import preparing

if TYPE_CHECKING:
    from deploy.system.roles import Shared
    from streams.control.app import ControlOptions
    from streams.control.carry.planning import Planning
    from streams.control.carry.promoting import Follow, Promoting
    from streams.control.carry.sensing import Sensing

_log = logging.getLogger(__name__)

# Between an app that gave up, or could not begin anew, and the next one.
ANEW_AFTER_S = 5.0
# For how long all hosts of a pool stand still when their plan changes: a rebalance of two members on one machine
# (measured, `tests/integration/test_planned.py`).
REBALANCE_US = 110_000


async def control(common: Shared, stop: asyncio.Event) -> bool:
    """Run the page until `stop`, or until an app cannot be ended; return whether the last has ended.

    After an app that has ended by itself, or that reads no more, another one begins.
    """
    given = common.settings.control
    if fault := fault_of(given.host, given.port):
        raise StartError(f"the live page cannot be shown: {fault}; stop that process, or set control.port")
    is_first = True
    while is_first or not stop.is_set():
        stuck = asyncio.Event()
        try:
            end = await _control(common, stop, stuck, is_first=is_first)
        except Exception:
            if is_first:
                raise
            _log.exception("control has not begun anew; that is tried again")
            await _rest(stop)
            continue
        if stop.is_set():
            return end.is_over
        why = "it reads no reports, though Kafka takes them" if end.fault is None else _said(end.fault)
        if not end.is_over:
            _log.error("control cannot go on, and does not end: start this process again; %s", why)
            return False
        _log.warning("control begins anew: %s", why)
        is_first = False
        if end.fault is not None:
            await _rest(stop)
    return True


class _End(NamedTuple):
    """How an app came to its end: whether it did by its deadline, and what it gave up for."""

    is_over: bool
    fault: BaseException | None


async def _rest(stop: asyncio.Event) -> None:
    """Wait for a moment, or until `stop`."""
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait([waiting], timeout=ANEW_AFTER_S)
    waiting.cancel()


def _said(fault: BaseException) -> str:
    """Return what an app gave up for, and what a person has to change if it will not pass."""
    return str((isinstance(fault, Exception) and refusal(fault)) or repr(fault))


async def _control(common: Shared, stop: asyncio.Event, stuck: asyncio.Event, *, is_first: bool) -> _End:
    """Run one app until `stop`, until it is stuck, or until it gives up."""
    from deploy.system.page import page_server
    from streams.control.app import create

    with tempfile.TemporaryDirectory(prefix="skysail-control-") as folder:
        place = _page(common, Path(folder))
        app, state = create(place, common.codec, stuck)
        if not is_first:
            state.sight.sent(common.clock.now_us())  # it is blind until it reads: an empty page would say otherwise
        server = page_server(common.settings, state, Path(folder), common.clock.now_us)
        serving = asyncio.create_task(server.run(stop), name="control.page")  # while Kafka is away, too
        stopping, stopped = Stopping(stop), asyncio.create_task(stop.wait(), name="control.stop")
        starting = asyncio.create_task(app.start(), name="control.start")  # it waits for the group's coordinator
        try:
            await asyncio.wait([starting, stopped], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                _log.info("control is ready: %s/", server.address)
                await app.wait_first(stop.wait(), stuck.wait())
        finally:
            stopped.cancel()
            starting.cancel()
            # It waits for a broker that is away; nothing of the page is lost.
            leaving = asyncio.create_task(app.stop())
            await asyncio.wait([leaving], timeout=stopping.left_s(AFTER_ROLES_S))
            readers = place.promoting, place.planning, place.sensing
            await asyncio.gather(*(one.stop() for one in readers if one is not None))
            serving.cancel()
            await asyncio.wait([serving])
            server.close()
        if leaving.done():
            leaving.result()
        return _End(leaving.done(), app.crash_reason)


def _page(common: Shared, data: Path) -> ControlOptions:
    """Return what the Faust app is given, with its data in this folder."""
    from streams.control.app import ControlOptions
    from streams.control.faust_kafka import credentials

    given = common.settings
    try:
        login = credentials(common.kafka.options())
    except ValueError as error:
        raise UsageError(str(error)) from error
    return ControlOptions(
        bootstrap=given.kafka.bootstrap,
        prefix=given.prefix,
        instance=common.name("control"),
        data=data,
        credentials=login,
        member=given.kafka.member,
        redis=store_server(given),
        hooks=common.hooks,
        promoting=_promoting(common),
        planning=_planning(common),
        sensing=_sensing(common),
        tells_process=common.tells_process("control"),
    )


def _promoting(common: Shared) -> Promoting:
    from deploy.state.deployed import DeployedState
    from streams.control.carry.promoting import Promoting

    given = common.settings
    memory_us, ids_bytes = joiner_settings(given).memory_us, given.control.ids_mib << 20
    deployed, prepare = DeployedState(given, common.codec), preparing(common.codec)
    return Promoting(_follow(common), common.codec, memory_us, ids_bytes, deployed, prepare)


def _sensing(common: Shared) -> Sensing | None:
    """Return what watches over drift; None = nobody does."""
    from streams.control.carry.packaged import PackagedRows
    from streams.control.carry.sensing import Sensing

    if not common.settings.control.drift:
        return None
    return Sensing(KafkaRecent(common.kafka), common.codec, PackagedRows(_follow(common), common.codec))


def _planning(common: Shared) -> Planning | None:
    """Return what plans the hosts of pools; None = there are no pools."""
    from policies.packing.epochs import PlanPace
    from policies.packing.moving import MoveTerms
    from streams.control.carry.planning import Planning
    from streams.planning.planner import Planner, Pool

    given = common.settings
    if not given.hosts:
        return None
    pools = [Pool(name, host.memory_mib << 20, host.replicas) for name, host in sorted(given.hosts.items())]
    pace = PlanPace(terms=MoveTerms(pause_us=REBALANCE_US))
    return Planning(_follow(common), common.codec, lambda: Planner(pools, given.pool_of, pace))


def _follow(common: Shared) -> Follow:
    return lambda names, since_us: KafkaBroadcast(common.kafka, names, since_us)
