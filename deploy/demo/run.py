"""The demo from start to end: services, models, roles, traffic with one model breaking, report.

broker, Redis ─▶ five models ─▶ System (roles) ─▶ Traffic ─┬▶ live view
                                          flag file ◀── clock (middle third)
                                        new version ◀── clock (a canary, then it serves)
                                                           └▶ report.json, report.html

The first Ctrl-C or SIGTERM ends it with a report of what ran so far, the second ends it at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

import psutil
import uvloop

from deploy.connect.schema_registry import codec_for
from deploy.demo import models, report
from deploy.demo.contexts import Pens
from deploy.demo.models import repeating, sample
from deploy.demo.report import DemoCounts
from deploy.demo.report import say as say_summary
from deploy.demo.screen import display, take
from deploy.demo.stage import APPLICATION, SLO_MS, DemoPlan, DemoStage, DemoSteps, prepare, promote
from deploy.demo.tally import Tally
from deploy.demo.traffic import DemoTraffic, Link, Queries, WarmUp, followed
from deploy.state.desired import build
from deploy.system.launch import System
from load.harness import arrivals
from load.harness.recorder import Recorder
from load.harness.wire import Wire
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType, TracebackType

    from rich.console import Console

    from streams.topology import Topology

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = 130  # as shells say it
SHOW_CURSOR = b"\x1b[?25h"
GONE_S = 1.0
WARM_UP_S = 3.0
LEAD_S = 0.2  # between the warm-up and the first query that counts
SAMPLED = 20_000  # row numbers drawn; a longer run begins again
REPEATED, WITHIN = 1 / 3, 50  # this share of the queries asks again for one of so many rows just before


def unwind() -> NoReturn:
    """End a blocking call; `with` blocks stop what they started.

    Raises:
        KeyboardInterrupt: always.
    """
    raise KeyboardInterrupt


class Interrupts:
    """Handles both signals during a block. Main thread only.

    Args:
        folder: removed when the second signal quits at once; everything that the demo's processes write is in there.
    """

    def __init__(self, folder: Path) -> None:
        self.asked = False
        self._folder = folder
        self._action: Callable[[], object] = unwind
        self._before: list[object] = []

    def then(self, action: Callable[[], object]) -> None:
        """Say what the first signal does from now on; if it has come already, do it."""
        self._action = action
        if self.asked:
            action()

    def __enter__(self) -> Self:
        self._before = [signal.signal(number, self._on_signal) for number in SIGNALS]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in zip(SIGNALS, self._before, strict=True):
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal` returned

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            quit_at_once(self._folder)
        self.asked = True
        self._action()


def quit_at_once(folder: Path) -> NoReturn:
    """Kill every process that this one has started, remove their folder, and leave without unwinding."""
    children = psutil.Process().children(recursive=True)
    for child in children:
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=GONE_S)
    shutil.rmtree(folder, ignore_errors=True)
    if sys.stdout.isatty():
        os.write(sys.stdout.fileno(), SHOW_CURSOR)
    os._exit(INTERRUPTED)


@contextlib.contextmanager
def own_terminal() -> Iterator[None]:
    """Be the terminal's foreground job, as a shell would make it.

    Ctrl-C goes to the whole foreground job. Started by `make`, that is `make`, too, which dies of it and calls the
    demo's orderly end a failure. Ctrl-Z is ignored: it would stop this process and leave `make` waiting for it.
    """
    before = _foreground()
    if before is None or os.getpgrp() == os.getpid():
        yield
        return
    os.setpgid(0, 0)
    suspend = signal.signal(signal.SIGTSTP, signal.SIG_IGN)
    _give_terminal(os.getpgrp())
    try:
        yield
    finally:
        _give_terminal(before)
        signal.signal(signal.SIGTSTP, suspend)


def _foreground() -> int | None:
    """Return the foreground job of the terminal if it is ours, None without a terminal."""
    try:
        group = os.tcgetpgrp(sys.stdin.fileno())
    except (OSError, ValueError):  # no terminal, or no standard input at all
        return None
    return group if group == os.getpgrp() else None


def _give_terminal(group: int) -> None:
    """Make a job the foreground one; asked by a background job, which the terminal would stop for it."""
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    try:
        with contextlib.suppress(OSError):  # the terminal, or the job, has gone meanwhile
            os.tcsetpgrp(sys.stdin.fileno(), group)
    finally:
        signal.signal(signal.SIGTTOU, before)


class DemoRun(NamedTuple):
    """What one demo is made of."""

    plan: DemoPlan
    stage: DemoStage
    console: Console
    steps: DemoSteps
    interrupts: Interrupts


def demo(plan: DemoPlan, console: Console) -> Path | None:
    """Run the demo; returns the report's folder, None if it was ended before the first query.

    Nothing that was started is left, whatever happens. Ctrl-C and SIGTERM end it early, with a report of what ran so
    far; a second one ends it at once, with exit code 130.

    Raises:
        DeployError: something cannot be started; the message says what to do.
    """
    folder = plan.reports.resolve() / time.strftime("%Y%m%d-%H%M%S")
    with (
        own_terminal(),
        tempfile.TemporaryDirectory(prefix="skysail-demo-", ignore_cleanup_errors=True) as scratch,
        Interrupts(Path(scratch)) as interrupts,
    ):
        try:
            if _demo(plan, folder, Path(scratch), interrupts, console):
                return folder
        except (KeyboardInterrupt, asyncio.CancelledError):
            pass
        except BaseException:
            if logs := report.keep_logs(Path(scratch), folder):
                console.print(f"every process's log is in {logs}", soft_wrap=True, highlight=False)
            raise
        shutil.rmtree(folder, ignore_errors=True)
        console.print("ended before the first query: there is nothing to report")
    return None


def _demo(plan: DemoPlan, folder: Path, scratch: Path, interrupts: Interrupts, console: Console) -> bool:
    """Run it and report; tells whether there was anything to report."""
    steps = DemoSteps(console)
    with ExitStack() as stack:
        stage = prepare(plan, folder.name, steps, scratch, stack)
        ran = uvloop.run(_perform(DemoRun(plan, stage, console, steps, interrupts), folder))
        if not ran.tally.questions:
            return False
        with steps.step("report", "writing the report"):
            content = report.write(plan, stage, ran, folder)
    say_summary(content, folder, console)
    return True


async def _perform(run: DemoRun, folder: Path) -> DemoCounts:
    """Start the roles, send the traffic, stop the roles; returns what was counted."""
    loop, main = asyncio.get_running_loop(), asyncio.current_task()
    assert main is not None
    run.interrupts.then(lambda: loop.call_soon_threadsafe(main.cancel))
    stage = run.stage
    codec = codec_for(stage.settings)
    system = System(stage.settings, codec, folder, stage.create_topics(), stage.environment())
    with run.steps.step("roles", "starting the roles") as say:
        await system.__aenter__()
        say(f"{len(system.pids)} processes: {', '.join(system.pids)}")
    page = stage.settings.control
    for words in (
        f"live page while it runs: http://{page.host}:{page.port}/",
        f"other commands reach it with: export SKYSAIL_CONFIG={system.settings_file}",
    ):
        run.console.print(f"  {words}", highlight=False, soft_wrap=True)
    try:
        run.interrupts.then(_nothing)
        await asyncio.sleep(0)  # an interrupt of a moment ago cancels here, where no thread is at work
        with closing(Wire(stage.settings.kafka.bootstrap, stage.settings.prefix, stage.client_properties())) as wire:
            link = Link(wire, codec, SystemClock().now_us)
            ran = await _send(run, link, build(stage.settings, dict.fromkeys(stage.packages)))
            pens = None if run.interrupts.asked else await _ask_with_pens(run, link)
        return ran._replace(
            pens=pens,
            interrupted=run.interrupts.asked,
            restarts={child.name: child.restarts for child in system.status() if child.restarts},
        )
    finally:
        run.interrupts.then(_nothing)
        await system.__aexit__(None, None, None)
        system.settings_file.unlink(missing_ok=True)  # it holds the password of a Redis that is gone


def _nothing() -> None:
    """What the first signal does when everything is ending anyway."""


async def _watch(
    run: DemoRun, link: Link, traffic: DemoTraffic, tally: Tally, recorder: Recorder, sending: asyncio.Task[None]
) -> None:
    """Show what happens at each full second, until all is sent; nothing more once an interrupt asks for the end."""
    with display(run.console) as show:
        while not sending.done():
            await asyncio.wait([sending], timeout=1 - (link.now_us() - recorder.start_us) % 1_000_000 / 1e6)
            now_us = link.now_us()
            if not run.interrupts.asked:
                show(take(tally, recorder, run.plan.seconds, traffic.feedback_sent, now_us, models.BREAKING))
    await sending


async def _send(run: DemoRun, link: Link, topology: Topology) -> DemoCounts:
    """Run the client in a thread, break the model on time, show what happens."""
    plan, data = run.plan, run.stage.data
    await asyncio.to_thread(link.wire.follow, followed(topology))
    await _warm_up(run, link)
    start_us = link.now_us() + int(LEAD_S * 1e6)
    tally = Tally(APPLICATION, list(run.stage.packages), start_us, plan.broken_s, plan.trial)
    recorder = Recorder(start_us, int(SLO_MS * 1000))
    order = repeating(sample(SAMPLED, len(data.asked_rows), plan.seed), REPEATED, WITHIN, plan.seed)
    queries = Queries(APPLICATION, data, order, tally, plan.seed)
    traffic = DemoTraffic(link, queries, recorder, tally, topology)
    offsets = arrivals.until(arrivals.poisson(plan.rate, plan.seed), plan.seconds)
    sending = asyncio.create_task(asyncio.to_thread(traffic.run, offsets))
    _end_early(run, traffic)
    lead_s = (start_us - link.now_us()) / 1e6
    promoting = _promote_on_time(run, link, lead_s)
    due: list[asyncio.TimerHandle | asyncio.Task[None]] = [promoting, *_break_on_time(run, lead_s)]
    try:
        await _watch(run, link, traffic, tally, recorder, sending)
    finally:
        for timer in due:
            timer.cancel()
        traffic.stop()
        await asyncio.wait([sending, promoting])
    if not promoting.cancelled():
        promoting.result()
    return DemoCounts(tally, recorder, traffic.feedback_sent, run.steps.done_s, interrupted=run.interrupts.asked)


async def _warm_up(run: DemoRun, link: Link) -> None:
    offsets = arrivals.until(arrivals.poisson(run.plan.rate, run.plan.seed), WARM_UP_S)
    warm = WarmUp(link, APPLICATION, run.stage.data, lambda: run.steps.note("first_prediction"))
    run.interrupts.then(warm.stop)
    with run.steps.step("warm_up", "warming up") as say:
        warmed = await asyncio.to_thread(warm.run, offsets)
        first_s = run.steps.done_s.get("first_prediction")
        first = "no prediction yet" if first_s is None else f"first prediction {first_s:.1f} s after the start"
        say(f"{first}; warmed up with {warmed} queries that are not counted")


async def _ask_with_pens(run: DemoRun, link: Link) -> Pens:
    """Perform the second act."""
    plan, data = run.plan, run.stage.data
    seed = plan.seed + 1  # other rows at other times than in the first act
    offsets = [*arrivals.until(arrivals.poisson(plan.rate, seed), plan.contexts_s)]
    pens = Pens(link, data, sample(SAMPLED, len(data.asked_rows), seed), len(offsets))
    _end_early(run, pens)
    with run.steps.step("contexts", f"two pens ask for {plan.contexts_s:.0f} s, each a context of its own") as say:
        await asyncio.to_thread(pens.run, offsets)
        say(f"two pens, ink and pencil, have asked: {pens.recorder.total.sent} queries")
    return pens


def _end_early(run: DemoRun, traffic: DemoTraffic | Pens) -> None:
    """Make the first signal end the sending, and say so from the loop: a handler must not print."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        traffic.stop()
        loop.call_soon_threadsafe(run.console.print, "ending early; once more quits at once")

    run.interrupts.then(end)


def _break_on_time(run: DemoRun, start_s: float) -> list[asyncio.TimerHandle]:
    """Break the model after a third of the time, mend it after two, and say so."""
    flag, name = run.stage.flag, models.BREAKING
    begin_s, end_s = run.plan.broken_s

    def turn(act: Callable[[], object], words: str) -> None:
        act()
        _announce(run.console, words)

    loop = asyncio.get_running_loop()
    return [
        loop.call_later(start_s + begin_s, turn, flag.touch, f"{begin_s:5.1f} s  {name} answers wrongly from now on"),
        loop.call_later(start_s + end_s, turn, flag.unlink, f"{end_s:5.1f} s  {name} is mended"),
    ]


def _promote_on_time(run: DemoRun, link: Link, start_s: float) -> asyncio.Task[None]:
    """Have a new version of another model tried, and then serve."""
    return asyncio.create_task(
        promote(run.plan.trial, run.stage, link.codec, start_s, lambda words: _announce(run.console, words))
    )


def _announce(console: Console, words: str) -> None:
    console.print(words, style="bold", highlight=False)
