"""What the demo runs on: a broker, Redis, five packaged models, the settings, and a new version of one model."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import psutil

from deploy.config.folder import load_notes
from deploy.config.settings import Settings
from deploy.connect.clients import librdkafka
from deploy.demo import contexts, models
from deploy.demo.models import FLAG, FOLDER_VARIABLE, Digits, digits
from deploy.demo.tally import DemoTrial
from deploy.errors import DeployError, MissingError
from deploy.local.embedded import EmbeddedBroker
from deploy.local.process import free_port
from deploy.local.redis import RedisServer, find_redis
from deploy.local.services import RunningBroker, open_broker
from deploy.state import desired
from deploy.state.topics import create
from load.harness.topics import delete
from workers.manifest import digest
from workers.packages.load_notes import LoadNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import ExitStack
    from pathlib import Path

    from rich.console import Console

    from deploy.local.services import Broker
    from deploy.state.desired import CreateTopics
    from schemas.codec import Codec
    from streams.topology import Topology

APPLICATION = "digits"
POLICY = "exp3"
SLO_MS = 100.0
# A hundred images: what the breakable model said before it broke, which no cache can know, is forgotten within seconds.
CACHE_BYTES = 65_536
CANARY_SHARE = 0.2
EMBEDDED_WAITS = {"fetch_wait_ms": 10, "linger_ms": 0}


class DemoSteps:
    """The way to the first prediction; seconds count from the start of this process.

    Args:
        console: where the lines go.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self.done_s: dict[str, float] = {}  # by name of the step

    def note(self, name: str) -> None:
        """Keep that something has been reached now."""
        self.done_s[name] = round(age_s(), 2)

    @contextmanager
    def step(self, name: str, doing: str) -> Iterator[Callable[[str], None]]:
        """Show what is being done; the function given to the block sets what is said once it is done."""
        start_s = age_s()
        done = doing

        def say(text: str) -> None:
            nonlocal done
            done = text

        if self._console.is_terminal:
            with self._console.status(doing):
                yield say
        else:
            yield say
        self.note(name)
        took = f"[dim]({age_s() - start_s:.1f} s)[/]"
        self._console.print(f"[green]✓[/] {done} {took}", highlight=False, soft_wrap=not self._console.is_terminal)


def age_s() -> float:
    """Return for how long this process has run, its imports included (s)."""
    age: float = time.time() - psutil.Process().create_time()
    return age


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What the demo is asked to do; `broker` is `apache`, `embedded` or HOST:PORT."""

    broker: str
    seconds: float
    rate: float
    seed: int
    reports: Path

    @property
    def broken_s(self) -> tuple[float, float]:
        """The middle third."""
        return self.seconds / 3, 2 * self.seconds / 3

    @property
    def contexts_s(self) -> float:
        """How long the second act takes, in which two contexts ask."""
        return self.seconds / 4

    @property
    def trial(self) -> DemoTrial:
        """A new version of one model, tried once the broken one is mended."""
        # Loading takes seconds where cores are busy, as a canary and again to serve.
        begin_s, end_s = self.broken_s[0], 0.86 * self.seconds  # a busy machine takes seconds to load and try it
        return DemoTrial(models.RETRAINED, models.VERSION, models.NEW_VERSION, CANARY_SHARE, begin_s, end_s)


class DemoStage(NamedTuple):
    """What stands, and how the roles and the client reach it; `scratch` is gone after the demo."""

    scratch: Path
    broker: Broker
    store: str  # of policy states: a Redis, or a file
    data: Digits
    packages: Mapping[str, Path]
    candidate: Path  # package of the new version of one of the models
    settings: Settings

    @property
    def flag(self) -> Path:
        """The file that breaks a model as long as it exists."""
        return self.scratch / FLAG

    def environment(self) -> dict[str, str]:
        """Variables for the roles: where the flag is, and where their temporary files go."""
        temporary = self.scratch / "tmp"
        temporary.mkdir(exist_ok=True)
        return {FOLDER_VARIABLE: str(self.scratch), "TMPDIR": str(temporary)}

    def client_properties(self) -> dict[str, str]:
        """Return librdkafka's properties for the client; it waits as the roles do."""
        own = {"fetch.wait.max.ms": str(self.settings.kafka.fetch_wait_ms)}
        given = librdkafka(self.settings).items()
        return own | {name: value for name, value in given if name != "bootstrap.servers"}

    def create_topics(self) -> CreateTopics:
        """Return how topics come to be: the embedded broker knows no request for it."""
        if not isinstance(self.broker, EmbeddedBroker):
            return create
        # It cannot tell how topics are configured, either, and nobody could do anything about that.
        logging.getLogger("deploy.state.topics").setLevel(logging.ERROR)

        def create_embedded(settings: Settings, topology: Topology) -> None:
            self.broker.create_topics({f"{settings.prefix}.{t.name}": t.partitions for t in topology.topics.values()})

        return create_embedded


