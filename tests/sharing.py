"""One broker for all processes of a test run: the first that needs it starts it and stops it when nobody uses it."""

from __future__ import annotations

from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_SH, flock
from typing import TYPE_CHECKING, Final

from deploy.local.apache import ApacheKafka
from deploy.local.services import APACHE, open_broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deploy.local.services import Broker

# Many tests write records that seem to be of 1970, and every few minutes a broker deletes what is older than a week.
FOR_EVER: Final = {"log.retention.ms": "-1"}


@contextmanager
def shared_broker(spec: str, folder: Path) -> Iterator[Broker]:
    """Give the broker that the processes with this folder share.

    Locks end with the process that holds them, however it ends.

    Args:
        spec: Which one, if it is not up yet: `apache`, `embedded` or `HOST:PORT`.
        folder: Where they find each other.

    Raises:
        MissingError: It cannot be had on this machine.
    """
    address = folder / "broker"
    with (folder / "users").open("w") as users:
        with _alone(folder):
            is_ours = not address.exists()
            broker = _opened(spec) if is_ours else open_broker(address.read_text())
            address.write_text(broker.bootstrap)
            flock(users, LOCK_SH)
        try:
            yield broker
        finally:
            if is_ours:
                with _alone(folder):
                    address.unlink()  # who comes from now on starts another one
                flock(users, LOCK_EX)
            broker.stop()


def _opened(spec: str) -> Broker:
    return ApacheKafka(properties=FOR_EVER).start() if spec == APACHE else open_broker(spec)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        flock(lock, LOCK_EX)
        yield
