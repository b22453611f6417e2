"""MLCommons' LoadGen as an independent judge: its Server scenario, through Kafka, in an environment of its own.

LoadGen decides when to ask (Poisson), measures by its own clock and decides whether the latency bound held. This file
only carries its queries to Kafka and the answers back.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlperf_loadgen as loadgen
import numpy as np

from load.harness.wire import Wire, linger_ms
from load.harness.workload import Rows
from load.research.peers.loadgen_case import Case, Judgement
from load.research.peers.wire_formats import V2, Avro, Echo
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Feedback, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from load.research.peers.wire_formats import WireFormat
    from schemas.records import Value

_LEAST_QUERIES = 700  # with fewer it cannot be sure of a 99th percentile
_POLL_S = 0.01
_GIVE_UP_S = 10.0


class Courier:
    """Carries queries and answers; LoadGen calls `issue` from a thread of its own."""

    def __init__(self, case: Case) -> None:
        plain = Echo() if case.direct else Avro()
        self._wire_format: WireFormat = V2(case.model) if case.model else plain
        inputs = [Tensor.of(row) for row in np.load(case.rows)]
        labels = np.load(case.labels).tolist() if case.labels else ()
        self._rows = Rows(case.application, inputs, labels, seed=case.seed, slo_ms=case.objective_ms)
        self._open: dict[str, int] = {}
        self._truths: dict[str, Value] = {}
        self._codec = Codec()
        self._defaults: deque[tuple[float, int]] = deque()  # when each is too late, and LoadGen's id
        self._objective_s = case.objective_ms / 1e3
        self._asked = 0
        self._wire = Wire(case.bootstrap, case.prefix, linger_ms=linger_ms(case.rate_per_s))
        self._wire.follow((case.sink,))
        self._stopped = threading.Event()
        self.unanswered = 0
        self.defaults = 0

    def issue(self, samples: list[Any]) -> None:
        """Send LoadGen's queries."""
        for sample in samples:
            query, label = self._rows(self._asked, _now_us())
            self._asked += 1
            if label is not None:
                self._truths[query.query_id] = label
            self._open[query.query_id] = sample.id
            self._wire.produce(
                names.QUERIES, query.query_id.encode(), self._wire_format.query(query), self._wire_format.headers
            )

    def carry(self) -> None:
        """Take answers to LoadGen until stopped; a query without one is given back when it is over.

        A default is no answer: LoadGen gets it when it is too late.
        """
        quiet_s = 0.0
        while not self._stopped.is_set():
            arrived = self._wire.values(_POLL_S)
            quiet_s = 0.0 if arrived else quiet_s + _POLL_S
            _complete([*self._answers(arrived), *self._too_late(time.monotonic())])
            if quiet_s > _GIVE_UP_S:
                self.unanswered += len(self._open)
                _complete(list(self._open.values()))
                self._open.clear()

    def _answers(self, arrived: Iterable[bytes | None]) -> Iterator[int]:
        for value in arrived:
            said = self._wire_format.answer(value or b"")
            sample_id = self._open.pop(said.query_id, None)
            self._tell(said.query_id)
            if sample_id is not None and said.labels:
                yield sample_id
            elif sample_id is not None:
                self.defaults += 1
                self._defaults.append((time.monotonic() + self._objective_s, sample_id))

    def _tell(self, query_id: str) -> None:
        """Send the truth about a query that has been answered."""
        label = self._truths.pop(query_id, None)
        if label is not None:
            feedback = Feedback(query_id, label=label, sent_us=_now_us())
            self._wire.produce(names.FEEDBACK, query_id.encode(), self._codec.encode(feedback), patient=True)

    def _too_late(self, now_s: float) -> Iterator[int]:
        while self._defaults and self._defaults[0][0] <= now_s:
            yield self._defaults.popleft()[1]

    def stop(self) -> None:
        """End `carry`."""
        self._stopped.set()


def main(case: Case) -> None:
    """Judge, and print what came of it as JSON."""
    courier = Courier(case)
    thread = threading.Thread(target=courier.carry)
    thread.start()
    sut = loadgen.ConstructSUT(courier.issue, lambda: None)
    library = loadgen.ConstructQSL(1, 1, lambda _: None, lambda _: None)
    loadgen.StartTestWithLogSettings(sut, library, _settings(case), _logs(case))
    courier.stop()
    thread.join()
    judgement = _read(Path(case.folder) / "mlperf_log_summary.txt", courier)
    sys.stdout.write(json.dumps(asdict(judgement)) + "\n")


def _settings(case: Case) -> Any:
    settings = loadgen.TestSettings()
    settings.scenario = loadgen.TestScenario.Server
    settings.mode = loadgen.TestMode.PerformanceOnly
    settings.server_target_qps = case.rate_per_s
    settings.server_target_latency_ns = int(case.objective_ms * 1e6)
    settings.server_target_latency_percentile = 0.99
    settings.min_duration_ms = int(case.seconds * 1e3)
    settings.min_query_count = _LEAST_QUERIES
    settings.schedule_rng_seed = case.seed
    return settings


def _logs(case: Case) -> Any:
    output = loadgen.LogOutputSettings()
    output.outdir = case.folder
    output.copy_summary_to_stdout = False
    logs = loadgen.LogSettings()
    logs.log_output = output
    logs.enable_trace = False
    return logs


def _read(summary: Path, courier: Courier) -> Judgement:
    """Read LoadGen's summary."""
    lines = (line.partition(":") for line in summary.read_text().splitlines())
    said = {name.strip(): value.strip() for name, _, value in lines}
    return Judgement(
        said["Result is"] == "VALID" and not courier.unanswered,
        float(said["99.00 percentile latency (ns)"]) / 1e6,
        float(said["Completed samples per second"]),
        courier.unanswered,
        courier.defaults,
    )


def _complete(ids: list[int]) -> None:
    if ids:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(sample_id, 0, 0) for sample_id in ids])


def _now_us() -> int:
    return time.time_ns() // 1_000


if __name__ == "__main__":
    main(Case(**json.loads(sys.argv[1])))
