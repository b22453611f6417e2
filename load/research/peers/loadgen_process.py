"""MLCommons' LoadGen as an independent judge: its Server scenario, through Kafka, in an environment of its own.

LoadGen decides when to ask (Poisson), measures by its own clock and decides whether the latency bound held. This file
only carries its queries to Kafka and the answers back. It shares the cores with what is judged, so it makes records
from templates and reads of answers no more than whose they are and whether they are defaults.
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
from load.research.harness.templates import ids, template
from load.research.peers.loadgen_case import Case, Judgement
from load.research.peers.wire_formats import V2, Avro, Echo
from schemas import topics as names
from schemas.codec import Codec
from schemas.records import Feedback, Query, Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from load.research.harness.templates import Fill
    from load.research.peers.wire_formats import WireFormat
    from schemas.records import Value

_LEAST_QUERIES = 700  # with fewer it cannot be sure of a 99th percentile
_POLL_S = 0.01
_GIVE_UP_S = 10.0
_UNKNOWN: tuple[None, int] = None, 0  # what is open about an answered query, or a stranger's


class Courier:
    """Carries queries and answers; LoadGen calls `issue` from a thread of its own."""

    def __init__(self, case: Case) -> None:
        plain = Echo() if case.direct else Avro()
        self._wire_format: WireFormat = V2(case.model) if case.model else plain
        self._queries = [self._wire_format.template(query) for query in _queries(case)]
        self._truths = _truths(np.load(case.labels).tolist()) if case.labels else []
        self._ids = ids(case.seed)
        self._open: dict[str, tuple[int, int]] = {}  # LoadGen's id, and which row was asked about
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
            key, row = next(self._ids), self._asked % len(self._queries)
            self._asked += 1
            self._open[key.decode()] = sample.id, row
            self._wire.produce(names.QUERIES, key, self._queries[row](key, _now_us()), self._wire_format.headers)

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
                _complete([sample_id for sample_id, _ in self._open.values()])
                self._open.clear()

    def _answers(self, arrived: Iterable[bytes | None]) -> Iterator[int]:
        for value in arrived:
            query_id, is_default = self._wire_format.peek(value or b"")
            sample_id, row = self._open.pop(query_id, _UNKNOWN)
            if sample_id is None:
                continue
            if self._truths:
                self._tell(query_id.encode(), row)
            if not is_default:
                yield sample_id
                continue
            self.defaults += 1
            self._defaults.append((time.monotonic() + self._objective_s, sample_id))

    def _tell(self, key: bytes, row: int) -> None:
        """Send the truth about a query that has been answered."""
        self._wire.produce(names.FEEDBACK, key, self._truths[row](key, _now_us()), patient=True)

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


def _queries(case: Case) -> Iterator[Query]:
    """Yield a query about each row, which is to get an id and a time."""
    for row in np.load(case.rows):
        yield Query("", case.application, Tensor.of(row), slo_ms=case.objective_ms)


def _truths(labels: Sequence[Value]) -> list[Fill]:
    """Return a template for each label of the feedback that tells it."""
    codec = Codec()
    made = {label: _truth(codec, label) for label in set(labels)}
    return [made[label] for label in labels]


def _truth(codec: Codec, label: Value) -> Fill:
    return template(lambda query_id, time_us: codec.encode(Feedback(query_id, label=label, sent_us=time_us)))


def _complete(sample_ids: list[int]) -> None:
    if sample_ids:
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(sample_id, 0, 0) for sample_id in sample_ids])


def _now_us() -> int:
    return time.time_ns() // 1_000


if __name__ == "__main__":
    main(Case(**json.loads(sys.argv[1])))
