"""`hostile`: every attack and accident of `load.hostile`, one after the other, while an honest client goes on asking.

No client, no broker and no mistake of an operator may end a role or leave an honest query without an answer. None may
change a state other than by feedback, or take memory that is not freed.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from load.figures import FAULTS, MIB, NONE, SHOWN, SHOWN_MIB, Better, Figures, Kind, at_least, at_most
from load.harness import topics as made
from load.harness.driving import deployed
from load.harness.progress import say
from load.hostile.accidents import ACCIDENTS
from load.hostile.arena import Arena
from load.hostile.doors import DOORS
from load.hostile.floods import FLOODS
from load.hostile.honest import honest
from load.hostile.records import RECORDS
from load.hostile.setting import HONEST, PARTITIONS, deployment, row
from load.hostile.surroundings import BESIDE
from load.hostile.watch import Before, DeadLetters, Learnt
from load.results.results import Result
from load.results.tables import Table
from load.scenario import Scenario
from schemas import topics
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from load.harness.system import Stage
    from load.hostile.arena import Attack
    from load.hostile.honest import Honest

NAME = "hostile"
_say = partial(say, NAME)
ATTACKS: Mapping[str, Attack] = {attack.name: attack for attack in (*RECORDS, *FLOODS, *DOORS, *ACCIDENTS, *BESIDE)}
PARTS = tuple(ATTACKS)
SHORT = ("key", "java-only-stored", "quadratic", "vast-tensor", "one-id-twice", "strange-keys", "http-bombs")
_LEARN_S = 6.0  # until the honest application knows its models, and its caches are warm
_SETTLE_S = 2.0
_COLUMNAR = 0.5  # the share of the attacks that meet columns
_READ = (topics.QUERIES, topics.FEEDBACK, topics.PREDICTIONS, topics.MODEL_PREDICTIONS, topics.OBSERVATIONS)


@dataclass(frozen=True, slots=True)
class Blow:
    """One attack as it was struck: when, and what it cost beside answers.

    Attributes:
        name: of the attack.
        from_us: from when on answers count.
        struck_us: when it began.
        until_us: when it was no longer watched.
        ended: roles that ended and were not to, and how often.
        grown_mib: the most memory of any role over what it had, and whose.
        dead: dead letters by cause.
        refused: what the broker did not take, by error.
        faults: what is wrong, in sentences: states that are no fold, and what the attack itself has seen.
    """

    name: str
    struck_us: int
    from_us: int
    until_us: int
    ended: Mapping[str, int]
    grown_mib: float
    grown_role: str
    dead: Mapping[str, int]
    refused: Mapping[str, int]
    faults: Sequence[str]


@dataclass(frozen=True, slots=True)
class _Watchers:
    """Whoever looks on while an attack is struck."""

    arena: Arena
    client: Honest
    dead: DeadLetters
    learnt: Learnt

    async def struck(self, attack: Attack) -> Blow:
        """Strike, watch, and note what it cost."""
        now_us = SystemClock().now_us
        before, started_us = Before.of(self.arena), now_us()
        self.arena.refused.clear()
        seen = await _strike(attack, self.arena)
        await asyncio.sleep(attack.watch_s)
        until_us = now_us()
        role, grown = max(before.grown(self.arena).items(), key=lambda each: each[1], default=("", 0))
        ended = before.ended(self.arena, attack.ends)
        faults = [*([seen] if seen else []), *await self._faults()]
        await asyncio.sleep(_SETTLE_S)
        return Blow(
            attack.name,
            started_us,
            started_us + int(attack.blow_s * 1e6),
            until_us,
            ended,
            grown / 2**20,
            role,
            dict(await asyncio.to_thread(self.dead.take)),
            dict(self.arena.refused),
            faults,
        )

    async def _faults(self) -> list[str]:
        try:
            return await self.learnt.faults()
        except TimeoutError as error:
            return [str(error)]


async def _strike(attack: Attack, arena: Arena) -> str | None:
    """Strike; an attack that could not be carried out is reported, and does not count as passed."""
    try:
        return await attack.strike(arena)
    except Exception as error:  # noqa: BLE001 - the system is being broken: whatever is raised is a finding
        return f"{type(error).__name__}: {error}"


FIGURES = Figures(
    SHOWN("attacks", "queries_sent", "*_in_time"),
    FAULTS("unanswered", "roles_ended", "faults", must=NONE),
    Kind("", Better.HIGHER, 0.0, 0.01)("least_in_time", must=at_least(0.99)),
    MIB("most_grown_mib", must=at_most(64)),
    MIB("*_grown_mib"),
    SHOWN_MIB("*_kept_mib"),
)


@dataclass(frozen=True, slots=True)
class _Struck:
    """What the attacks on one deployment have cost: a row each, honest queries, and memory that roles have kept."""

    rows: list[dict[str, Any]]
    sent: int
    unanswered: int
    kept_mib: Mapping[str, float]


async def run(stage: Stage) -> Result:
    """Strike the chosen attacks, or all: each by columns or by Python alone, as its name and the seed draw."""
    chosen = [ATTACKS[name] for name in (stage.only or (SHORT if stage.short else PARTS))]
    began_s = time.monotonic()
    ways = {way: [each for each in chosen if is_columnar(each.name, stage.seed) is way] for way in (True, False)}
    struck = [await _struck(stage, attacks, is_columnar=way) for way, attacks in ways.items() if attacks]
    rows = [row for each in struck for row in each.rows]
    kept = [(role, grown) for each in struck for role, grown in each.kept_mib.items()]
    return Result(
        NAME,
        figures=_figures(rows, sum(each.sent for each in struck), sum(each.unanswered for each in struck))
        | {f"{role}_kept_mib": grown for role, grown in sorted(kept)},  # the larger one
        parameters={
            "form": stage.form if not stage.only else ",".join(stage.only),
            "seed": stage.seed,
            "seconds": time.monotonic() - began_s,
        },
        series={"attacks": rows},
        notes=_notes(rows),
    )


def is_columnar(attack: str, seed: int) -> bool:
    """Draw whether an attack meets a deployment that goes by columns."""
    return Random(f"columns {attack} {seed}").random() < _COLUMNAR  # noqa: S311


async def _struck(stage: Stage, chosen: Sequence[Attack], *, is_columnar: bool) -> _Struck:
    """Strike attacks on a deployment of their own."""
    folder = stage.folder / _way(is_columnar).replace(" ", "-")
    folder.mkdir()
    asked = deployment(made.new_prefix(NAME), folder, stage.processes, is_columnar=is_columnar)
    async with deployed(stage, asked) as driver:
        await driver.greet(HONEST, row(1))
        arena = Arena(stage, asked.prefix, driver.system, asked.settings)
        idle = Before.of(arena).rss_bytes
        with (
            honest(stage.bootstrap, asked.prefix, HONEST) as client,
            closing(DeadLetters(arena, _READ)) as dead,
            closing(Learnt(arena, PARTITIONS)) as learnt,
        ):
            await asyncio.sleep(_LEARN_S)
            watchers = _Watchers(arena, client, dead, learnt)
            blows = []
            for number, attack in enumerate(chosen, start=1):
                blows.append(blow := await watchers.struck(attack))
                _say(f"{number} of {len(chosen)}, {_way(is_columnar)}, {_line(blow, client)}")
            await asyncio.to_thread(client.stop)
            rows = [{**_row(blow, client), "by_columns": is_columnar} for blow in blows]
            total = client.between(client.start_us, SystemClock().now_us())
        after = Before.of(arena).rss_bytes
    kept_mib = {role: (after[role] - before) / 2**20 for role, before in idle.items() if role in after}
    return _Struck(rows, total.sent, total.sent - total.answered, kept_mib)


def _figures(rows: Sequence[Mapping[str, Any]], sent: int, unanswered: int) -> dict[str, float]:
    return {
        "attacks": len(rows),
        "queries_sent": sent,
        "unanswered": unanswered,
        "roles_ended": sum(row["ended_roles"] for row in rows),
        "faults": sum(len(row["faults"]) for row in rows),
        "least_in_time": min(row["in_time"] for row in rows),
        "most_grown_mib": max(row["grown_mib"] for row in rows),
        **{f"{row['name']}_in_time": row["in_time"] for row in rows},
        **{f"{row['name']}_grown_mib": row["grown_mib"] for row in rows},
    }


def _row(blow: Blow, client: Honest) -> dict[str, Any]:
    outside, whole = client.between(blow.from_us, blow.until_us), client.between(blow.struck_us, blow.until_us)
    return {
        **asdict(blow),
        "in_time": outside.share,
        "sent": whole.sent,
        "unanswered": whole.sent - whole.answered,
        "wrong": outside.wrong / max(1, outside.answered),
        "ended_roles": sum(blow.ended.values()),
    }


def _way(is_columnar: object) -> str:
    return "by columns" if is_columnar else "by Python"


def _line(blow: Blow, client: Honest) -> str:
    row = _row(blow, client)
    ended = f", ended {', '.join(blow.ended)}" if blow.ended else ""
    faults = "".join(f"; {fault}" for fault in blow.faults)
    answers = f"{row['in_time']:.2%} of {row['sent']} in time"
    return f"{blow.name}: {answers}, +{blow.grown_mib:.0f} MiB {blow.grown_role}{ended}{faults}"


def tables(result: Result) -> Sequence[Table]:
    """Return a line an attack."""
    heads = ("attack", "by", "goes", "in time %", "unanswered", "ended", "MiB over", "dead letters", "refused", "wrong")
    rows = tuple(
        (
            row["name"],
            ATTACKS[row["name"]].by,
            _way(row["by_columns"]),
            f"{row['in_time']:.2%}",
            f"{row['unanswered']}",
            _counted(row["ended"]) or "0",
            f"{row['grown_mib']:.0f} {row['grown_role']}",
            _counted(row["dead"]),
            _counted(row["refused"]),
            str(len(row["faults"])),
        )
        for row in result.series["attacks"]
    )
    return (Table("What each attack cost", heads, rows),)


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items())


def _notes(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(f"{row['name']}: {fault}" for row in rows for fault in row["faults"])


SCENARIO = Scenario(
    NAME,
    FIGURES,
    run,
    "attacks and accidents beside an honest client: its answers, roles that end, memory, what is learnt",
    tables=tables,
    parts=PARTS,
    short=True,
    any_processes=True,
    hosted=True,
)
