"""The live page for tests: served from a state, with commands that are only noted."""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from schemas.records import Report
from streams.control.minutes import MINUTE_US, Mark, Minutes
from streams.control.page.visibility import DeploymentSettings, Visibility
from streams.control.state import ControlState
from streams.control.web.application import CommandResult, PageApplication, PageParts
from streams.control.web.rights import PageRights
from streams.gateway.bodies import Bodies
from streams.gateway.server import GatewayServer, Listening
from streams.gateway.tokens import BearerTokens
from streams.runtime.process.host_names import names

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

TOKENS = "reader-0123456789 read\nactor-0123456789 act\n"


def now_us() -> int:
    """Return the time."""
    return time.time_ns() // 1000


def empty_state(begun_us: int) -> ControlState:
    """Return a state that has read nothing."""
    place = DeploymentSettings("skysail", "control@1", "127.0.0.1:9092", "127.0.0.1:6379")
    return ControlState({}, Visibility(place, begun_us), None, None, Minutes({}))


class NotedCommands:
    """Notes what it is to run, and says what it was given for it."""

    def __init__(self, said: Mapping[str, bytes] | None = None) -> None:
        self.ran: list[tuple[str, ...]] = []
        self._said = dict(said or {})

    async def __call__(self, words: Sequence[str]) -> CommandResult:
        """Note the words; the answer goes by the first two of them."""
        self.ran.append(tuple(words))
        said = next((said for name, said in self._said.items() if " ".join(words).startswith(name)), b"{}")
        return CommandResult(0, said, "")


def page(
    state: ControlState,
    *,
    run: Callable[[Sequence[str]], Awaitable[CommandResult]] | None = None,
    tokens: str = "",
    shows_records: bool = True,
    clock: Callable[[], int] = now_us,
) -> PageApplication:
    """Return the page of a state."""
    return PageApplication(
        PageParts(
            known=names("127.0.0.1", ["Page.example"]),
            status=lambda: state.shown(clock()),
            charts=lambda minutes, application: state.charts(minutes, application, clock()),
            is_blind=lambda: state.is_blind(clock()),
            rights=PageRights(BearerTokens(tokens), shows_records),
            bodies=Bodies(1_024, 4_096, 1.0),
            run=run or NotedCommands(),
            log={"worker.forest@1": "line one\nline two"}.get,
        )
    )


def busy_state(end_us: int) -> ControlState:
    """Return a deployment of two applications after a day, with a switch of a model an hour ago, and a bad sender."""
    state = empty_state(end_us - 600_000_000)
    for minute in range(1_440, 6, -1):
        now = end_us - minute * MINUTE_US
        swing = 1 + 0.5 * math.sin(minute / 229)
        weight = 0.55 + 0.3 * math.tanh((700 - minute) / 300)
        figures = {}
        for name, rate in (("digits", 480.0), ("fraud", 120.0)):
            own = f"application={name}"
            figures |= {
                f"rate{{{own}}}": rate * swing,
                f"joined{{{own}}}": rate * swing * 0.8,
                f"defaults{{{own}}}": 0.004 * swing,
                f"late{{{own}}}": 0.001,
                f"loss{{{own}}}": 0.12 - 0.05 * weight + 0.01 * math.sin(minute / 7),
                f"p50_ms{{{own}}}": 1.4 * swing,
                f"p99_ms{{{own}}}": 6.0 * swing + (9.0 if 300 < minute < 330 else 0.0),
            }
            for model, share in (("forest", weight), ("linear", 0.95 - weight), ("svm", 0.05)):
                figures |= {
                    f"model_weight{{{own},model={model}}}": share,
                    f"model_share{{{own},model={model}}}": share,
                    f"model_loss{{{own},model={model}}}": 0.2 - 0.14 * share,
                }
        for process, lag in (("selection@1", 3.0), ("joiner@1", 40.0 * swing), ("worker.forest@1", 2.0)):
            figures |= {
                f"lag{{process={process}}}": lag,
                f"cpu{{process={process}}}": 0.3 * swing,
                f"memory_mb{{process={process}}}": 72.0,
            }
        if minute == 60:
            state.minutes.mark(Mark(now, "version", "forest 3 serves"))
        if minute == 310:
            state.minutes.mark(Mark(now, "restart", "worker.forest@1 started again"))
        state.minutes.put(now, figures)
    for second in range(300, -1, -1):
        _reports(state, end_us - second * 1_000_000, 301 - second)
    return state


