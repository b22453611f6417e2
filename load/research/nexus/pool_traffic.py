"""Ten applications with models each, asked as ten companies were named on Twitter: a day, whose bursts are its own.

Numenta's anomaly benchmark has the counts, five minutes each (NAB, `Twitter_volume_*`, MIT). They are played as they
are, only faster, all by the same factor, so the companies differ as they did. Within a count rows come at random.

Each application asks three models. Their times are those that Clockwork (OSDI'20) published for a V100: nothing is
computed here, time is simulated. Of ResNet-50 all batch sizes are published, of the others the first and the last.
"""

from __future__ import annotations

import csv
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.harness.data import DATA, need
from policies.packing.work import BatchTimes, Work
from workers.simulation.pool import Traffic

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPANIES: Final = ("AAPL", "AMZN", "CRM", "CVS", "FB", "GOOG", "IBM", "KO", "PFE", "UPS")
# A Wednesday, the calmest of nine days that were looked at: its busiest five minutes have 2.1 times the mean. With 6.9
# times (10 March) the planner, which sees a rise only afterwards, stayed under 99 % whatever the hosts.
DAY: Final = datetime(2015, 3, 18)  # noqa: DTZ001 - as the file has it, without a zone
COUNT_S, COUNTS = 300, 288
# Of one V100, batches of 1 (2, 4, 8) and 16 rows (ms).
PUBLISHED_MS: Final = {
    "resnet50": ((1, 2, 4, 8, 16), (2.61, 3.78, 5.61, 9.13, 15.67)),
    "resnet18": ((1, 16), (1.27, 7.02)),
    "resnet152": ((1, 16), (7.71, 44.60)),
    "densenet169": ((1, 16), (5.18, 21.85)),
    "inceptionv3": ((1, 16), (4.46, 26.17)),
    "mobile-pose": ((1, 16), (1.29, 11.62)),
}
EACH: Final = 3  # models of an application
OBJECTIVES_MS: Final = (50.0, 100.0, 200.0)  # by turns
HOPS_MS: Final = 10.0  # of the objective, for the way to the host and back
PARTITIONS: Final = 4
# Sizes of their weights in 32-bit floats (MB), by their published numbers of parameters; a disk reads 500 MB/s.
WEIGHTS_MB: Final = {
    "resnet50": 102,
    "resnet18": 47,
    "resnet152": 241,
    "densenet169": 57,
    "inceptionv3": 109,
    "mobile-pose": 20,
}
LOAD_US_PER_MB: Final = 2_000
MEMORY_BYTES: Final = 10**9  # of a host: a third of all models


class Day(NamedTuple):
    """What is played: its traffic, how long it takes, and the busiest rates that no planner knows beforehand."""

    traffic: Traffic
    until_us: int
    peaks: dict[str, float]


def day(seed: int, hosts: float, speed: float, counts: int = COUNTS) -> Day:
    """Return a day's traffic.

    Args:
        seed: draws when rows come within a count.
        hosts: that full batches of the whole day would take at the mean.
        speed: how many times faster than it was.
        counts: how many five minutes of it.
    """
    random = np.random.default_rng(seed)
    works = [_work(number) for number in range(len(COMPANIES) * EACH)]
    volumes = {work.model: _volumes(COMPANIES[number // EACH], counts) for number, work in enumerate(works)}
    factor = hosts / sum(float(volumes[work.model].mean()) / work.most_per_s for work in works)
    seconds = COUNT_S / speed
    arrivals = {work.model: _drawn(random, volumes[work.model] * factor, seconds, work.partitions) for work in works}
    peaks = {model: float(volume.max()) * factor for model, volume in volumes.items()}
    return Day(Traffic(works, arrivals), int(counts * seconds * 1e6), peaks)


def _work(number: int) -> Work:
    """Return one of the models; which application has it follows from its number."""
    kind, (sizes, took_ms) = [*PUBLISHED_MS.items()][number % len(PUBLISHED_MS)]
    objective_ms = OBJECTIVES_MS[number // EACH % len(OBJECTIVES_MS)] - HOPS_MS
    times = BatchTimes(sizes, tuple(ms * 1e3 for ms in took_ms))
    name = f"{COMPANIES[number // EACH].lower()}-{kind}"
    mb = WEIGHTS_MB[kind]
    return Work(name, 0.0, objective_ms * 1e3, times, mb * 10**6, mb * LOAD_US_PER_MB, PARTITIONS)


def _volumes(company: str, counts: int) -> NDArray[np.float64]:
    """Return the counts of the day."""
    path = DATA / "traces" / "nab" / f"Twitter_volume_{company}.csv"
    need(path)
    with path.open(encoding="utf-8") as file:
        found = [float(row["value"]) for row in csv.DictReader(file) if datetime.fromisoformat(row["timestamp"]) >= DAY]
    return np.array(found[:counts])


def _drawn(
    random: np.random.Generator, per_s: NDArray[np.float64], seconds: float, partitions: int
) -> list[NDArray[np.int64]]:
    """Return when rows come to each partition of a model's topic."""
    numbers = random.poisson(per_s * seconds)
    starts_us = np.repeat(np.arange(len(per_s)) * seconds * 1e6, numbers)
    times_us = np.sort((starts_us + random.random(len(starts_us)) * seconds * 1e6).astype(np.int64))
    parts = random.integers(partitions, size=len(times_us))
    return [times_us[parts == number] for number in range(partitions)]
