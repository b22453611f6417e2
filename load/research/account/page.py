"""Results of `account` as tables and as a page. Its prose is in `introduction.md` and `measures.md`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from load.research.account import scenario
from load.research.account.steps import STEPS
from load.results.pages import sections
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from load.harness.environment import Environment
    from load.results.results import Result

_TEXT: Final = Path(__file__).with_name("introduction.md")
DONE: Final = sections(Path(__file__).with_name("measures.md"))
LARGE: Final = 0.03  # of a stretch's CPU time: from here on an entry has a paragraph
_WORKERS = "workers"
_ROLES = ("selection", _WORKERS, "joiner", "learner")


def tables(result: Result) -> list[Table]:
    """Return every table of a result, in the order of the page."""
    return [
        table
        for stretch, title in _stretches(result).items()
        for table in (_steps(result, stretch, title), *_others(result, stretch))
    ]


def page(result: Result, environment: Environment) -> str:
    """Return the page in Markdown; `environment` is that of `load.harness.environment`, and the broker."""
    parts = [_TEXT.read_text(encoding="utf-8"), _machine(environment)]
    for stretch, title in _stretches(result).items():
        parts += [f"## {title}\n", _steps(result, stretch, title).markdown(), _totals(result, stretch)]
        parts += [f"{table.title}:\n\n{table.markdown()}" for table in _others(result, stretch)]
    parts.append("## What was done about the large entries\n")
    parts += _paragraphs(result)
    return "\n".join(parts)


def _machine(environment: Environment) -> str:
    packages = ", ".join(f"{name} {environment['packages'].get(name)}" for name in ("skysail", "aiokafka", "uvloop"))
    return (
        f"Measured on {environment['cores_usable']} cores of {environment['processor']}, which all processes, "
        f"the broker and the sender share. Software: {environment['broker']}, Python {environment['python']}, "
        f"{packages}.\n"
    )


def _stretches(result: Result) -> dict[str, str]:
    backlog, rate = (int(result.parameters[name]) for name in ("backlog", "rate"))
    return {
        "backlog": f"Draining a backlog of {backlog:,} queries",
        f"at_{rate}": f"At {rate} queries a second",
    }


def _steps(result: Result, stretch: str, title: str) -> Table:
    """Return steps by role, both in the order in which a query meets them; the workers' time is added up."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    roles: dict[str, None] = {}
    for row in result.series[f"{stretch}_steps"]:
        role = _WORKERS if row["instance"].startswith("worker.") else row["instance"]
        found[row["step"]][role] += row["cpu_us"]
        roles[role] = None
    everything = sum(sum(step.values()) for step in found.values())
    ordered = sorted(roles, key=_ROLES.index)
    rows = [(step, *_line(found[step], ordered, everything)) for step in STEPS if step in found]
    sums = {role: sum(step.get(role, 0.0) for step in found.values()) for role in ordered}
    heads = ("step", *ordered, "all", "share")
    return Table(f"{title}: CPU time, µs per query", heads, (*rows, ("all", *_line(sums, ordered, everything))))


def _line(cpu_us: Mapping[str, float], roles: list[str], everything: float) -> Iterator[str]:
    yield from (f"{cpu_us[role]:.1f}" if cpu_us.get(role) else "" for role in roles)
    total = sum(cpu_us.values())
    yield from (f"{total:.1f}", f"{total / everything:.1%}")


def _others(result: Result, stretch: str) -> Iterator[Table]:
    volumes = result.series[f"{stretch}_volumes"]
    lines = [(row["topic"], row["records"], row["bytes"]) for row in volumes]
    lines.append(("all", sum(row["records"] for row in volumes), sum(row["bytes"] for row in volumes)))
    rows = tuple((topic, f"{records:.3f}", f"{size:,.0f}") for topic, records, size in lines)
    yield Table("Messages and their bytes (keys and values) per query", ("topic", "messages", "bytes"), rows)
    batches = result.series[f"{stretch}_batches"]
    yield Table(
        "Rows of a batch, on average", ("model", "rows"), tuple((row["model"], f"{row['rows']:.1f}") for row in batches)
    )
    if legs := result.series.get(f"{stretch}_legs"):
        whole = {"leg": "all, as the client sees it", **_whole_ms(result, stretch)}
        rows = tuple((row["leg"], f"{row['p50_ms']:.2f}", f"{row['p99_ms']:.2f}") for row in (*legs, whole))
        yield Table("Latency by leg (ms, to about half of one)", ("leg", "p50", "p99"), rows)


def _whole_ms(result: Result, stretch: str) -> dict[str, float]:
    return {name: result.figures[f"{stretch}_{name}"] for name in ("p50_ms", "p99_ms")}


def _totals(result: Result, stretch: str) -> str:
    """Say how well the account adds up, and what it cost to take it."""
    figures = {name.removeprefix(f"{stretch}_"): value for name, value in result.figures.items()}
    unknown = ", ".join(f"`{row['function']}`" for row in result.series[f"{stretch}_unknown"][:3])
    least, most = figures["accounted_least"], figures["accounted_most"]
    return (
        f"The system counts {figures['cpu_us_per_query']:.1f} µs of CPU a query for all processes together. The "
        f"{figures['samples']:,.0f} samples add up to {figures['accounted']:.1%} of it ({least:.1%} to {most:.1%} of "
        f"each process). Samples of no step: {figures['other']:.1%}{f' ({unknown})' if unknown else ''}. The same load "
        f"without sampling took {figures['unsampled_cpu_us_per_query']:.1f} µs ({figures['sampling']:+.1%} with it).\n"
    )


def _paragraphs(result: Result) -> Iterator[str]:
    shares: dict[str, list[str]] = {}
    large: dict[str, float] = {}
    for stretch, title in _stretches(result).items():
        of_step: dict[str, float] = defaultdict(float)
        for row in result.series[f"{stretch}_steps"]:
            of_step[row["step"]] += row["share"]
        for step, share in of_step.items():
            shares.setdefault(step, []).append(f"{share:.0%} {title[0].lower()}{title[1:]}")
            large[step] = max(share, large.get(step, 0.0))
    for step in sorted(large, key=lambda name: -large[name]):
        if large[step] >= LARGE:
            yield f"**{step}** ({STEPS[step]}). Share: {', '.join(shares[step])}. {DONE[step]}\n"
    small = [step for step in STEPS if 0 < large.get(step, 0.0) < LARGE]
    if small:
        yield f"Below {LARGE:.0%} of either: {', '.join(small)}.\n"


SCENARIO = Scenario(
    scenario.NAME,
    scenario.FIGURES,
    scenario.run,
    "where each microsecond goes: CPU by role and step, messages and bytes a query, latency by leg",
    tables=tables,
    page=page,
)
