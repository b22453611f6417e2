"""The scenario `account`: its tables, and what was done about each step (`measures.md`)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from load.research.account import scenario
from load.research.account.steps import STEPS
from load.results.pages import sections
from load.results.tables import Table
from load.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from load.results.results import Result

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


def words(result: Result) -> dict[str, Any]:
    """Return what the page says besides: each stretch, and what was done about the steps that cost the most."""
    stretches = [_stretch(result, name, title) for name, title in _stretches(result).items()]
    shares = {
        role: share for role in scenario.COLUMNAR if (share := result.figures.get(f"by_columns_{role}")) is not None
    }
    return {"stretches": stretches, "by_columns": shares, "least": LARGE, **_done(result)}


def _stretch(result: Result, name: str, title: str) -> dict[str, Any]:
    return {
        "title": title,
        "steps": _steps(result, name, title),
        "others": [*_others(result, name)],
        "figures": {figure.removeprefix(f"{name}_"): value for figure, value in result.figures.items()},
        "unknown": ", ".join(f"`{row['function']}`" for row in result.series[f"{name}_unknown"][:3]),
    }


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


def _done(result: Result) -> dict[str, Any]:
    """Return the steps with a paragraph, the dearest first, and the names of the others that cost something."""
    shares: dict[str, dict[str, float]] = {}
    for stretch, title in _stretches(result).items():
        for row in result.series[f"{stretch}_steps"]:
            of_step = shares.setdefault(row["step"], {})
            of_step[title] = of_step.get(title, 0.0) + row["share"]
    most = {step: max(of_step.values()) for step, of_step in shares.items()}
    large = [
        {"name": step, "about": STEPS[step], "shares": _said(shares[step]), "done": DONE[step]}
        for step in sorted(most, key=lambda step: -most[step])
        if most[step] >= LARGE
    ]
    return {"large": large, "small": [step for step in STEPS if 0 < most.get(step, 0.0) < LARGE]}


def _said(shares: Mapping[str, float]) -> list[str]:
    return [f"{share:.0%} {title[0].lower()}{title[1:]}" for title, share in shares.items()]


SCENARIO = Scenario(
    scenario.NAME,
    scenario.FIGURES,
    scenario.run,
    "where each microsecond goes: CPU by role and step, messages and bytes a query, latency by leg",
    tables=tables,
    page="research/account/account.md.j2",
    words=words,
)
