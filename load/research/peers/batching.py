"""The contenders for a model that needs batching, and the figures of their visits."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from load.research.peers.answer_audit import OBJECTIVES_MS
from load.research.peers.contenders import CONTENDERS, Contender
from load.research.peers.grid import words
from load.research.peers.running import deployed
from load.research.peers.summary import spread
from load.research.peers.wire_formats import V2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]

MODEL = "forest"
CONVERTED = "forest-converted"
FIXED_ROWS = (64, 256, 1_024)
_WORKER = ("selection", "worker")
_TWO = 2  # processes: a forest is not what two loops compare


def _skysail(name: str, label: str, model: str, roles: tuple[str, ...], *grid: Mapping[str, object]) -> Contender:
    inline = {} if "worker" in roles else {"selection": {"inline": [model]}}
    return Contender(name, label, "skysail", deployed(model, roles, inline), grid=grid or ({},))


def _fixed(rows: int) -> Mapping[str, object]:
    return {"worker": {"controller": "fixed", "parameters": {"rows": float(rows)}}}


# Of those that need other settings for a model that needs batching than for one that does not.
_GRIDS: Mapping[str, tuple[Mapping[str, object], ...]] = {
    "faststream": (
        {"max_records": 256, "batch_timeout_ms": 5},
        {"max_records": 1000, "batch_timeout_ms": 5},
        {"max_records": 64, "batch_timeout_ms": 2},
    ),
    "bytewax": (
        {"batch_size": 1000, "linger_ms": 0},
        {"batch_size": 1000, "linger_ms": 5},
        {"batch_size": 256, "linger_ms": 0},
    ),
    "quix": (
        {"commit_every": 2000, "commit_interval": 0.01, "linger_ms": 0},
        {"commit_every": 2000, "commit_interval": 0.01, "linger_ms": 5},
        {"commit_every": 500, "commit_interval": 0.01, "linger_ms": 0},
    ),
    "faust": (
        {"rows": 256, "within_s": 0.005, "producer_linger": 0},
        {"rows": 500, "within_s": 0.05, "producer_linger": 0},
    ),
    "mlserver": (
        {"parallel_workers": 0, "max_batch_size": 64, "max_batch_time": 0.002},
        {"parallel_workers": 0, "max_batch_size": 256, "max_batch_time": 0.005},
        {"parallel_workers": 1, "max_batch_size": 64, "max_batch_time": 0.002},
    ),
    "ray": (
        {"rows": 1, "wait_s": 0.0, "group_rows": 512},
        {"rows": 16, "wait_s": 0.002, "group_rows": 64},
        {"rows": 128, "wait_s": 0.002, "group_rows": 1},
    ),
    "bentoml": (
        {"rows": 512, "latency_ms": 1000, "group_rows": 512},
        {"rows": 512, "latency_ms": 1000, "group_rows": 64},
        {"rows": 256, "latency_ms": 1000, "group_rows": 1},
    ),
}


def _other(contender: Contender) -> Contender:
    """Return a contender with the settings and the model of this comparison; a floor's forest is scikit-learn's."""
    label = contender.label.replace("floor: ", "by hand, Skysail's codec: ")
    kind = "hand" if contender.kind == "floor" else contender.kind
    mine = replace(contender, label=label, kind=kind, grid=_GRIDS.get(contender.name, contender.grid), fast=0)
    return replace(mine, wire_format=V2(MODEL)) if isinstance(mine.wire_format, V2) else mine


AIMD = _skysail("aimd", "Skysail, AIMD", MODEL, _WORKER)
FIXED = _skysail("fixed", "Skysail, fixed batches", MODEL, _WORKER, *map(_fixed, FIXED_ROWS))
LANES = (
    AIMD,
    _skysail("inline", "Skysail, AIMD, model inline", MODEL, ("selection",)),
    _skysail("converted", "Skysail, AIMD, inline, converted", CONVERTED, ("selection",)),
)
# Those that climb by themselves; fixed batches alternate with AIMD.
ALL = (*LANES, *(_other(each) for each in CONTENDERS if each.kind != "skysail" and each.processes != _TWO))
NAMES = (FIXED.name, *(contender.name for contender in ALL))


def rows(visits: Sequence[Row]) -> list[Row]:
    """Return a row for each contender: by objective its best setting's goodput, as `[median, least, most]`.

    Of settings that have been tried in some rounds only, those tried most often count.

    Args:
        visits: one for each round, contender, setting and objective: `system`, `label`, `kind`, `setting`,
            `objective_ms`, `goodput_per_s`, `rate_per_s`.
    """
    found: dict[str, dict[str, Any]] = {}
    for system, objective in dict.fromkeys((visit["system"], visit["objective_ms"]) for visit in visits):
        mine = [visit for visit in visits if (visit["system"], visit["objective_ms"]) == (system, objective)]
        row = found.setdefault(system, {"name": system, "label": mine[0]["label"], "kind": mine[0]["kind"]})
        tried = Counter(visit["setting"] for visit in mine)
        by_setting = {
            setting: spread(visit["goodput_per_s"] for visit in mine if visit["setting"] == setting)
            for setting, times in tried.items()
            if times == max(tried.values())
        }
        setting = max(by_setting, key=lambda name: by_setting[name][0])
        row |= {f"goodput_{objective}ms_per_s": by_setting[setting], f"setting_{objective}ms": setting}
    return list(found.values())


def setting_words(setting: Mapping[str, Any]) -> str:
    """Return a setting as it stands in rows."""
    return words(setting.get("worker", {}).get("parameters", setting))


def figures(systems: Sequence[Row]) -> dict[str, float]:
    """Return goodputs and ratios: each lane to the best peer and hand loop."""
    found: dict[str, float] = {}
    for objective in OBJECTIVES_MS:
        values = {row["name"]: row[f"goodput_{objective}ms_per_s"][0] for row in systems}
        found |= {f"{name}_goodput_{objective}ms_per_s": value for name, value in values.items()}
        kinds = {row["name"]: row["kind"] for row in systems}
        own = {name: value for name, value in values.items() if kinds[name] == "skysail"}
        for kind in ("peer", "hand"):
            best = max((value for name, value in values.items() if kinds[name] == kind), default=0.0)
            if not best or not own:
                continue
            ends = {name: value / best for name, value in own.items()}
            ends["best"] = max(ends.values())
            found |= {f"{name}_{objective}ms_to_{kind}_ratio_rate": value for name, value in ends.items()}
    return found
