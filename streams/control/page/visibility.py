"""The page's own place, and whether it can read Kafka: its own report has to come back."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streams.control.figures import SILENT_AFTER_US

if TYPE_CHECKING:
    from collections.abc import Iterable

    from schemas.records import Report

CONNECT_S = 1.0
# Own reports that Kafka has taken, one a second, while none of anybody was read: a start on a busy machine took 27 s.
STUCK_REPORTS = 60
# The same of a page that has seen before: after a freeze it took 6 to 9 s on a busy machine until it read again.
BLIND_REPORTS = 30


@dataclass(frozen=True, slots=True)
class DeploymentSettings:
    """A deployment, in the words of its settings; nothing secret."""

    prefix: str = "skysail"
    instance: str = ""  # of the page itself, as in its reports
    kafka: str = ""  # host:port[,host:port...]
    redis: str = ""  # host:port, or a socket's path


@dataclass(frozen=True, slots=True)
class View:
    """The page's knowledge of itself at a moment.

    Attributes:
        place: whose page this is.
        as_of_us: when its own last report was written, if that has not come back lately; None = it sees the present.
        is_settled: it has seen long enough to know who is silent.
        back_us: since when it sees again, if it had lost sight; None = it never has.
        deaf: servers that refuse a connection: nobody listens there.
    """

    place: DeploymentSettings = DeploymentSettings()
    as_of_us: int | None = None
    is_settled: bool = True
    back_us: int | None = None
    deaf: frozenset[str] = frozenset()


class Visibility:
    """Follows the page's own reports out to Kafka and back, and asks servers in doubt for a connection."""

    def __init__(self, place: DeploymentSettings, now_us: int) -> None:
        self.place = place
        self._waits_us: int | None = None  # when the oldest report that has not come back was sent
        self._known_us = now_us  # when the newest that came back was written
        self._since_us = now_us  # it sees without a gap
        self._back_us: int | None = None
        self._deaf: frozenset[str] = frozenset()
        self.has_heard = False  # a report of its own came back
        self._unheard = 0  # own reports that Kafka has taken since any report was read

    def sent(self, now_us: int) -> None:
        """Note that a report of the page's own is on its way."""
        self._waits_us = self._waits_us or now_us

    def taken(self, time_us: int) -> None:
        """Note that Kafka has taken the report of this time."""
        self._unheard += time_us > self._known_us

    def read(self) -> None:
        """Note that a report has been read, of whomever: reading goes on."""
        self._unheard = 0

    @property
    def is_stuck(self) -> bool:
        """Whether Kafka takes reports and none is read: it is there, and whoever reads stands still."""
        return self._unheard >= (BLIND_REPORTS if self.has_heard else STUCK_REPORTS)

    def heard(self, report: Report, now_us: int) -> None:
        """Take a report that came back, if it is the page's own."""
        if report.instance != self.place.instance or report.time_us < self._known_us:
            return
        if self._is_blind(now_us):
            self._since_us = self._back_us = now_us
        self._known_us, self._waits_us = report.time_us, None
        self.has_heard = True

    def view(self, now_us: int) -> View:
        """Return the page's knowledge of itself."""
        is_blind = self._is_blind(now_us)
        return View(
            self.place,
            as_of_us=self._known_us if is_blind else None,
            is_settled=not is_blind and now_us - self._since_us > SILENT_AFTER_US,
            back_us=None if is_blind else self._back_us,
            deaf=self._deaf,
        )

    def _is_blind(self, now_us: int) -> bool:
        """Tell whether a report is out for too long; a page that is too busy to send one blames nobody."""
        return self._waits_us is not None and now_us - self._waits_us > SILENT_AFTER_US

    async def listen(self, servers: Iterable[str]) -> None:
        """Find out which servers refuse a connection."""
        found = [server for server in servers if await _is_deaf(server)]
        self._deaf = frozenset(found)


async def _is_deaf(server: str) -> bool:
    """Tell whether all of a server's addresses refuse a connection; one that does not answer at all refuses nothing."""
    addresses = [address.rpartition(":") for address in server.split(",")]
    return all([await _refuses(host.strip("[]"), port) for host, _, port in addresses])


async def _refuses(host: str, port: str) -> bool:
    if not host or not port.isdecimal():
        return False
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(host, int(port))
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError, OverflowError):
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return False
