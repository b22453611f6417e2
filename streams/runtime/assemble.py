"""Puts a role's loop together on real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.runtime.kafka.consumer import ConsumerSettings, KafkaConsumer
from streams.runtime.kafka.log_reader import KafkaBroadcast, KafkaPositions
from streams.runtime.role.definition import Ports
from streams.runtime.role.loop import RoleLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from schemas.records import Report
    from streams.operators.contract import Operator
    from streams.runtime.clock import Clock
    from streams.runtime.kafka.connection import KafkaConnection
    from streams.runtime.kafka.producer import KafkaTransport
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.ports import Executors
    from streams.runtime.role.definition import Role
    from streams.runtime.stores.base import StateStore


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
) -> RoleLoop:
    """Return a loop that consumes, follows and produces on Kafka; run it with `process.run_process`."""
    ports = Ports(
        consumer=KafkaConsumer(connection, role.topics, role.name, clock, settings),
        transport=transport,
        clock=clock,
        encode=encode,
        version=version,
        broadcast=KafkaBroadcast(connection, role.follows) if role.follows else None,
        store=store,
        positions=KafkaPositions(connection),
        executors=executors,
        hooks=hooks,
    )
    return RoleLoop(role, kernel, ports)
