"""The role gateway without HTTP: doors that askers ask, each a process with its own client, and faults of their own.

asker ─▶ Door: Asking ─▶ Client ─▶ queries … predictions ─▶ Client ─▶ Asking ─▶ asker

Drawn by a generator of its own, so that other seeds stay as they were.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from load.research.seeds.faults import Fault
from streams.client import Client
from streams.client_transport import LinkedTransport
from streams.gateway.asking import Asking
from streams.testing.connections import SimulatedTail, SimulatedTransport
from streams.testing.virtual import owned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from schemas.records import Prediction
    from streams.gateway.protocol.values import HttpQuestion
    from streams.testing.connections import Process

GATEWAY: Final = "gateway"
TIMEOUT_S: Final = 10.0  # as its setting
_MOST_ROWS: Final = 40  # so few that they are met
_SHARE = 0.25  # of the seeds
_WRONG: Mapping[str, tuple[float, float]] = {"kill": (0.2, 30.0), "halt": (0.5, 30.0), "restart": (0.1, 5.0)}


@dataclass(frozen=True, slots=True)
class AskerPlan:
    """What a seed has of the gateway.

    Attributes:
        processes: of the role.
        rate: requests for each query that clients ask.
        faults: of these processes.
    """

    processes: int
    rate: float
    faults: tuple[Fault, ...] = ()


def drawn_askers(seed: int, length_s: float) -> AskerPlan | None:
    """Draw what one seed in four has of the gateway; nothing is wrong with its processes in one of four of these."""
    random = Random(f"gateway {seed}")  # noqa: S311
    if random.random() >= _SHARE:
        return None
    processes, rate = random.choice((1, 2)), random.choice((0.1, 0.3, 1.0))
    is_drawn, every_s, found = random.random() < 0.75, random.uniform(60.0, 300.0), []
    at_s = random.uniform(3.0, every_s)
    while at_s < 0.9 * length_s:
        kind, target = random.choice(sorted(_WRONG)), f"{GATEWAY}.{random.randrange(processes)}"
        found.append(Fault(at_s, kind, random.uniform(*_WRONG[kind]), target))
        at_s += random.expovariate(1 / every_s)
    return AskerPlan(processes, rate, tuple(found) if is_drawn else ())


class Served(NamedTuple):
    """What a door has said to a request: a prediction a row, and by which tokens they were to be known."""

    answers: tuple[Prediction, ...]
    tokens: tuple[str, ...]


class Door:
    """A process of the role gateway, as far as it is the same without HTTP.

    Args:
        process: where it runs.
        codec: of all records.
        doors: that can be asked, by member; it is there while it serves.
    """

    def __init__(self, process: Process, codec: Codec, doors: dict[str, Door]) -> None:
        self.name = process.name.partition("#")[0]
        self._process = process
        self._codec = codec
        self._doors = doors
        self._clients: list[Client] = []
        self._tokens: list[str] = []  # of the request that begins
        self._requests: set[asyncio.Task[Served]] = set()
        self.asking = Asking(self._client, process.clock.now_us, _MOST_ROWS, TIMEOUT_S, self._token)

    @property
    def waiting(self) -> int:
        """How many queries and requests are held, by this process and all the clients that it has had."""
        return self.asking.rows + sum(client.waiting for client in self._clients) + len(self._requests)

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until it is told to stop, then answer what is under way."""
        connecting, stopping = asyncio.create_task(self.asking.keep_connected()), asyncio.create_task(stop.wait())
        self._doors[self.name] = self
        try:
            await asyncio.wait([connecting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if connecting.done():
                connecting.result()
            self._doors.pop(self.name)
            if self._requests:
                await asyncio.wait(self._requests)
        finally:
            self._doors.pop(self.name, None)
            for task in (connecting, stopping, *self._requests):
                task.cancel()

    def serve(self, question: HttpQuestion, name: str) -> asyncio.Task[Served]:
        """Begin a request; it is cancelled when the process ends."""
        task = asyncio.get_running_loop().create_task(self._serve(question, name), context=owned(self._process))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        return task

    async def _serve(self, question: HttpQuestion, name: str) -> Served:
        tokens = self._tokens = []
        answers = await self.asking.ask(question, name)
        return Served(tuple(answers), tuple(tokens))

    def _token(self) -> str:
        self._tokens.append(f"{self._process.random.getrandbits(64):016x}")
        return self._tokens[-1]

    def _client(self) -> Client:
        """Return a client that is not connected yet."""
        process = self._process
        transport = LinkedTransport(partial(SimulatedTransport, process), partial(SimulatedTail, process))
        self._clients.append(Client("memory", codec=self._codec, transport=transport, clock=process.clock))
        return self._clients[-1]
