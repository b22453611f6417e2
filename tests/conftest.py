"""Fixtures every test may use: one Apache Kafka and one redis-server for the whole run, a fresh prefix for each test.

`BROKER=HOST:PORT` makes the run use a broker that is up already. Each test carries the name of its folder as a marker
(`pytest -m "not integration and not fault"`). What a machine lacks skips the tests that need it, with the reason.
"""

from __future__ import annotations

import gc
import os
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import threadpoolctl  # type: ignore[import-untyped] # has no annotations
from hypothesis import settings

from deploy.errors import MissingError
from deploy.local.apache import ApacheKafka
from deploy.local.redis import RedisServer
from policies import outside
from tests.sharing import FOR_EVER, shared_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.local.services import Broker

# "quick" runs on every change, "ci" before one is taken, "thorough" when a law is doubted: HYPOTHESIS_PROFILE=thorough.
settings.register_profile("quick", max_examples=30, deadline=None)
settings.register_profile("ci", max_examples=100, deadline=None)
settings.register_profile("thorough", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))

_FOLDERS = {
    "unit": "pure and quick",
    "property": "laws, by hypothesis",
    "conformance": "one list of checks for every implementation of a contract",
    "integration": "with real services",
    "fault": "with real services that are killed",
}


def pytest_configure(config: pytest.Config) -> None:
    """Declare one marker for each folder of tests."""
    for folder, meaning in _FOLDERS.items():
        config.addinivalue_line("markers", f"{folder}: {meaning}")


def pytest_collection_finish() -> None:
    """Take what was imported out of the garbage collector's sight: it stays, and looking at it costs a tenth."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with the folder it is in."""
    here = Path(__file__).parent
    for item in items:
        folder = item.path.relative_to(here).parts[0]
        if folder in _FOLDERS:
            item.add_marker(folder)


@pytest.fixture(autouse=True)
def any_policy() -> Iterator[None]:
    """Forget which policies the settings of a test have allowed: that is of the process."""
    yield
    outside.allow(None)


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The run's Apache Kafka: `bootstrap`, `create_topics({name: partitions})`. Do not stop it; see `own_kafka`."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(shared_broker(os.environ.get("BROKER", "apache"), folder))
        except MissingError as error:
            pytest.skip(f"no Apache Kafka: {error}")
        yield broker


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The run's redis-server: `url`. Do not stop it; see `own_redis`."""
    yield from _redis()


@pytest.fixture
def own_kafka() -> Iterator[ApacheKafka]:
    """Start an Apache Kafka for this test alone, which may `kill`, `start`, `restart` it (about 3 s each)."""
    server = ApacheKafka(properties=FOR_EVER)
    try:
        server.start()
    except MissingError as error:
        pytest.skip(f"no Apache Kafka: {error}")
    yield server
    server.stop()


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """Start a redis-server for this test alone, which may `kill`, `start`, `restart` it."""
    yield from _redis()


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Train with one thread: several that wait for each other on busy cores take seconds for a few trees."""
    with threadpoolctl.threadpool_limits(1):
        yield


@pytest.fixture
def prefix() -> str:
    """Return a prefix for topics, groups and keys that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}"


def _redis() -> Iterator[RedisServer]:
    server = RedisServer()
    try:
        server.start()
    except MissingError as error:
        pytest.skip(str(error))
    yield server
    server.stop()
