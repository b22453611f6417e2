"""Rows of a file are answered as a deployment answers them: by the policy as it has learnt, by the same draws."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from aiokafka import AIOKafkaConsumer
from click.testing import CliRunner
from confluent_kafka import Producer

from deploy.cli import skysail
from deploy.scoring.chunks import Chunks
from deploy.scoring.topic import TopicSink
from schemas import topics
from schemas.records import Observations
from tests.deployments import PATIENT_MS, Toy, deployed
from workers.packages.packaging import package_function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from deploy.local.redis import RedisServer
    from deploy.local.services import Broker
    from tests.deployments import Deployed

SAMPLE = np.ones((2, 2), dtype=np.float32)
MODELS = {"right": Toy("tests.toys:parity", SAMPLE), "wrong": Toy("tests.toys:contrary", SAMPLE)}
LESSONS, ROWS = 60, 40


async def taught(there: Deployed) -> None:
    """Ask and tell what was right, until all of it is learnt and selection goes by it."""
    for number in range(LESSONS):
        found = await there.client.predict("parity", np.array([number, 1], np.float32), query_id=f"l{number}")
        await there.client.feedback(found.query_id, label=(number + 1) % 2)

    def learnt() -> bool:
        return sum(len(each.items) for each in there.watch.decoded(Observations, topics.OBSERVATIONS)) >= LESSONS

    await there.watch.until(learnt, "all is taught")
    async with asyncio.timeout(60):
        while True:
            found = await there.client.predict("parity", np.array([1, 1], np.float32))
            if found.decision is not None and found.decision.state_version == LESSONS:
                return


def config(there: Deployed, folder: Path) -> Path:
    """Write settings for the command line."""
    path = folder / "skysail.yaml"
    path.write_text(json.dumps({
        "prefix": there.settings.prefix, "kafka": {"bootstrap": there.settings.kafka.bootstrap},
        "redis": {"url": there.settings.redis.url},
    }))  # fmt: skip
    return path


async def run(*arguments: object) -> Any:
    """Run a command; returns what it says as JSON."""
    runner = CliRunner(env=dict(os.environ))
    result = await asyncio.to_thread(runner.invoke, skysail, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


async def test_a_file_is_answered_as_the_deployment_answers(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """The same models are drawn for the same ids in the same state, with the same answers and probabilities."""
    served = {"parity": {"models": [*MODELS], "policy": "exp3", "slo_ms": PATIENT_MS}}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served) as there:
        await taught(there)
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(f'{{"order": "o{n}", "a": {n}, "b": 2}}\n' for n in range(ROWS)))
        out, settings = tmp_path / "out.jsonl", config(there, tmp_path)
        report = await run(
            "score",
            path,
            "--application",
            "parity",
            "--input",
            "a,b",
            "--id",
            "order",
            "--out",
            out,
            "--config",
            settings,
        )
        assert (report["rows"], report["defaults"]) == (ROWS, {})
        scored = [json.loads(line) for line in out.read_text().splitlines()]
        for number, row in enumerate(scored):
            found = await there.client.predict("parity", np.array([number, 2], np.float32), query_id=f"o{number}")
            assert found.decision is not None
            assert (row["id"], row["answer"]) == (found.query_id, found.answer)
            assert row["state_version"] == found.decision.state_version == LESSONS
            assert row["model"] == found.decision.arms[found.decision.chosen[0]]
            assert row["propensity"] == found.decision.propensities[found.decision.chosen[0]]
        assert {row["model"] for row in scored} == {*MODELS}
        named = tmp_path / "named.csv"
        await run("score", path, "--model", "wrong@1", "--input", "a,b", "--out", named, "--config", settings)
        assert [int(line.split(",")[4]) for line in named.read_text().splitlines()[1:]] == [
            1 - (number + 2) % 2 for number in range(ROWS)
        ]


async def test_what_was_asked_and_learnt_is_a_dataset(
    kafka: Broker, redis_server: RedisServer, prefix: str, tmp_path: Path
) -> None:
    """A row for each answer, with its input, its decision and its label; a trace gives the same as the topics."""
    served = {"parity": {"models": [*MODELS], "policy": "exp3", "slo_ms": PATIENT_MS}}
    async with deployed(kafka, redis_server.url, prefix, tmp_path, MODELS, served) as there:
        await taught(there)
        settings, out, trace = config(there, tmp_path), tmp_path / "data", tmp_path / "trace"
        options = ("--application", "parity", "--form", "jsonl", "--config", settings)
        report = await run("dataset", *options, "--since", "1h", "--out", out)
        assert report["labelled"] == LESSONS
        assert report["without_input"] == 0
        rows = [json.loads(line) for name in report["files"] for line in (out / name).read_text().splitlines()]
        labelled = {row["query_id"]: row for row in rows if row["label"] is not None}
        assert {*labelled} == {f"l{number}" for number in range(LESSONS)}
        for number in range(LESSONS):
            row = labelled[f"l{number}"]
            assert (row["input"], row["label"]) == ([number, 1], (number + 1) % 2)
            assert row["loss"] == float(row["answer"] != row["label"])
            assert row["propensity"] == row["propensities"][row["arms"].index(row["chosen"][0])]
        assert [row["state_version"] for row in labelled.values()].count(0) >= 1
        command = [sys.executable, "-m", "deploy.cli", "record", str(trace), "--config", str(settings)]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        again = await run("dataset", *options, "--trace", trace, "--out", tmp_path / "again")
        lines = {line for name in again["files"] for line in (tmp_path / "again" / name).read_text().splitlines()}
        assert lines == {json.dumps(row) for row in rows}


class KilledError(Exception):
    """Stands for a kill."""


def produced(kafka: Broker, topic: str, values: Sequence[bytes]) -> None:
    """Write records as their makers do."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, b"k%d" % number)
    assert producer.flush(10) == 0


