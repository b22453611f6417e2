"""Servers that are down, and their consequences, as one alert: the cause."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.control.history import Key
from streams.control.page.page_types import Alert, skysail

if TYPE_CHECKING:
    from streams.control.history import History, Risen
    from streams.control.page.visibility import View

LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
USUAL_PORTS = {"kafka": "9092", "redis": "6379"}  # of `skysail kafka start` and `skysail redis start`
# Roles that stand still without Redis; selection goes on with what it has read.
WITHOUT_REDIS = frozenset({"learner"})
# A failure some seconds ago is over: a failing store is retried once a second, and reports may be a second late.
LATELY_US = 10_000_000
# Late and default answers of an outage stay in the figures of the last minute.
AFTERWARDS_US = 60_000_000


def kafka_down(view: View, now_us: int) -> Alert | None:
    """Return the alert if nothing comes back from Kafka; nothing else is known then."""
    if view.as_of_us is None:
        return None
    seconds = (now_us - view.as_of_us) / 1e6
    text = (
        f"Kafka does not answer at {view.place.kafka}: this page has heard nothing for {seconds:.0f} s."
        " No query is answered until Kafka is back; then everything goes on by itself"
    )
    return Alert(level="bad", text=text, command=_command("kafka", view.place.kafka, view))


def kafka_back(view: View, now_us: int) -> Alert | None:
    """Return the alert in the first minute after an outage of Kafka: its late answers need no action."""
    if view.back_us is None or now_us - view.back_us > AFTERWARDS_US:
        return None
    seconds = (now_us - view.back_us) / 1e6
    text = f"Kafka answers again, for {seconds:.0f} s: earlier queries came late, and their answers are the default"
    return Alert(level="warn", text=text, command=skysail("doctor"))


def redis_down(view: View, lately: Risen) -> Alert | None:
    """Return the alert if reads and writes of policy states fail."""
    if not lately.get(Key("store_failures_total")):
        return None
    what, back = f"Redis does not answer at {view.place.redis}", "Redis is back"
    if not view.place.redis:
        what, back = "the file of policy states cannot be read or written", "it can be used again"
    text = (
        f"{what}: queries are answered by the states last read, and nothing is learnt. Observations wait in Kafka and"
        f" are learnt when {back}"
    )
    return Alert(level="bad", text=text, command=_command("redis", view.place.redis, view))


def fails(history: History, now_us: int) -> bool:
    """Tell whether reads or writes of policy states have failed lately."""
    return bool(history.since(LATELY_US, now_us)[1].get(Key("store_failures_total")))


def _command(server: str, address: str, view: View) -> str:
    """Return how to start a server that nobody listens for on this machine; the doctor knows of all others."""
    host, _, port = address.partition(",")[0].rpartition(":")
    if address not in view.deaf or host.strip("[]") not in LOCAL:
        return skysail("doctor")
    return skysail(server, "start", *(() if port == USUAL_PORTS[server] else ("--port", port)))
