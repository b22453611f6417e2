"""What a run left behind: the topics from their start, the store as it is, and what was acknowledged."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from contextlib import closing
from itertools import zip_longest
from operator import attrgetter
from typing import TYPE_CHECKING

import redis

from load.harness.wire import Wire
from load.matrix.kinds import kind_of
from load.matrix.mixes import WINDOW_S
from load.matrix.setting import JOINER, PARTITIONS
from schemas import topics
from schemas.codec import Codec
from schemas.records import Feedback, Observation, Observations, Prediction, Report
from streams.runtime.stores.base import unstamped
from streams.runtime.stores.redis import OFFSET_FIELD
from streams.testing.validator import ObservationLog, RunEvidence, Stored
from streams.trace.manifest import TraceError
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from load.harness.wire import Arrival
    from load.matrix.broken import Place

_CODEC = Codec()
_RECORDED = (topics.QUERIES, topics.PREDICTIONS, topics.FEEDBACK, topics.OBSERVATIONS)
_REFUSED = topics.dead_letters(topics.FEEDBACK)
_PROMPT_US = 5_000_000  # far less than a window
_CIRCLE = (topics.QUERIES, topics.MODEL_PREDICTIONS, topics.PREDICTIONS, topics.OBSERVATIONS)


def collected(place: Place, behind: Mapping[str, int], *, is_lossy: bool = False) -> RunEvidence:
    """Return what there is at this moment.

    Args:
        place: where.
        behind: what groups have not committed.
        is_lossy: records were taken away.
    """
    known, kinds = place.traffic.acknowledged, place.traffic.kinds
    mapped = [kind for kind in kinds if kind.answers]
    circle = (*_CIRCLE, *map(topics.model_queries, place.models), *([topics.MAPPING] if mapped else []))
    letters = [topics.dead_letters(name) for name in circle]
    found = _read(place, (*_RECORDED, _REFUSED, *letters, *(kind.answers for kind in mapped)))
    over_s = time.monotonic() - 2 * WINDOW_S
    over = {name for name, answered_s in known.never.items() if answered_s < over_s}
    return RunEvidence(
        asked=frozenset(known.asked | place.door.replied),
        garbage=frozenset(known.garbage),
        told=dict(known.told),
        predictions=[_CODEC.decode(Prediction, each.value) for each in found[topics.PREDICTIONS]],
        log=_log(found[topics.OBSERVATIONS]),
        stored=_stored(place),
        dead=[each.value or b"" for name in letters for each in found[name]],
        window_us=JOINER.memory_us,
        perhaps=frozenset(known.perhaps | place.door.perhaps),
        late=frozenset(known.late | _belated(found[topics.FEEDBACK])),
        stray=frozenset(known.stray),
        expired=frozenset(name for name in over if kind_of(kinds, int(name[1:])).has_default_loss),
        refused=frozenset(_told(found[_REFUSED])),
        replied=frozenset(place.door.replied),
        behind=behind,
        is_lossy=is_lossy,
        mapped=frozenset(kind.application for kind in mapped),
        written=[_written(each) for kind in mapped for each in found[kind.answers]],
        unrecorded=_unrecorded(place.trace, {name: found[name] for name in _RECORDED}),
    )


def refused(place: Place) -> set[str]:
    """Return whose feedback is among the dead letters at this moment."""
    return _told(_read(place, (_REFUSED,))[_REFUSED])


def last_report(place: Place, pid: int) -> Report | None:
    """Return the last report of a process that is ready, if there is one."""
    reports = [_CODEC.decode(Report, each.value) for each in _read(place, (topics.REPORTS,))[topics.REPORTS]]
    own = [each for each in reports if each.gauges.get("pid") == pid and each.gauges.get("partitions")]
    return max(own, key=attrgetter("time_us"), default=None)


def gauged(place: Place, name: str) -> float:
    """Return the sum of what all processes that ever reported have counted under a name, with or without labels."""
    latest: dict[tuple[str, float], float] = {}
    for each in _read(place, (topics.REPORTS,))[topics.REPORTS]:
        report = _CODEC.decode(Report, each.value)
        counted = sum(value for label, value in report.counters.items() if label.partition("{")[0] == name)
        latest[report.instance, report.gauges.get("pid", 0.0)] = counted
    return sum(latest.values())


def values_of(place: Place, topic: str, partition: int) -> list[bytes]:
    """Return what a partition holds at this moment, as consumers are given it."""
    return [each.value or b"" for each in _read(place, (topic,))[topic] if each.partition == partition]


def _told(arrivals: Sequence[Arrival]) -> set[str]:
    return {_CODEC.decode(Feedback, each.value).query_id for each in arrivals}


def _read(place: Place, names: Sequence[str]) -> dict[str, list[Arrival]]:
    found: dict[str, list[Arrival]] = {name: [] for name in names}
    with closing(Wire(place.bootstrap, place.prefix)) as wire:
        wire.follow(names, from_start=True)
        for arrival in wire.written():
            found[arrival.topic].append(arrival)
    return found


def _belated(arrivals: Sequence[Arrival]) -> set[str]:
    """Return whose feedback was long on its way from a topic of others: it may be late."""
    given = ((each.timestamp_us, _CODEC.decode(Feedback, each.value)) for each in arrivals)
    return {told.query_id for at_us, told in given if at_us - told.sent_us > _PROMPT_US}


def _written(arrival: Arrival) -> tuple[str, object]:
    row = json.loads(arrival.value or b"{}")
    return row["id"], row["answer"]


def _log(arrivals: Sequence[Arrival]) -> dict[int, ObservationLog]:
    seen: dict[int, list[tuple[int, Observation]]] = {}
    ends: dict[int, int] = {}
    for arrival in arrivals:
        items = _CODEC.decode(Observations, arrival.value).items
        seen.setdefault(arrival.partition, []).extend((arrival.timestamp_us, each) for each in items)
        ends[arrival.partition] = ends.get(arrival.partition, 0) + 1
    return {number: ObservationLog(seen[number], ends[number]) for number in seen}


def _stored(place: Place) -> dict[int, Stored]:
    """Read Redis without the store that wrote it."""
    found = {}
    with redis.Redis.from_url(place.store_url) as client:
        for number in range(PARTITIONS):
            states: dict[bytes, bytes] = client.hgetall(f"{{{place.prefix}:{number}}}:states")
            offset = states.pop(OFFSET_FIELD.encode(), b"").partition(b":")[0]
            held = {name.decode(): unstamped(value) for name, value in states.items()}
            found[number] = Stored(int(offset) if offset else None, held)
    return found


def _unrecorded(folder: Path, topics_read: Mapping[str, Sequence[Arrival]]) -> dict[str, int]:
    """Return how many records of each topic a trace lacks, or has otherwise: by partition, in order."""
    try:
        trace = Trace.open(folder)
    except TraceError:
        return {name: len(read) for name, read in topics_read.items()}
    return {name: _differing(trace, name, read) for name, read in topics_read.items()}


def _differing(trace: Trace, name: str, read: Sequence[Arrival]) -> int:
    there = defaultdict[int, list[bytes | None]](list)
    recorded = defaultdict[int, list[bytes | None]](list)
    for arrival in read:
        there[arrival.partition].append(arrival.value)
    for record in trace.records(name) if name in trace.topics() else ():
        recorded[record.partition].append(record.value)
    pairs = [pair for number, values in there.items() for pair in zip_longest(values, recorded[number])]
    return sum(ours != its for ours, its in pairs)
