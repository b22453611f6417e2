"""One deployment in virtual time, from its first process to its judgement."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import Counter
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random
from typing import TYPE_CHECKING

from load.research.seeds.clients import Clients
from load.research.seeds.heard import Askers, HeardLaws
from load.research.seeds.laws import Laws, Left
from load.research.seeds.ledger import Ledger
from load.research.seeds.mapped import ROLE
from load.research.seeds.mapped_laws import MappedLedger
from load.research.seeds.members import Member, Wall
from load.research.seeds.models import model
from load.research.seeds.nemesis import Nemesis
from load.research.seeds.others import Others
from load.research.seeds.plan import PARTITIONS, POOL, Deploy
from load.research.seeds.roles import Builder
from schemas import topics
from schemas.codec import Codec
from streams import topology
from streams.operators.join.kernel import Joiner
from streams.testing import virtual
from streams.testing.broker import FakeBroker
from streams.testing.connections import Process
from streams.testing.stores import SharedStore
from streams.testing.virtual import VirtualClock, later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from load.research.seeds.laws import Violation
    from load.research.seeds.plan import Configure, Plan
    from streams.operators.contract import Record
    from streams.runtime.ports import TopicPartition

# Calls are written down for ever: on their way for 0.1 s of each second, so at one of these moments they are not.
_LOOKS_S = (0.3, 0.3)
_AGAIN_S = 1.0  # after which a change that the broker has not taken is written again


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a seed.

    Attributes:
        seed: which.
        simulated_s: how long the deployment has run, in its own time.
        queries: that were asked.
        answers: that were written.
        by_columns: of these, those that came in finished batches.
        violations: of the laws.
        digest: of all that was written; the same on each run.
        faults: that were caused, by kind.
        cpu_s: that it took, where somebody has measured it.
    """

    seed: int
    simulated_s: float
    queries: int
    answers: int
    by_columns: int
    violations: tuple[Violation, ...]
    digest: str
    faults: Mapping[str, int] = field(default_factory=dict)
    cpu_s: float = 0.0


def simulate(
    plan: Plan,
    tell: Callable[[str], None] | None = None,
    store: SharedStore | None = None,
    joiner: type[Joiner] = Joiner,
) -> Outcome:
    """Run what a seed stands for, and judge it.

    Args:
        plan: of the seed.
        tell: is given a line for each thing that happens.
        store: of the policy states; None = as it should be.
        joiner: its kernel.
    """
    logging.disable(logging.CRITICAL)
    try:
        return virtual.run(World(plan, store or SharedStore(), tell, joiner).run())
    finally:
        logging.disable(logging.NOTSET)


@cache
def _codec() -> Codec:
    """Return the codec of all deployments: to make one takes a second of them."""
    return Codec()


