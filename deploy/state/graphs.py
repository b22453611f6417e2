"""The stages of an application's settings as its record has them, with the time split over them."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from deploy.errors import UsageError
from policies.graph import before, faults, needed, ordered
from policies.stage_split import StageLoad, evenly, split
from schemas.records import Stage
from schemas.topics import MODEL_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.config.settings import ApplicationSettings, StageSettings
    from schemas.records import Profile

NO_PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({})
WAY_US: Final = 7_400  # to a model and back: twice the 99th percentile of a leg over one broker (`selection.kernel`)


def staged(name: str, app: ApplicationSettings, profiles: Mapping[str, Profile] = NO_PROFILES) -> tuple[Stage, ...]:
    """Return the stages of an application; those without a share of their own have one as the time is split.

    Args:
        name: of the application.
        app: its settings.
        profiles: what batches of models take, as measured; what the settings say counts before it.

    Raises:
        UsageError: they cannot be run; the message names every fault.
    """
    stages = _as_given(app)
    if not stages:
        return ()
    if found := faults(stages):
        raise UsageError(f"application {name}: {'; '.join(found)}")
    shares = _shares(_loads(app, stages, profiles), int(app.slo_ms * 1_000))
    made = tuple([stage._replace(share=app.stages[stage.name].share or shares[stage.name]) for stage in stages])
    _check_shares(name, made)
    return made


def half_known(name: str, app: ApplicationSettings, profiles: Mapping[str, Profile] = NO_PROFILES) -> str:
    """Return a warning where `profile_ms` of some stages is of no use, as nothing is known of others; empty = none."""
    if not any(its.profile_ms for its in app.stages.values()):
        return ""
    loads = _loads(app, _as_given(app), profiles)
    unknown = sorted(load.name for load in loads if not load.profile)
    if not unknown:
        return ""
    return (
        f"application {name}: its time is split evenly, as it is not known what batches of {', '.join(unknown)} take:"
        " set `profile_ms` of every stage, or of none. What hosts have measured counts, too, when it is published"
    )


def planned(app: ApplicationSettings, stages: Sequence[Stage]) -> dict[str, tuple[int, float]]:
    """Return what the time of each stage is enough for: rows of a batch, and how many workers they keep busy.

    Args:
        app: with `profile_ms` of every stage; else there is nothing to return.
        stages: as they are published.
    """
    loads, share = _loads(app, stages, NO_PROFILES) if stages else [], {stage.name: stage.share for stage in stages}
    if not all(load.profile for load in loads):
        return {}
    found = {}
    for load in loads:
        begin = max((share[name] for name in load.before), default=0.0)
        budget_us = (share[load.name] - begin) * app.slo_ms * 1e3
        found[load.name] = load.batch(budget_us)[0], load.workers(budget_us)
    return found


def _as_given(app: ApplicationSettings) -> tuple[Stage, ...]:
    return tuple(
        Stage(stage, its.model, its.after, _input(its), its.crop, its.where, its.most, its.share or 1.0)
        for stage, its in app.stages.items()
    )


def _input(its: StageSettings) -> str:
    return its.input if isinstance(its.input, str) else ", ".join(its.input)


def _shares(loads: Sequence[StageLoad], objective_us: int) -> dict[str, float]:
    """Return by when each stage must have answered, as a share of the time."""
    found = (split if all(load.profile for load in loads) else evenly)(loads, objective_us)
    last = {load.name for load in loads}.difference(*[load.before for load in loads])
    until_us = found.until_us(loads)
    return {name: 1.0 if name in last else until_us[name] / objective_us for name in until_us}


def _loads(app: ApplicationSettings, stages: Sequence[Stage], profiles: Mapping[str, Profile]) -> list[StageLoad]:
    """Return the stages, each behind those before it, with the rows a second that the queries make."""
    rates = {"": app.rate}
    loads = []
    for stage in ordered(stages):
        its = app.stages[stage.name]
        rates[stage.name] = rates[before(stage)] * its.items
        profile = tuple((rows, int(took_ms * 1e3)) for rows, took_ms in sorted(its.profile_ms.items()))
        profile = profile or _measured((stage.model,) if stage.model else app.models, profiles)
        loads.append(StageLoad(stage.name, needed(stage), rates[stage.name], profile, WAY_US))
    return loads


def _measured(models: Sequence[str], profiles: Mapping[str, Profile]) -> tuple[tuple[int, int], ...]:
    """Return what batches of the slowest of some models take; nothing where one of them was not measured."""
    names = [model.partition(MODEL_VERSION)[0] for model in models]
    found = [tuple(zip(known.sizes, known.p99_us, strict=True)) for name in names if (known := profiles.get(name))]
    return max(found, key=lambda its: its[0][1] if its else 0) if len(found) == len(names) else ()


def _check_shares(name: str, stages: Sequence[Stage]) -> None:
    share = {stage.name: stage.share for stage in stages}
    for stage in stages:
        for first in needed(stage):
            if stage.share <= share[first]:
                raise UsageError(
                    f"application {name}: stage {stage.name} must answer by {stage.share:g} of the time, and"
                    f" {first}, which comes before it, by {share[first]:g}: leave one of the shares out"
                )
