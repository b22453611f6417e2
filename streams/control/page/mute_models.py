"""Models that answer nothing, or next to nothing, in time, though the process that runs them lives and reports.

asked, by selection ─┐
rows, by workers ────┴▶ nearly none answered ─▶ what became of the rows ─▶ the likely cause, and what to type
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.control.history import Key
from streams.control.page.page_types import run, skysail

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from streams.control.history import Risen

# Fewer questions say little. An answer in twenty may be one from before.
FEW, NEARLY_NONE = 20, 0.05
# What is counted of questions that no model is to answer: by a cache, or turned away before.
_SPARED: Final = (("cache_total", "hit"), ("cache_total", "coalesced"), ("overloaded_total", ""))
STILL, LATE = "still", "late"


class Mute(NamedTuple):
    """A model whose queries all default, or nearly all.

    Attributes:
        model: its name.
        asked: queries to it.
        cause: the outcome of most of its rows; `late` = answers that came after the deadline, `still` = it has none.
        text: for people.
        command: what to type.
    """

    model: str
    asked: float
    cause: str
    text: str
    command: str


def mute(risen: Risen, alive: Collection[str], shadows: Collection[tuple[str, str]] = ()) -> Iterator[Mute]:
    """Return the models that answer nearly nothing.

    Args:
        risen: counters in the last minute, or as far as is known.
        alive: models with a version that is loaded, in a process that reports.
        shadows: models and versions that answer nobody.
    """
    for model in sorted(alive):
        asked = sum(rise for key, rise in risen.items() if key.name == "asked_total" and key.model == model)
        asked -= sum(risen.get(Key(name, "", model, rest), 0.0) for name, rest in _SPARED)
        ended = _ended(model, risen, shadows)
        late = min(ended.get("ok", 0.0), risen.get(Key("late_outputs_total", "", model), 0.0))
        in_time = ended.pop("ok", 0.0) - late
        if asked < FEW or in_time > NEARLY_NONE * asked:
            continue
        ended[LATE] = late
        cause = max(ended, key=ended.__getitem__)
        if sum(ended.values()) <= NEARLY_NONE * asked:
            cause = STILL
        why, command = _advice(model, cause)
        text = f"{model} has answered {in_time:.0f} of the last {asked:.0f} queries to it in time: {why}"
        yield Mute(model, asked, cause, text, command)


def _ended(model: str, risen: Risen, shadows: Collection[tuple[str, str]]) -> dict[str, float]:
    """Return how many rows of a model ended in each outcome, as workers say; of the bad ones as selection says, too."""
    told = {"rows_total": Counter[str](), "failed_outputs_total": Counter[str]()}
    for key, rise in risen.items():
        version, _, outcome = key.rest.rpartition(" ")  # rows of versions beside it carry the version
        if key.name in told and key.model == model and outcome in _OUTCOMES and (model, version) not in shadows:
            told[key.name][outcome] += rise  # type: ignore[assignment]  # whole numbers, as floats
    return {**(told["rows_total"] | told["failed_outputs_total"])}


_OUTCOMES: Final = frozenset(("ok", "failed", "invalid", "expired", "unknown_version"))


def _advice(model: str, cause: str) -> tuple[str, str]:
    if cause == "failed":
        return "it raises, or its answers are none; its worker's log says what", skysail("model", "rollback", model)
    if cause == "invalid":
        return "they do not fit its signature; the message of each answer says why", skysail("model", "show", model)
    if cause in ("expired", LATE):
        return "it takes longer than they leave it, or has more than it can answer", run(f"worker.{model}")
    if cause == STILL:
        why = "its process lives and says nothing of them: it hangs, or waits for a model that does; stop that process,"
        return f"{why} which is started again by its supervisor, and see its log", skysail("model", "show", model)
    return "they name versions that do not run", skysail("model", "show", model)
