"""Whether roles live, and whether they can work, by their last reports: pure. What is wrong is said in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas.records import STOPPED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from schemas.records import Report

# A role reports each second, by the loop that does all its work.
SILENT_S: Final = 15.0
_WAITS: Final = "waits_for{what="
_NO_STORE: Final = "reaches no store of policy states (Redis, a file); see `skysail doctor`"
# What a role may wait for, by the label of the gauge `waits_for`.
WAITS_FOR: Final = {
    "models": "waits for its models to be loaded",
    "configuration": "still reads which models and applications there are",
    "states": "waits for policy states from the store",
    "topics": "waits to be told which topics it reads",
    "kafka": "waits for Kafka: no broker answers, or topics are missing; see `skysail doctor`",
    "store": _NO_STORE,
    "partitions": "has no partitions assigned yet",
    "applications": "has not read yet which applications there are",
}


def stuck(reports: Iterable[tuple[Report, float]]) -> list[str]:
    """Return which roles stand still.

    Args:
        reports: the last of each role, and its age in seconds.
    """
    return [
        f"{report.instance} has reported nothing for {age_s:.0f} s: it stands still"
        for report, age_s in reports
        if age_s > SILENT_S
    ]


def hindrances(reports: Iterable[tuple[Report, float]]) -> list[str]:
    """Return what keeps roles from their work; empty = all of them are ready.

    Args:
        reports: as of `stuck`; none = no role has begun.
    """
    given = [*reports]
    if not given:
        return ["no role has reported yet: they start, or wait for Kafka"]
    return stuck(given) + [f"{report.instance} {why}" for report, _ in given for why in _whys(report)]


def _whys(report: Report) -> Iterator[str]:
    gauges = report.gauges
    if gauges.get(STOPPED):
        yield "stops"
    for name, value in gauges.items():
        if not value:
            continue
        if name.startswith(_WAITS):
            what = name.removeprefix(_WAITS).removesuffix("}")
            yield WAITS_FOR.get(what, f"waits for {what}")
        elif name == "store_away":
            yield _NO_STORE
        elif name.startswith("model_not_loaded{model="):
            model = name.removeprefix("model_not_loaded{model=").removesuffix("}")
            yield f"can load no version of {model}: see `skysail model show {model}`"
