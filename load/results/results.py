"""The result of a run as JSON that can be compared. `environment.json` beside it describes the machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from load.harness.environment import Environment, environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

ENVIRONMENT = "environment.json"


@dataclass(frozen=True, slots=True)
class Result:
    """One run of one scenario.

    `scenario` is permanent: once published, a name always means the same work. `figures` are flat numbers with the unit
    in the name; `series` are rows over time, for plots and never for comparison.
    """

    scenario: str
    figures: Mapping[str, float]
    parameters: Mapping[str, float | str] = field(default_factory=dict)
    series: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def given(self) -> str:
        """The parameters in words."""
        return ", ".join(f"{name} {value}" for name, value in self.parameters.items())


def write(result: Result, folder: Path, services: Mapping[str, str] | None = None) -> Path:
    """Write `<scenario>.json` and `environment.json` into `folder`; returns the path of the former.

    Args:
        result: what was measured.
        folder: created if need be.
        services: what it ran on besides this machine, e.g. the broker; goes into the environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result.scenario}.json"
    path.write_text(_json(asdict(result)))
    (folder / ENVIRONMENT).write_text(_json({**environment(), **(services or {})}))
    return path


def read(path: Path) -> Result:
    """Read a result back.

    Raises:
        ValueError: the file holds no result.
    """
    try:
        content = json.loads(path.read_text())
        return Result(**{**content, "notes": tuple(content["notes"])})
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path} holds no result of `skysail load run`: {error}") from error


def read_environment(path: Path) -> Environment:
    """Read on what machine a result was measured.

    Args:
        path: of the result.

    Raises:
        ValueError: `write` has left no `environment.json` beside it.
    """
    beside = path.with_name(ENVIRONMENT)
    try:
        found: Environment = json.loads(beside.read_text())
    except FileNotFoundError as error:
        raise ValueError(f"{beside} is missing; `skysail load run` writes it beside the result") from error
    return found


def joined(found: Iterable[tuple[Result, Environment]]) -> list[tuple[Result, Environment]]:
    """Put results together that are of one scenario and were measured alike: of parts that were run one by one.

    Where two have a figure, the later one counts. The machine is that of the first.
    """
    whole: list[tuple[Result, Environment]] = []
    for result, machine in found:
        for at, (known, its) in enumerate(whole):
            if (known.scenario, known.parameters) == (result.scenario, result.parameters):
                figures, series = {**known.figures, **result.figures}, {**known.series, **result.series}
                notes = tuple(dict.fromkeys((*known.notes, *result.notes)))
                whole[at] = replace(known, figures=figures, series=series, notes=notes), its
                break
        else:
            whole.append((result, machine))
    return whole


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, indent=2) + "\n"
