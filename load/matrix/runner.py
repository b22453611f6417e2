"""The one runner: progress, a blow, service again, nobody behind; row after row, then the validator.

A row's blow comes only when what was asked since the last one is answered completely in every partition.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from load.harness import topics as made
from load.harness.http import free_port
from load.harness.progress import say
from load.harness.proxy import Proxy
from load.matrix.broken import LOSSY, NOTHING, Place
from load.matrix.door import Door
from load.matrix.evidence import collected
from load.matrix.groups import Groups
from load.matrix.mixes import PLAIN, SLO_MS, WINDOW_S, mix_of
from load.matrix.services import BROKERS, port
from load.matrix.setting import PARTITIONS, deployment, port_of, reads, trace_folder
from load.matrix.traffic import Promised, Traffic
from load.matrix.unclean import paired
from schemas import topics
from streams.testing.validator import doubled, faults

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from load.harness.system import Stage
    from load.matrix.broken import Broken
    from load.matrix.mixes import Mix

_LOOK_S: Final = 0.1
SERVED_S: Final = 90.0  # after a blow, on a busy machine
LAG_S: Final = 60.0
_LOSSY_S: Final = 10.0  # for last answers where queries went away that nobody will answer
_WAITING: Final = f"joiner at {topics.PREDICTIONS}"  # predictions wait for their feedback, and are committed after that


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it was run.

    Attributes:
        name: of the row.
        part: that it belongs to.
        blow_s: how long the blow took.
        served_s: from its end until all partitions were answered completely again; None = they were not.
        caught_up_s: from its end until all groups had committed what there was then.
        complete: share of the queries asked meanwhile whose answers are complete.
        ended: processes that ended beside those that were ended, and how often.
        faults: what is wrong, in sentences.
        seen: figures of the blow itself.
    """

    name: str
    part: str
    blow_s: float
    served_s: float | None
    caught_up_s: float
    complete: float
    ended: dict[str, int]
    faults: tuple[str, ...]
    seen: dict[str, float] = field(default_factory=dict)

    def plain(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Judged:
    """What the validator says of a deployment after its rows."""

    rows: tuple[Row, ...]
    faults: tuple[str, ...]
    doubled: dict[str, int]
    counts: dict[str, int]

    def series(self) -> list[dict[str, Any]]:
        """Return the rows as plain values."""
        return [row.plain() for row in self.rows]


async def struck(
    stage: Stage, name: str, rows: Sequence[Broken], *, brokers: int = BROKERS, is_patient: bool = True
) -> Judged:
    """Run rows one after the other on one deployment, and judge what is left.

    Args:
        stage: where.
        name: of the deployment: a part, where its rows are all of one.
        rows: in order.
        brokers: how many, and copies of each topic.
        is_patient: whether the last windows are waited for, too.
    """
    async with placed(stage, name, brokers, mix_of(name, is_short=stage.short)) as (place, groups):
        done = []
        for number, row in enumerate(rows, start=1):
            done.append(its := await run_row(place, groups, row))
            say("matrix", f"{number} of {len(rows)}, {_line(its)}")
        return await judged(place, groups, done, is_lossy=any(row.part in LOSSY for row in rows), is_patient=is_patient)


@asynccontextmanager
async def placed(
    stage: Stage, name: str, count: int = BROKERS, mix: Mix = PLAIN
) -> AsyncIterator[tuple[Place, Groups]]:
    """Start brokers, two Redis, the proxy before them, the roles and the traffic, for the time of a block."""
    folder = stage.folder / name
    folder.mkdir()
    ports = [free_port() for _ in range(count)]
    with ExitStack() as undo:
        redis = undo.enter_context(stage.redis())
        second = undo.enter_context(stage.redis(redis))
        proxy = undo.enter_context(Proxy([*ports, port(redis.url)]))
        brokers = undo.enter_context(
            stage.brokers(count, bench=mix.rate > PLAIN.rate, through={p: proxy.doors[p] for p in ports})
        )
        bootstrap = ",".join(f"127.0.0.1:{proxy.doors[its]}" for its in ports)
        store = redis.url.replace(f":{port(redis.url)}/", f":{proxy.doors[port(redis.url)]}/")
        asked = deployment(mix, made.new_prefix("matrix"), folder, bootstrap, store, count)
        made.kept(bootstrap, asked.prefix, dict.fromkeys(mix.topics, PARTITIONS), count)
        if mix.is_paired:
            paired(bootstrap, asked.prefix)
        async with stage.launch(asked) as system:
            promised = Promised(SLO_MS / 1e3, PARTITIONS, WINDOW_S)
            traffic = Traffic(bootstrap, asked.prefix, mix.kinds, mix.rate, mix.delays, promised)
            door = Door(port_of(asked, "gateway"), mix.kinds[0].application)
            place = Place(
                asked.prefix,
                bootstrap,
                store,
                system,
                brokers,
                redis,
                traffic,
                tuple(asked.models),
                door,
                trace_folder(folder),
                port_of(asked, "control"),
                stage.short,
                proxy,
                second,
            )
            groups = await asyncio.to_thread(Groups, bootstrap, asked.prefix, reads(mix))
            say("matrix", f"{name}: {len(system.pids)} processes on {count} brokers are up")
            traffic.start()
            try:
                async with door.asking():
                    yield place, groups
            finally:
                await asyncio.to_thread(traffic.stop)


async def run_row(place: Place, groups: Groups, row: Broken) -> Row:
    """Run one row."""
    found, seen = list[str](), NOTHING
    if await _until(partial(place.traffic.serves, place.traffic.sent), SERVED_S) is None:
        found.append(f"no progress within {SERVED_S:g} s before it")
    before, since, began_s = dict(place.system.restarts), place.traffic.sent, time.monotonic()
    try:
        seen = await row.blow(place) or NOTHING
    except Exception as error:  # noqa: BLE001 - the system is being broken: whatever is raised is a finding
        found.append(f"{type(error).__name__}: {error}")
    found += seen.faults
    blow_s, over, over_s = time.monotonic() - began_s, place.traffic.sent, time.monotonic()
    caught_up = asyncio.create_task(_caught_up(groups, over_s))
    served_s = await _until(partial(place.traffic.serves, over), SERVED_S)
    again = place.traffic.sent
    if served_s is None:
        found.append(f"not served again within {SERVED_S:g} s")
    if row.works is not None and (fault := await _until_whole(partial(row.works, place, over_s), SERVED_S)):
        found.append(f"does not work again within {SERVED_S:g} s: {fault}")
    caught_up_s, behind = await caught_up
    found += [f"{where} is {count} records behind after {LAG_S:g} s" for where, count in behind.items()]
    expected = {place.process(role) for role in row.ends}
    restarts = {name: count - before.get(name, 0) for name, count in place.system.restarts.items()}
    ended = {name: count - (name in expected) for name, count in restarts.items() if count > (name in expected)}
    await _until(partial(place.traffic.has_answered, since, again), 2 * SLO_MS / 1e3)  # what is due by then
    complete = place.traffic.share_complete(since, again)
    return Row(row.name, row.part, blow_s, served_s, caught_up_s, complete, ended, tuple(found), {**seen.figures})


async def _caught_up(groups: Groups, since_s: float) -> tuple[float, dict[str, int]]:
    behind = await asyncio.to_thread(groups.caught_up, LAG_S, _WAITING)
    return time.monotonic() - since_s, behind


async def _until(condition: Callable[[], bool], patience_s: float) -> float | None:
    """Wait for a condition; returns how long that took, None where it did not come true."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > patience_s:
            return None
        await asyncio.sleep(_LOOK_S)
    return time.monotonic() - began_s


async def _until_whole(look: Callable[[], str], patience_s: float) -> str:
    """Wait until a look, which takes its time, finds no fault; returns the last one."""
    end_s = time.monotonic() + patience_s
    while (fault := await asyncio.to_thread(look)) and time.monotonic() < end_s:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    return fault


async def judged(
    place: Place, groups: Groups, rows: Sequence[Row], *, is_lossy: bool, is_patient: bool = True
) -> Judged:
    """Ask no more, wait for the last truth, and let the validator judge until it finds nothing, a minute at most."""
    traffic = place.traffic
    await place.door.enough()
    await asyncio.to_thread(traffic.enough)
    await _until(traffic.settled, _LOSSY_S if is_lossy else LAG_S + 2 * SERVED_S)
    end_s = time.monotonic() + LAG_S
    without = "" if is_patient else _WAITING
    behind = await asyncio.to_thread(groups.caught_up, WINDOW_S + LAG_S, without)
    while True:
        evidence = await asyncio.to_thread(collected, place, behind, is_lossy=is_lossy)
        if not (found := faults(evidence)) or time.monotonic() > end_s:
            break
        await asyncio.sleep(2)
    known = traffic.acknowledged
    counts = {
        "queries": len(known.asked),
        "garbage": len(known.garbage),
        "feedback": len(known.told) + len(known.stray),
        "answered": len({each.query_id for each in evidence.predictions}),
        "joined": sum(len(log.observations) for log in evidence.log.values()),
        "dead_letters": len(evidence.refused) + len({*evidence.dead}),
        "unacknowledged": len(known.perhaps),
        "records_behind": sum(behind.values()),
    }
    return Judged(tuple(rows), tuple(found), doubled(evidence), counts)


def _line(row: Row) -> str:
    ended = f", ended {row.ended}" if row.ended else ""
    wrong = "".join(f"; {fault}" for fault in row.faults)
    served = "never served again" if row.served_s is None else f"served after {row.served_s:.1f} s"
    times = f"{served}, caught up after {row.caught_up_s:.1f} s"
    return f"{row.name}: {row.blow_s:.1f} s, {times}, {row.complete:.1%} complete{ended}{wrong}"