async def committed(kafka: Broker, topic: str, count: int) -> list[Any]:
    """Return the records of a topic that stand in finished transactions, once there are so many."""
    reader = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.bootstrap,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    await reader.start()
    found: list[Any] = []
    try:
        async with asyncio.timeout(60):
            while len(found) < count:
                for records in (await reader.getmany(timeout_ms=200)).values():
                    found += records
        found += [one for records in (await reader.getmany(timeout_ms=500)).values() for one in records]
    finally:
        await reader.stop()
    return found


@pytest.mark.parametrize("before", [True, False])
async def test_a_topic_is_scored_into_another_once_although_it_was_killed(
    kafka: Broker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, before: bool
) -> None:
    """Whether the kill comes before the transaction or between it and the manifest: each row is there once."""
    package_function("tests.toys:parity", tmp_path / "parity", "parity", "1", SAMPLE)
    source, target = f"{prefix}-orders", f"{prefix}-scored"
    await asyncio.to_thread(kafka.create_topics, {source: 2, target: 3})
    rows = [json.dumps({"a": number, "b": 1}).encode() for number in range(ROWS)]
    await asyncio.to_thread(produced, kafka, source, [*rows, b"no JSON"])
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "skysail.yaml"
    settings.write_text(json.dumps({"prefix": prefix, "kafka": {"bootstrap": kafka.bootstrap}}))
    arguments = (
        "score", f"topic:{source}", "--package", tmp_path / "parity", "--input", "a,b", "--out", f"topic:{target}",
        "--chunk-rows", 7, "--since", "1h", "--config", settings,
    )  # fmt: skip
    kept: dict[str, Callable[..., None]] = {"_write": TopicSink._write, "add": Chunks.add}

    def add(self: Any, chunk: Any) -> None:
        if not before and len(self.done) == 2:
            raise KilledError
        kept["add"](self, chunk)

    def write(self: Any, *given: Any) -> None:
        if before and given[1] == 2:
            raise KilledError
        kept["_write"](self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(TopicSink, "_write", write)
        patched.setattr(Chunks, "add", add)
        with pytest.raises(KilledError):
            await run(*arguments)
    report = await run(*arguments)
    assert report["rows"] == ROWS + 1
    assert report["resumed_rows"] >= 14
    assert report["defaults"] == {"unreadable": 1}
    records = await committed(kafka, target, ROWS + 1)
    found = [json.loads(record.value) for record in records]
    assert len(found) == len({row["id"] for row in found}) == ROWS + 1
    answers = {row["a"]: row["answer"] for row in found if row["reason"] is None}
    assert answers == {number: (number + 1) % 2 for number in range(ROWS)}
    assert {record.key for record in records} == {b"k%d" % number for number in range(ROWS + 1)}