def prepare(plan: DemoPlan, name: str, steps: DemoSteps, scratch: Path, stack: ExitStack) -> DemoStage:
    """Start the services and train the models; everything is stopped with the stack.

    Args:
        plan: which broker, which seed.
        name: of this run, for its topics.
        steps: told of each step.
        scratch: where everything is kept; removed by whoever made it.
        stack: undoes what was started.

    Raises:
        DeployError: the broker or Redis cannot be had; the message says what to do.
    """
    with steps.step("broker", f"starting the broker ({plan.broker}; the first time its jars are fetched)") as say:
        broker = open_broker(plan.broker, data=scratch / "kafka")
        stack.callback(broker.stop)
        say(f"{broker.description} on {broker.bootstrap}")
    with steps.step("redis", "starting the store of policy states") as say:
        store, kept = _store(scratch, stack)
        say(store)
    with steps.step("models", "training and packaging five models") as say:
        data = digits(plan.seed)
        packages = dict(models.train(data, scratch, plan.seed))
        candidate = models.retrain(data, scratch, plan.seed)
        say(f"five models: {', '.join(packages)}; {len(data.asked_rows)} rows that none has seen are kept for queries")
    settings = _settings(name, broker, kept, packages)
    if isinstance(broker, RunningBroker):
        stack.callback(delete, broker.bootstrap, settings.prefix)
    return DemoStage(scratch, broker, store, data, packages, candidate, settings)


def _store(scratch: Path, stack: ExitStack) -> tuple[str, dict[str, object]]:
    """Start a Redis where the machine has one, or pip for this Python; else states are kept in a file.

    Returns:
        what it is, and how the settings name it.
    """
    try:
        find_redis()
    except MissingError:
        file = scratch / "states.db"
        return "a file, as this machine has no redis-server", {"store": {"kind": "embedded", "file": file}}
    redis = stack.enter_context(RedisServer(scratch / "redis"))
    return f"{redis.description}, port {redis.port}", {"redis": {"url": redis.url}}


def _settings(name: str, broker: Broker, kept: Mapping[str, object], packages: Mapping[str, Path]) -> Settings:
    waiting = EMBEDDED_WAITS if isinstance(broker, EmbeddedBroker) else {}
    common = {"models": tuple(packages), "slo_ms": SLO_MS, "default_output": 0}
    return Settings.model_validate(
        {
            "prefix": f"demo-{name}",
            "kafka": {"bootstrap": broker.bootstrap, **waiting},
            **kept,
            "models": dict(packages),
            "applications": {
                APPLICATION: {"policy": POLICY, **common},
                contexts.APPLICATION: {"policy": contexts.POLICY, "per_context": True, **common},
            },
            "selection": {"cache_bytes": CACHE_BYTES, "write_behind": True},  # every model's batches are shown
            "control": {"port": free_port()},
            "record": {"calls": True},
        }
    )


async def promote(trial: DemoTrial, stage: DemoStage, codec: Codec, start_s: float, say: Callable[[str], None]) -> None:
    """Give the new version its share when the trial begins, and all queries when it ends.

    Args:
        trial: what is tried, and when.
        stage: the deployment, and the package of the new version.
        codec: of the deployment's records.
        start_s: how long it is until the load starts.
        say: called with each step.
    """
    loop = asyncio.get_running_loop()
    start = loop.time() + start_s
    name, version = trial.model, trial.version
    LoadNotes(load_notes()).good(digest(stage.candidate))  # packaging has loaded it here: no worker need try it first
    try:
        await asyncio.sleep(start + trial.begin_s - loop.time())
        await asyncio.to_thread(desired.add, stage.settings, codec, stage.candidate, _no_topics, trial.share)
        say(f"{trial.begin_s:5.1f} s  {name} {version}, trained on more rows, answers {trial.share:.0%} for {name}")
        await asyncio.sleep(start + trial.end_s - loop.time())
        await asyncio.to_thread(desired.use, stage.settings, codec, name, version)
        say(f"{trial.end_s:5.1f} s  {name} {version} gets all queries for {name} as soon as it is loaded")
    except DeployError as error:
        say(f"{name} {version} is not tried: {error}")


def _no_topics(*_: object) -> None:
    """A further version of a model needs no topic of its own."""