def _reports(state: ControlState, now: int, second: int) -> None:
    counters: dict[str, dict[str, float]] = {"selection@1": {}, "joiner@1": {}, "learner@1": {}, "control@1": {}}
    gauges: dict[str, dict[str, float]] = {name: {"lag": 3.0} for name in counters}
    for name, rate in (("digits", 480.0), ("fraud", 120.0)):
        wrong = 0.3 if name == "fraud" and second > 200 else 0.0
        asked = second * rate
        failed = wrong * rate * max(0, second - 200)
        counters["selection@1"] |= {
            f"answers_total{{application={name},status=complete,reason=}}": asked - failed,
            f"answers_total{{application={name},status=default,reason=invalid_input}}": failed,
        }
        for model, share in (("forest", 0.8), ("linear", 0.15), ("svm", 0.05)):
            counters["selection@1"] |= {
                f"asked_total{{application={name},model={model}}}": asked * share,
                f"failed_outputs_total{{application={name},model={model},outcome=invalid}}": failed * share,
            }
            counters["learner@1"] |= {
                f"model_loss_total{{application={name},model={model}}}": asked * share * 0.1,
                f"model_losses_total{{application={name},model={model}}}": asked * share,
            }
            gauges["selection@1"] |= {f"candidate{{application={name},model={model}}}": 1.0}
            gauges["learner@1"] |= {f"policy_weight{{application={name},model={model}}}": share}
        slow = 0.08 if name == "fraud" else 0.0
        for bound, within in (("0.005", 0.4), ("0.01", 0.8), ("0.02", 0.92), ("0.04", 1.0 - slow), ("+Inf", 1.0)):
            counters["selection@1"][f"answer_seconds_bucket{{application={name},le={bound}}}"] = asked * within
        gauges["selection@1"][f"answer_objective_seconds{{application={name}}}"] = 0.02
        counters["learner@1"] |= {
            f"loss_total{{application={name}}}": asked * 0.07,
            f"losses_total{{application={name}}}": asked * 0.8,
        }
        counters["joiner@1"] |= {f"joined_total{{application={name}}}": asked * 0.8}
        gauges["selection@1"] |= {
            f"deployed{{application={name},policy=exp3}}": 1.0,
            f"answer_p50_us{{application={name}}}": 1_400.0,
            f"answer_p99_us{{application={name}}}": 6_100.0,
        }
    counters["joiner@1"] |= {
        "dead_letters_total{cause=unmatched,topic=feedback}": float(second // 10),
        "dead_letters_total{cause=unreadable,topic=/orders}": 1.0,
    }
    for model in ("forest", "linear", "svm"):
        name = f"worker.{model}@1"
        counters[name] = {
            f"batches_total{{model={model},closed=linger}}": second * 20.0,
            f"batch_rows_total{{model={model}}}": second * 90.0,
            f"predict_us_total{{model={model}}}": second * 20.0 * 900.0,
        }
        gauges[name] = {
            "lag": 1.0,
            f"serving{{model={model},version=3}}": 1.0,
            f"batch_cap{{model={model}}}": 32.0,
            f"queue_rows{{model={model}}}": 2.0,
            f"estimated_wait_seconds{{model={model}}}": 0.0024,
            f"model_p50_us{{model={model}}}": 700.0,
            f"model_p99_us{{model={model}}}": 3_000.0,
        }
    for instance, own in counters.items():
        role = instance.partition("@")[0]
        process = {"resident_bytes": 72e6, "uptime_s": 86_000.0 + second}
        state.take(
            Report(instance, role, now, own | {"cpu_seconds_total": 0.3 * second}, gauges[instance] | process), now
        )
        if role == "control":
            state.sight.sent(now)


@asynccontextmanager
async def served(application: PageApplication, within_s: float = 10.0) -> AsyncIterator[GatewayServer]:
    """Serve a page on a free port."""
    server, stop = GatewayServer(application, Listening("127.0.0.1", 0, within_s=within_s)), asyncio.Event()
    serving = asyncio.create_task(server.run(stop))
    try:
        yield server
    finally:
        stop.set()
        await serving
        server.close()
