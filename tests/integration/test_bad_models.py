"""Models that raise, forget rows, hang or end their process: answered without them in time, and they come back.

Each test runs twice: with the model in a thread of its worker, where only a new worker helps against a hang, and in a
process of its own, which its worker replaces.
"""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from schemas import topics
from schemas.records import Status
from tests.deployments import Deployed, Toy, deployed
from workers.executors.loop_budget import PROOFS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from schemas.records import Prediction

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLO_MS = 4_000
HUNG_S = 1.5  # a busy machine's usual batch takes less
HICCUP_US = 1_000_000  # by which a busy machine may wake a process late; that it is 0 is a law in virtual time
TOYS = {"moody": Toy("tests.toys:moody", ["fine"]), "steady": Toy("tests.toys:shout", ["fine"])}
APPLICATIONS = {
    "alone": {"models": ["moody"], "policy": "single", "slo_ms": SLO_MS, "default_output": "none"},
    "beside": {"models": ["moody", "steady"], "policy": "exp4", "slo_ms": SLO_MS, "default_output": "none"},
    "without": {"models": ["steady"], "policy": "single", "slo_ms": SLO_MS, "default_output": "none"},
}
BACK_S = 60.0  # a process that died tells nobody: the group waits a session of 10 s for it


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=[0, 1], ids=["thread", "process"])
async def there(
    kafka: Broker, redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Deployed]:
    """Serve a moody model and a steady one; a batch of more than `HUNG_S` counts as hung."""
    prefix, folder = f"bad-models-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("bad-models")
    worker = {"processes": request.param, "patience_s": HUNG_S}
    async with deployed(
        kafka, redis_server.url, prefix, folder, TOYS, APPLICATIONS, partitions=1, worker=worker
    ) as deployment:
        yield deployment


async def ask(there: Deployed, word: str) -> tuple[Prediction, Prediction]:
    """Ask the moody model alone and beside the steady one, while the steady one's neighbours are served in time."""
    asked = [there.client.predict(name, word) for name in ("alone", "beside")]
    near = [there.client.predict("without", f"neighbour {number}") for number in range(8)]
    alone, beside, *neighbours = await asyncio.gather(*asked, *near)
    assert [(p.status, p.answer) for p in neighbours] == [(Status.COMPLETE, f"NEIGHBOUR {n}") for n in range(8)]
    assert all(p.answered_us < p.deadline_us for p in neighbours)
    assert all(p.answered_us < p.deadline_us + HICCUP_US for p in (alone, beside))
    return alone, beside


def outcome(prediction: Prediction) -> tuple[Status, str | None, object]:
    """Return what a caller looks at."""
    return prediction.status, prediction.reason, prediction.answer


async def serves_again(there: Deployed) -> None:
    """Wait until the moody model answers."""
    end = asyncio.get_running_loop().time() + BACK_S
    while outcome(found := await there.client.predict("alone", "fine")) != (Status.COMPLETE, None, "fine"):
        assert asyncio.get_running_loop().time() < end, found
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("word", ["raise", "forget"])
async def test_a_model_that_fails_on_a_row_fails_that_row_only(there: Deployed, word: str) -> None:
    """Whether it raises or returns too few rows, it is asked again without the culprit, at once."""
    pids = there.system.pids
    fine = asyncio.gather(*(there.client.predict("alone", f"fine {number}") for number in range(8)))
    alone, beside = await ask(there, word)
    assert outcome(alone) == (Status.DEFAULT, "model_failed", "none")
    assert outcome(beside) == (Status.PARTIAL, "model_failed", word.upper())
    assert [outcome(p) for p in await fine] == [(Status.COMPLETE, None, f"fine {number}") for number in range(8)]
    assert alone.answered_us < alone.deadline_us - 500_000
    assert there.system.pids == pids
    await there.watch.all_committed("worker.moody", topics.model_queries("moody"))


async def test_a_model_that_hangs_is_replaced(there: Deployed) -> None:
    """Its queries are answered by the deadline without it; nobody has to do anything for it to come back."""
    pids = there.system.pids
    alone, beside = await ask(there, "hang")
    assert outcome(alone) in {(Status.DEFAULT, "deadline", "none"), (Status.DEFAULT, "model_failed", "none")}
    assert outcome(beside)[::2] == (Status.PARTIAL, "HANG")
    await serves_again(there)
    replaced = {name for name, pid in there.system.pids.items() if pids[name] != pid}
    assert replaced == (set() if there.settings.worker.processes else {"worker.moody"})
    await there.watch.all_committed("worker.moody", topics.model_queries("moody"))


async def test_a_model_that_was_quick_and_hangs_is_replaced(there: Deployed) -> None:
    """Its batches have skipped its thread by then, and the event loop itself is held up: its process ends at once."""
    await there.watch.all_committed("worker.moody", topics.model_queries("moody"))
    for number in range(2 * PROOFS):
        assert outcome(await there.client.predict("alone", f"fine {number}"))[0] is Status.COMPLETE
    await test_a_model_that_hangs_is_replaced(there)
    told = there.system.log("worker.moody").read_text()
    assert ("workers.executors.hang_monitor: the model did not answer" in told) != bool(there.settings.worker.processes)


async def test_a_model_that_ends_its_process_is_replaced(there: Deployed) -> None:
    """As a hang, but nobody is left to say goodbye to the group."""
    alone, beside = await ask(there, "die")
    assert outcome(alone)[::2] == (Status.DEFAULT, "none")
    assert outcome(beside)[::2] == (Status.PARTIAL, "DIE")
    await serves_again(there)
    await there.watch.all_committed("worker.moody", topics.model_queries("moody"))
