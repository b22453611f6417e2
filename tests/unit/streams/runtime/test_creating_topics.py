"""New topics are waited for as long as a broker goes on to serve more of them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, cast

import pytest

from streams.runtime.errors import BrokerUnavailableError
from streams.runtime.kafka import admin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in its __all__

LOOK_S = 10.0
NAMES = [f"m{number}" for number in range(6)]


class Broker:
    """Creates topics at once, and serves one more each time that it is asked, up to `most`; it is the clock, too."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._served = 0
        self._now_s = 0.0
        self.asked: list[int] = []  # topics of each request to create some

    def monotonic(self) -> float:
        """Return the time (s)."""
        return self._now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._now_s += seconds

    def create_topics(self, topics: Sequence[NewTopic], *, operation_timeout: float) -> dict[str, Future[None]]:
        """Say that they are created."""
        assert operation_timeout > 0
        self.asked.append(len(topics))
        return {topic.topic: done(None) for topic in topics}

    def list_topics(self, timeout: float) -> None:
        """Tell nothing: nobody looks at it."""
        assert timeout > 0

    def list_offsets(
        self, places: Iterable[TopicPartition], request_timeout: float
    ) -> dict[TopicPartition, Future[None]]:
        """Tell the ends of the topics that are served; that takes its time."""
        assert request_timeout > 0
        self._now_s += LOOK_S
        self._served = min(self._most, self._served + 1)
        ready = NAMES[: self._served]
        return {place: done(None if place.topic in ready else LookupError()) for place in places}


def done(fault: Exception | None) -> Future[None]:
    """Return a result that is there."""
    found: Future[None] = Future()
    if fault is None:
        found.set_result(None)
    else:
        found.set_exception(fault)
    return found


def created(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Create all topics."""
    monkeypatch.setattr(admin, "time", broker)
    return admin.create(cast("AdminClient", broker), dict.fromkeys(NAMES, 1))


def test_many_topics_may_take_longer_than_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six that are served one after the other take a minute, and each of them comes in time."""
    broker = Broker(len(NAMES))
    assert created(broker, monkeypatch) == NAMES
    assert broker.monotonic() > admin.SERVED_S


def test_hundreds_of_topics_are_created_in_several_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """One for all would take longer than a request may."""
    monkeypatch.setattr(admin, "AT_ONCE", 4)
    broker = Broker(len(NAMES))
    assert created(broker, monkeypatch) == NAMES
    assert broker.asked == [4, 2]


def test_a_broker_that_serves_no_more_of_them_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that it does not serve are named."""
    broker = Broker(4)
    with pytest.raises(BrokerUnavailableError, match="m4, m5; see that all brokers are up"):
        created(broker, monkeypatch)
