"""Who is asked when, on a host: tweets about ten companies, as they were counted, each a query of one of many models.

Numenta's anomaly benchmark has them, five minutes a count (NAB, `Twitter_volume_*`, MIT). Each count becomes so many
queries, evenly over its five minutes, and time is divided: no count is changed, drawn or left out. Each company has as
many models as every other. Which of them a query asks is drawn, by Zipf's law: the data do not say.
"""

from __future__ import annotations

import csv
from collections import OrderedDict
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from load.harness.data import DATA, need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from workers.simulation.host import HostModel

COMPANIES: Final = ("AAPL", "AMZN", "CRM", "CVS", "FB", "GOOG", "IBM", "KO", "PFE", "UPS")
SKEW: Final = 2.5
# Of the models, the share that Azure's functions are compared by: 18.6 % of its applications had 99.6 % of all calls
# (Shahrad et al., Serverless in the Wild, ATC'20). The mix here is less skewed, which is harder for a host.
MOST_ASKED: Final = 0.186
_COUNT_S: Final = 300.0


class Asked(NamedTuple):
    """Queries in order.

    Attributes:
        at_s: when each came, in the trace's time.
        models: the model of each, from 0.
    """

    at_s: NDArray[np.float64]
    models: NDArray[np.int64]

    def share_of_most_asked(self, models: int) -> float:
        """Return the share of queries that the 18.6 % of models have that are asked most."""
        counts = np.sort(np.bincount(self.models, minlength=models))[::-1]
        return float(counts[: round(MOST_ASKED * models)].sum() / counts.sum())


class Played(NamedTuple):
    """Queries at a load.

    Attributes:
        arrivals_us: when each comes.
        speed: how many times faster than counted.
        is_within: which of them come within five counted minutes that ask, as those before them, for no more than
            the load.
    """

    arrivals_us: NDArray[np.int64]
    speed: float
    is_within: NDArray[np.bool_]


def counted() -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Return the counts of each company: when each begins (s since the epoch), and how many tweets there were.

    Raises:
        MissingDataError: they are not there.
    """
    files = [DATA / "traces" / "nab" / f"Twitter_volume_{name}.csv" for name in COMPANIES]
    need(*files)
    found = []
    for file in files:
        with file.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        starts = np.array([datetime.fromisoformat(row["timestamp"] + "+00:00").timestamp() for row in rows])
        found.append((starts, np.array([int(float(row["value"])) for row in rows])))
    return found


def asked(queries: int, models: int, random: np.random.Generator) -> Asked:
    """Return the first `queries`.

    Raises:
        MissingDataError: the counts are not there.
    """
    each = models // len(COMPANIES)
    weights = np.arange(1, each + 1) ** -SKEW
    at, which = [], []
    for company, (starts, counts) in enumerate(counted()):
        places = np.concatenate([np.arange(count) for count in counts])
        at.append(np.repeat(starts, counts) + _COUNT_S * places / np.repeat(counts, counts))
        drawn = random.choice(each, size=int(counts.sum()), p=weights / weights.sum())
        which.append(company * each + drawn)
    at_s = np.concatenate(at)
    order = np.argsort(at_s, kind="stable")[:queries]
    return Asked(at_s[order] - at_s[order[0]], np.concatenate(which)[order])


def played(its: Asked, models: Sequence[HostModel], budget_bytes: int, load: float, *, loads_beside: bool) -> Played:
    """Return the queries so fast that they ask for that much of what the host can do, on average.

    What a query asks for is what its model takes for one row; batches make it less. A query whose model would not be in
    memory, if the most recently asked ones were, asks for loading it, too: by itself, or after the row.
    """
    row_us = np.array([model.service.sampler(np.random.default_rng(0))(1) for model in models])[its.models]
    load_us = np.array([model.load_us for model in models])[its.models] * _missed(its, models, budget_bytes)
    buckets = (its.at_s // _COUNT_S).astype(int)
    rows_us, loads_us = (np.bincount(buckets, weights=work) for work in (row_us, load_us))
    work_us = np.maximum(rows_us, loads_us) if loads_beside else rows_us + loads_us
    total_us = max(row_us.sum(), load_us.sum()) if loads_beside else row_us.sum() + load_us.sum()
    speed = float(its.at_s[-1] * 1e6 / (total_us / load))
    is_within = work_us <= load * _COUNT_S * 1e6 / speed
    is_within[1:] &= is_within[:-1].copy()
    return Played((its.at_s * 1e6 / speed).astype(np.int64), speed, is_within[buckets])


def _missed(its: Asked, models: Sequence[HostModel], budget_bytes: int) -> NDArray[np.bool_]:
    """Return which queries' models are not among the most recently asked that the budget holds."""
    resident: OrderedDict[int, int] = OrderedDict()
    used = 0
    missed = np.zeros(len(its.models), bool)
    for place, model in enumerate(its.models.tolist()):
        if model in resident:
            resident.move_to_end(model)
            continue
        missed[place] = True
        resident[model] = models[model].bytes
        used += models[model].bytes
        while used > budget_bytes:
            used -= resident.popitem(last=False)[1]
    return missed
