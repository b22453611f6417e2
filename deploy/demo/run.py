"""The demo from start to end: services, models, roles, traffic with one model breaking, report.

broker, Redis ─▶ five models ─▶ System (roles) ─▶ Traffic ─┬▶ live view
                                          flag file ◀── clock (middle third)
                                                           └▶ report.json, report.html
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop
from rich.live import Live

from deploy.clients import librdkafka
from deploy.demo import models, report
from deploy.demo.breakable import FLAG, FOLDER_VARIABLE, INNER, broken
from deploy.demo.digits import Digits, digits, sample
from deploy.demo.hindsight import alone, best
from deploy.demo.page import page, story
from deploy.demo.snapshot import take
from deploy.demo.steps import step
from deploy.demo.tally import Tally
from deploy.demo.traffic import Queries, Traffic, warm_up
from deploy.demo.view import line, screen
from deploy.desired import build
from deploy.launch import System
from deploy.local.embedded import EmbeddedBroker
from deploy.local.process import free_port, interrupted_by_sigterm
from deploy.local.redis import RedisServer
from deploy.local.services import RunningBroker, open_broker
from deploy.registry import codec_for
from deploy.settings import Settings
from deploy.topics import create
from load import arrivals
from load.recorder import Recorder
from load.topics import delete
from load.wire import Wire
from policies.registry import parse, spec
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import NDArray
    from rich.console import Console

    from deploy.demo.hindsight import Alone
    from deploy.desired import CreateTopics
    from deploy.local.services import Broker
    from streams.topology import Topology

APPLICATION = "digits"
POLICY = "exp3"
SLO_MS = 100.0
EMBEDDED_WAITS = {"fetch_wait_ms": 10, "linger_ms": 0}
TICK_S = 1.0
WARM_UP_S = 3.0
LEAD_S = 1.5  # before the first query every process reports once more: what it counted until then is not ours
COUNTED = (
    "queries_sent",
    "predictions_distinct",
    "lost",
    "duplicates",
    "defaults",
    "late",
    "feedback_sent",
    "observations_joined",
    "observations_applied",
    "dead_letters",
)
SAMPLED = 20_000  # row numbers drawn; a longer run begins again


@dataclass(frozen=True, slots=True)
class Plan:
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


@dataclass(frozen=True, slots=True)
class Stage:
    """What stands before the roles start."""

    folder: Path
    broker: Broker
    redis: RedisServer
    data: Digits
    packages: Mapping[str, Path]


def demo(plan: Plan, console: Console) -> Path:
    """Run the demo; returns the report's folder. Nothing that was started is left, whatever happens."""
    with interrupted_by_sigterm(), ExitStack() as stack:
        stage = _prepare(plan, console, stack)
        settings = _settings(plan, stage)
        if isinstance(stage.broker, RunningBroker):
            stack.callback(delete, stage.broker.bootstrap, settings.prefix)
        tally, recorder, feedback_sent = uvloop.run(_perform(plan, stage, settings, console))
        with step(console, "writing the report"):
            folder = _write(plan, stage, tally, recorder, feedback_sent)
    _summarise(folder, console)
    return folder


def _prepare(plan: Plan, console: Console, stack: ExitStack) -> Stage:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skysail-demo-")))
    with step(console, f"starting the broker ({plan.broker}; the first time its jars are fetched)") as say:
        broker = open_broker(plan.broker)
        stack.callback(broker.stop)
        say(f"{broker.description} on {broker.bootstrap}")
    with step(console, "starting Redis") as say:
        redis = stack.enter_context(RedisServer())
        say(f"{redis.description}, port {redis.port}")
    with step(console, "training and packaging five models") as say:
        data = digits(plan.seed)
        packages = dict(models.train(data, folder, plan.seed))
        say(f"five models: {', '.join(packages)}; {len(data.asked_rows)} rows that none has seen are kept for queries")
    return Stage(folder, broker, redis, data, packages)


def _settings(plan: Plan, stage: Stage) -> Settings:
    waiting = EMBEDDED_WAITS if isinstance(stage.broker, EmbeddedBroker) else {}
    return Settings.model_validate(
        {
            "prefix": f"demo-{time.strftime('%Y%m%d-%H%M%S')}",
            "kafka": {"bootstrap": stage.broker.bootstrap, **waiting},
            "redis": {"url": stage.redis.url},
            "models": dict(stage.packages),
            "applications": {
                APPLICATION: {"models": tuple(stage.packages), "policy": POLICY, "slo_ms": SLO_MS, "default_output": 0}
            },
            "control": {"port": free_port()},
            "reports": plan.reports,
        }
    )


async def _perform(plan: Plan, stage: Stage, settings: Settings, console: Console) -> tuple[Tally, Recorder, int]:
    """Start the roles, send the traffic, stop the roles; returns what was counted."""
    main = asyncio.current_task()
    assert main is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main.cancel)
    codec = codec_for(settings)
    topology = build(settings, stage.packages)
    environment = {FOLDER_VARIABLE: str(stage.folder)}
    system = System(settings, codec, stage.folder, _create_topics(stage.broker), environment)
    with step(console, "starting the roles") as say:
        await system.__aenter__()
        say(f"{len(system.pids)} roles: {', '.join(system.pids)}")
    try:
        return await _send(plan, stage, settings, topology, console)
    finally:
        await system.__aexit__(None, None, None)


