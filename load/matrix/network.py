"""Rows of the network between clients and brokers, and of a broker's disk that takes no more."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import psutil

from load.harness.proxy import Weather
from load.matrix.broken import STILL_S, Broken, Seen
from load.matrix.services import BROKERS

if TYPE_CHECKING:
    from load.harness.proxy import Proxy
    from load.matrix.broken import Place

_WEATHER_S: Final = 20.0
_SLOW: Final = Weather(delay_s=0.05)
_NARROW: Final = Weather(bytes_per_s=125_000)  # a megabit a second
_FULL_S: Final = 15.0
_FILE_BYTES: Final = 4_096
_WROTE: Final = "it went on, so its disk was not full: it showed nothing"


async def _cut(place: Place) -> None:
    """No connection for longer than a session."""
    _proxy(place).cut()
    await asyncio.sleep(STILL_S)
    _proxy(place).mend()


async def _half_open(place: Place) -> None:
    """All connections that there are fall silent, and nobody is told."""
    _proxy(place).half_open()
    await asyncio.sleep(1)


async def _bad_weather(place: Place, weather: Weather) -> None:
    _proxy(place).weather = weather
    await asyncio.sleep(_WEATHER_S)
    _proxy(place).mend()


def _proxy(place: Place) -> Proxy:
    assert place.proxy is not None
    return place.proxy


async def _full(place: Place, name: str) -> Seen:
    """A broker can write nothing more (`RLIMIT_FSIZE`), as on a full disk, and ends; then there is room again."""
    node = place.brokers.nodes[name]
    process = psutil.Process(node.pid)
    process.rlimit(psutil.RLIMIT_FSIZE, (_FILE_BYTES, process.rlimit(psutil.RLIMIT_FSIZE)[1]))
    await asyncio.sleep(_FULL_S)
    has_ended = node.pid is None
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    return Seen({"brokers that ended, as they could not write": has_ended}, () if has_ended else (_WROTE,))


NETWORK_ROWS: Final = (
    Broken("network cut", "network", _cut, times=1),
    Broken("network 50 ms", "network", partial(_bad_weather, weather=_SLOW), times=1),
    Broken("network 1 Mbit/s", "network", partial(_bad_weather, weather=_NARROW), times=1),
    Broken("network half-open", "network", _half_open, times=1),
)
DISK_ROWS: Final = tuple(
    Broken(f"broker@{number} full disk", "disk", partial(_full, name=f"broker@{number}"), times=1)
    for number in range(1, BROKERS + 1)
)