class World:
    """A deployment, its clients, and its faults."""

    def __init__(
        self,
        plan: Plan,
        store: SharedStore,
        tell: Callable[[str], None] | None = None,
        joiner: type[Joiner] = Joiner,
    ) -> None:
        self.plan = plan
        self.store = store
        self._digest = hashlib.blake2b(digest_size=8)
        self._tell = tell
        self._codec = _codec()
        models = plan.models
        hosts = {POOL: models} if plan.host is not None else {}
        self._topology = topology.build(models, PARTITIONS, dict.fromkeys(models, PARTITIONS), hosts=hosts)
        self.broker = FakeBroker(
            partitions={name: topic.partitions for name, topic in self._topology.topics.items()}
            | (dict(plan.mapped.partitions) if plan.mapped is not None else {}),
            stamped=frozenset(n for n, t in self._topology.topics.items() if t.timestamps == "LogAppendTime"),
            forgotten=frozenset((topics.REPORTS,)),
        )
        self.broker.appended.append(self._note)
        self._ledger = Ledger(plan, self.broker, store, self._codec, plan.tolerance_us)
        self._mapped = None if plan.mapped is None else MappedLedger(plan, plan.mapped, self.broker, self._codec)
        self._builder = Builder(plan, self._topology, self._codec, store, joiner)
        self._askers = None if plan.askers is None else Askers(plan, plan.askers, self._builder.doors)
        self.members: dict[str, Member] = {}
        self.wall = Wall()

    async def run(self) -> Outcome:
        """Run the deployment to its end."""
        self._configure()
        self._start()
        self._change()
        self._plague()
        beside = [asyncio.create_task(each.run()) for each in self._beside()]
        await self._clients().run()
        for each in beside:
            await each
        now_s = asyncio.get_running_loop().time()
        await asyncio.sleep(max(0.0, self.plan.length_s - now_s) + self.plan.quiet_s)
        for wait_s in _LOOKS_S:
            await asyncio.sleep(wait_s)
            for member in self.members.values():
                member.look()
        violations = self._judge()
        for member in self.members.values():
            await member.end()
        return Outcome(
            self.plan.seed,
            asyncio.get_running_loop().time(),
            len(self._ledger.asked),
            sum(len(self.broker.logs[place]) for place in self.broker.places(topics.PREDICTIONS)),
            self.broker.batched[topics.PREDICTIONS],
            tuple(violations),
            self._digest.hexdigest(),
            Counter(fault.kind for fault in self.plan.faults),
        )

    def note(self, what: str) -> None:
        """Note something that happens."""
        line = f"{asyncio.get_running_loop().time():12.6f} {what}"
        self._digest.update(line.encode())
        if self._tell is not None:
            self._tell(line)

    def _note(self, record: Record) -> None:
        content = hashlib.blake2b(record.value or b"", digest_size=4).hexdigest()
        self.note(f"{record.topic}-{record.partition}@{record.offset} {content}")

    def _configure(self) -> None:
        """Publish applications and models."""
        now_us = VirtualClock().now_us()
        for application in self.plan.applications:
            key = application.name.encode()
            self.broker.append(topics.APPLICATIONS, 0, key, self._codec.encode(application), now_us)
        for name in self.plan.models:
            self.broker.append(topics.MODELS, 0, name.encode(), self._codec.encode(model(name)), now_us)
        for name in sorted({change.model for change in self.plan.changes if isinstance(change, Deploy)}):
            for version in ("1", "2"):  # they are known before they are wanted
                key = topics.model_version(name, version).encode()
                self.broker.append(topics.MODELS, 0, key, self._codec.encode(model(name, version)), now_us)

    def _start(self) -> None:
        for role, count in self.plan.replicas.items():
            for number in range(count):
                member = Member(
                    f"{role}.{number}", role, self.broker, self.plan.seed, self._builder, self.wall, self.note
                )
                self.members[member.name] = member
                member.start()
        for group in [self.broker.group(node.group) for node in self._topology.nodes]:
            group.watching.append(self._watch(group.name))

    def _watch(self, group: str) -> Callable[[str, Mapping[TopicPartition, int]], None]:
        """Return who is told of a group's commits."""
        return self._mapped.on_commit if self._mapped is not None and group == ROLE else self._ledger.on_commit

    def _change(self) -> None:
        """Write every change of what is deployed at its time."""
        for change in self.plan.changes:
            later(change.at_s, partial(self._deploy, change))

    def _deploy(self, change: Deploy | Configure) -> None:
        """Write a change; as long as the broker does not take it, whoever deploys tries again."""
        if not all(self.broker.weather.serves((topic, 0)) for topic in (topics.MODELS, topics.APPLICATIONS)):
            later(_AGAIN_S, partial(self._deploy, change))
            return
        if isinstance(change, Deploy):
            record = model(change.model, change.version, shares=change.shares, labels=change.labels)
            topic, name, value = topics.MODELS, change.model, self._codec.encode(record)
        else:
            topic, name = topics.APPLICATIONS, change.application.name
            value = self._codec.encode(change.application)
        self.broker.append(topic, 0, name.encode(), value, VirtualClock().now_us())

    def _plague(self) -> None:
        """Begin every fault at its time."""
        nemesis = Nemesis(self.broker, self.store, self.members, self.wall, self.note)
        for fault in self.plan.faults:
            later(fault.at_s, partial(nemesis.strike, fault))

    def _clients(self) -> Clients:
        random = Random(f"clients {self.plan.seed}")  # noqa: S311
        process = Process("clients", self.broker, random, VirtualClock())
        return Clients(self.plan, process, self._codec, random)

    def _beside(self) -> Iterator[Others | Askers]:
        """Yield those who write and ask beside the clients."""
        if self.plan.mapped is not None:
            random = Random(f"others {self.plan.seed}")  # noqa: S311
            yield Others(self.plan, self.plan.mapped, Process("others", self.broker, random, VirtualClock()))
        if self._askers is not None:
            yield self._askers

    def _judge(self) -> list[Violation]:
        laws = Laws(self.plan, self.broker, self._ledger, self._codec, self.plan.tolerance_us)
        ended = [what for member in self.members.values() for what in member.ended]
        gauges = {name: member.gauges for name, member in self.members.items()}
        inner = self.store.inner
        found = laws.violations(Left(ended, gauges, inner.offsets, inner.states, self._builder.overfull))
        if self._mapped is not None:
            found += self._mapped.violations(self._ledger.dead)
        if self._askers is not None:
            heard = HeardLaws(self.plan, self.broker, self._codec)
            found += heard.violations(self._askers, self._builder.doors)
        return found
