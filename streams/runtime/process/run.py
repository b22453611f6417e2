"""One process: any set of roles on real Kafka, one producer, one way to stop.

kafka_loop(role, kernel, …)       one role's loop
run_process(loops, transport)     runs them until a signal
"""

from __future__ import annotations

import asyncio
import logging
import signal
from functools import partial
from typing import TYPE_CHECKING, Protocol

from policies.foreign import handles_interrupts
from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.kafka.consumer import ConsumerSettings, KafkaConsumer
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaPositions
from streams.runtime.kafka.merging import StrainGauge
from streams.runtime.kafka.refusals import unattended
from streams.runtime.process.gc_schedule import swept
from streams.runtime.role.definition import Ports
from streams.runtime.role.loop import RoleLoop
from streams.runtime.stopping import AFTER_ROLES_S, Stopping

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from schemas.records import Report
    from streams.operators.contract import Operator, Record
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.producer import KafkaTransport
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import Executors
    from streams.runtime.role.definition import Role
    from streams.runtime.stores.base import FeatureStore, StateStore

_log = logging.getLogger(__name__)
BACKOFF_S = 0.5


def kafka_loop(
    role: Role,
    kernel: Operator,
    connection: KafkaConnection,
    transport: KafkaTransport,
    clock: Clock,
    encode: Callable[[Report], bytes],
    store: StateStore | None = None,
    settings: ConsumerSettings | None = None,
    hooks: tuple[MetricsHook, ...] = (),
    version: str = "",
    executors: Executors | None = None,
    features: FeatureStore | None = None,
    partitions: int | None = None,
    prepare: Callable[[Sequence[Record]], Awaitable[None]] | None = None,
    batched: frozenset[str] = frozenset(),
) -> RoleLoop:
    """Return a loop that consumes, follows and produces on Kafka; run it with `run_process`.

    Of its topics at most `partitions` each are read, the same of all; None = whatever there are. Plain record batches
    of the topics `batched` are given to the kernel whole, which has to take them.
    """
    ports = Ports(
        consumer=KafkaConsumer(
            connection, role.topics, role.name, clock, settings, partitions=partitions, batched=batched
        ),
        transport=transport,
        clock=clock,
        encode=encode,
        version=version,
        broadcast=KafkaBroadcast(connection, role.follows) if role.follows else None,
        store=store,
        positions=KafkaPositions(connection),
        written=partial(KafkaBroadcast, connection, {topic for topic, _ in role.wrote}) if role.wrote else None,
        executors=executors,
        features=features,
        hooks=hooks,
        prepare=prepare,
        strain=StrainGauge().strain,
    )
    return RoleLoop(role, kernel, ports)


class Runnable(Protocol):
    """A role: `role.loop.RoleLoop`, or something with one inside."""

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set."""
        ...


async def run_process(loops: Sequence[Runnable], transport: KafkaTransport, stop: asyncio.Event | None = None) -> None:
    """Run roles until SIGTERM, SIGINT or `stop`; returns when all have left their groups, or at the deadline.

    Raises:
        ExceptionGroup: of what ended a role; the others are ended with it, so that the supervisor starts all anew.
    """
    stop = stop or asyncio.Event()
    stopping = Stopping(stop)
    running = asyncio.get_running_loop()
    running.set_exception_handler(unattended)
    for number in (signal.SIGTERM, signal.SIGINT):
        running.add_signal_handler(number, stop.set)
    handles_interrupts()
    try:
        with swept(running):
            async with stopping.limit(AFTER_ROLES_S):
                await _run_all(loops, transport, stop)
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            running.remove_signal_handler(number)
        handles_interrupts(does=False)
        await stopping.within(transport.stop())


async def _run_all(loops: Sequence[Runnable], transport: KafkaTransport, stop: asyncio.Event) -> None:
    if not await _connected(transport, stop):
        return
    async with asyncio.TaskGroup() as tasks:
        for loop in loops:
            tasks.create_task(loop.run(stop))


async def _connected(transport: KafkaTransport, stop: asyncio.Event) -> bool:
    while not stop.is_set():
        try:
            await transport.start()
        except BrokerUnavailableError as fault:
            _log.warning("Kafka is not there yet: %s", fault)
            await asyncio.sleep(BACKOFF_S)
        else:
            return True
    return False