def _create_topics(broker: Broker) -> CreateTopics:
    """Return how topics come to be: the embedded broker knows no request for it."""
    if not isinstance(broker, EmbeddedBroker):
        return create

    def create_embedded(settings: Settings, topology: Topology) -> None:
        broker.create_topics({f"{settings.prefix}.{t.name}": t.partitions for t in topology.topics.values()})

    return create_embedded


async def _send(
    plan: Plan, stage: Stage, settings: Settings, topology: Topology, console: Console
) -> tuple[Tally, Recorder, int]:
    """Run the client in a thread, break the model on time, show what happens."""
    clock = SystemClock()
    with step(console, "warming up") as say:
        warmed = await _warm_up(plan, stage, settings, clock)
        say(f"warmed up with {warmed} queries that are not counted")
    wire = Wire(settings.kafka.bootstrap, settings.prefix, _extra(settings))
    start_us = clock.now_us() + int(LEAD_S * 1e6)
    tally = Tally(APPLICATION, list(stage.packages), start_us, plan.broken_s)
    recorder = Recorder(start_us, int(SLO_MS * 1000))
    queries = Queries(APPLICATION, stage.data, sample(SAMPLED, len(stage.data.asked_rows), plan.seed), tally, plan.seed)
    traffic = Traffic(wire, codec_for(settings), queries, recorder, tally, topology, clock.now_us)
    offsets = arrivals.until(arrivals.poisson(plan.rate, plan.seed), plan.seconds)
    sending = asyncio.create_task(asyncio.to_thread(traffic.run, offsets))
    _break_on_time(plan, stage.folder / FLAG, (start_us - clock.now_us()) / 1e6)
    try:
        with _display(console) as show:
            while not sending.done():
                await asyncio.wait([sending], timeout=TICK_S)
                show(
                    take(
                        tally, recorder, seconds=plan.seconds, feedback_sent=traffic.feedback_sent,
                        now_us=clock.now_us(), breaking=models.BREAKING,
                    )
                )  # fmt: skip
        await sending
    finally:
        traffic.stop()
        await asyncio.wait([sending])
        wire.close()
    return tally, recorder, traffic.feedback_sent


async def _warm_up(plan: Plan, stage: Stage, settings: Settings, clock: SystemClock) -> int:
    offsets = arrivals.until(arrivals.poisson(plan.rate, plan.seed), WARM_UP_S)
    wire = Wire(settings.kafka.bootstrap, settings.prefix, _extra(settings))
    try:
        return await asyncio.to_thread(
            warm_up, wire, codec_for(settings), APPLICATION, stage.data, offsets, clock.now_us
        )
    finally:
        wire.close()


def _extra(settings: Settings) -> dict[str, str]:
    """Return librdkafka's properties for the client; it waits as the roles do."""
    own = {"fetch.wait.max.ms": str(settings.kafka.fetch_wait_ms)}
    return own | {name: value for name, value in librdkafka(settings).items() if name != "bootstrap.servers"}


def _break_on_time(plan: Plan, flag: Path, start_s: float) -> None:
    """Break the model after a third of the time, mend it after two."""
    begin_s, end_s = plan.broken_s
    loop = asyncio.get_running_loop()
    loop.call_later(start_s + begin_s, flag.touch)
    loop.call_later(start_s + end_s, flag.unlink)


@contextmanager
def _display(console: Console) -> Iterator[Callable[[Any], None]]:
    """Give a function that shows a snapshot: in place on a terminal, else as a line."""
    if not console.is_terminal:
        yield lambda now: print(line(now), flush=True)
        return
    with Live(console=console, auto_refresh=False) as live:
        yield lambda now: live.update(screen(now), refresh=True)


def _write(plan: Plan, stage: Stage, tally: Tally, recorder: Recorder, feedback_sent: int) -> Path:
    judged = _hindsight(stage, tally)
    content = {
        "stamp": time.strftime("%Y-%m-%d %H:%M:%S"),
        "broker": stage.broker.description,
        "redis": stage.redis.description,
        "seconds": plan.seconds,
        "rate": plan.rate,
        "seed": plan.seed,
        "warm_up_s": WARM_UP_S,  # queries before the count: a cold start is not what is shown
        "policy": spec(parse(POLICY)),
        "broken_model": models.BREAKING,
        "best_model": best(judged),
        **report.figures(tally, recorder, feedback_sent, {name: model.error for name, model in judged.items()}),
    }
    folder = plan.reports / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    report.write_json(content, folder)
    html = page(content, report.series(tally, recorder, judged, models.BREAKING))
    (folder / "report.html").write_text(html, encoding="utf-8")
    return folder


def _hindsight(stage: Stage, tally: Tally) -> dict[str, Alone]:
    """Run every package offline on the held-out rows, and judge it on the queries that were asked."""
    judged = {}
    for name, package in stage.packages.items():
        breaks = name == models.BREAKING
        answers = models.answers(stage.folder / INNER if breaks else package, stage.data.asked_rows)
        wrong: NDArray[Any] | None = broken(answers) if breaks else None
        judged[name] = alone(tally.questions.values(), answers, wrong)
    return judged


def _summarise(folder: Path, console: Console) -> None:
    content = report.read_json(folder)
    console.print()
    console.print(story(content), highlight=False)
    console.print(", ".join(f"{name} {content[name]}" for name in COUNTED), highlight=False)
    latency = ", ".join(f"{name} {value:.1f} ms" for name, value in content["latency_ms"].items())
    console.print(f"latency {latency}; within the objective {content['within_slo']:.2%}", highlight=False)
    console.print(f"report: {folder.resolve() / 'report.html'}", soft_wrap=True, highlight=False)
