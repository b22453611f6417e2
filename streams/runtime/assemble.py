"""Puts a role's loop together on real Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.runtime.kafka_consumer import ConsumerSettings, KafkaConsumer
from streams.runtime.kafka_reader import KafkaBroadcast, KafkaPositions
from streams.runtime.loop import RoleLoop
from streams.runtime.roles import Ports

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from schemas.records import Report
    from streams.operators.contract import Operator
    from streams.runtime.clock import Clock
    from streams.runtime.kafka_client import KafkaConnection
    from streams.runtime.kafka_producer import KafkaTransport
    from streams.runtime.metrics import MetricsHook
    from streams.runtime.roles import Role
    from streams.runtime.store import StateStore


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
    companions: tuple[Callable[[RoleLoop], Coroutine[Any, Any, None]], ...] = (),
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
        hooks=hooks,
    )
    return RoleLoop(role, kernel, ports, companions=companions)
