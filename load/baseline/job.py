"""The argument of a hand loop (JSON), and the line that it prints at its end (JSON)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Of arithmetic, as workers have: a second one spins beside a product of 64 columns (measured: 32 to
# 62 us a query instead of 28 to 40).
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Job:
    """One loop: read `count` records of `source`, answer each on `sink`; 0 = go on until terminated."""

    bootstrap: str
    source: str
    sink: str
    count: int = 0
    model: str = ""  # joblib file of an estimator; empty = pass the bytes on
    batched: bool = True  # aiokafka: create_batch()/send_batch() instead of send()
    linger_ms: int = 0  # of the producer
    codec: bool = False  # Skysail's codec and the model as arrays, instead of fastavro and scikit-learn
    number: int = 0  # of the loops that read the same source, one after the other, for the same sink

    @property
    def group(self) -> str:
        """The consumer group: one for each loop, so that every one reads the whole source."""
        return f"{self.sink}.hand-loop-{self.number}"

    @classmethod
    def from_arguments(cls) -> Job:
        """Read the job from the command line."""
        return cls(**json.loads(sys.argv[1]))


@dataclass(frozen=True, slots=True)
class Done:
    """The loop's own measurement: from its first record to the last acknowledgement."""

    rows: int
    wall_s: float
    cpu_s: float

    def say(self) -> None:
        """Print as the line that `run` reads."""
        sys.stdout.write(json.dumps(asdict(self)) + "\n")


async def start(module: str, job: Job) -> asyncio.subprocess.Process:
    """Start a loop in a process of its own, with one arithmetic thread, in a session of its own as every role has.

    Linux shares busy cores among sessions first (autogroup). Three hops in one session with the harness would leave the
    broker half of the cores. Eight roles with a session each leave it a ninth.
    """
    arguments = (sys.executable, "-m", f"load.baseline.{module}", json.dumps(asdict(job)))
    return await asyncio.create_subprocess_exec(
        *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ, **ONE_THREAD}, start_new_session=True
    )


async def run(module: str, job: Job, timeout_s: float = 120.0) -> Done:
    """Run a loop to its end.

    Raises:
        TimeoutError: it did not finish; it has been killed.
        RuntimeError: it failed; its own message is on stderr.
    """
    process = await start(module, job)
    try:
        async with asyncio.timeout(timeout_s):
            output, _ = await process.communicate()
    finally:
        await stop((process,))
    if process.returncode != 0:
        raise RuntimeError(f"the hand loop {module} ended with {process.returncode}")
    return Done(**json.loads(output))


async def stop(processes: Sequence[asyncio.subprocess.Process]) -> None:
    """Terminate what still runs and wait for it."""
    for process in processes:
        if process.returncode is None:
            process.kill()
    for process in processes:
        await process.wait()
