"""What is told of versions beside those that serve, and of candidates: on the page, and in reports for the doctor.

worse than the version that serves   ─▶ bad; how much at least, and the command that ends it
answers nothing                      ─▶ bad
better, and has served before        ─▶ bad: the version that serves is worse than one before it
cannot be compared                   ─▶ warn, of a candidate that is to take over by itself
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from streams.control.figures import parse
from streams.control.history import Key
from streams.control.page.page_types import Alert, skysail
from streams.operators.statistics import as_label, from_label, render
from streams.promotion.lifecycle import POLICY, VERSION
from streams.promotion.rivals import ALPHA, Rival

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from schemas.records import Model
    from streams.control.carry.promoting import Promoting
    from streams.control.history import History, Risen
    from streams.promotion.lifecycle import Course

MINUTE_US: Final = 60_000_000
# A canary that should have had so many queries in the last minute, and has answered none, answers nothing.
FEW: Final = 20
# How long a new canary may take to be loaded.
LOADING_US: Final = 30_000_000
DIFFERENCE, SILENT, HINDERED = "version_difference", "version_silent", "candidate_hindered"
APPRENTICE: Final = "apprentice_difference"


class Compared(NamedTuple):
    """How a version beside another one stands, in what it takes to tell a person.

    Attributes:
        model: name.
        version: that runs beside the other one.
        incumbent: the one that serves.
        upper: bound of the difference of their mean losses: below 0 the version is worse.
        serving: the same of the one that serves, compared with the version, where that served before.
    """

    model: str
    version: str
    incumbent: str
    upper: float
    serving: float = 1.0


def alerts(promoting: Promoting | None, history: History, now_us: int) -> list[Alert]:
    """Return what is wrong with versions beside those that serve, and with candidates.

    Args:
        promoting: what knows them; None = nobody does.
        history: of what was reported.
        now_us: the time.
    """
    if promoting is None:
        return []
    models, courses = promoting.rivals.models, promoting.courses
    found = [alert for each in _rivals(promoting) for alert in told(_compared(each), models[each.model])]
    found += [silent(each.model, each.version, each.share) for each in _silent(promoting, history, now_us)]
    for course in courses.values():
        if course.plan.kind == POLICY and (upper := course.comparison.evidence(course.plan.alpha).upper) < 0.0:
            found.append(apprentice(course.plan.name, course.plan.candidate, upper))
    for key, why in sorted(promoting.hindrances.items()):
        if key in courses:
            plan = courses[key].plan
            found.append(hindered(plan.kind, plan.name, plan.candidate, why))
    return found


def figures(promoting: Promoting | None, history: History, now_us: int) -> dict[str, float]:
    """Return the same as gauges of a report; `checks` has the way back."""
    if promoting is None:
        return {}
    found: dict[str, float] = {}
    for each in promoting.rivals:
        if each.evidence.pairs:
            place = "model", each.model, "version", each.version, "incumbent", each.incumbent
            for bound, value in (
                ("lower", each.evidence.lower),
                ("mean", each.evidence.difference),
                ("upper", each.evidence.upper),
                ("serving", 1.0 if each.serving is None else each.serving.upper),
            ):
                found[render((DIFFERENCE, *place, "bound", bound))] = value
    for each in _silent(promoting, history, now_us):
        found[render((SILENT, "model", each.model, "version", each.version))] = 1.0
    for key, course in promoting.courses.items():
        plan = course.plan
        if plan.kind == POLICY and (known := course.comparison.evidence(plan.alpha)).pairs:
            found[render((APPRENTICE, "application", plan.name, "bound", "upper"))] = known.upper
        if why := promoting.hindrances.get(key):
            place = "kind", plan.kind, "name", plan.name, "candidate", as_label(plan.candidate)
            found[render((HINDERED, *place, "reason", as_label(why)))] = 1.0
    return found


def from_gauges(
    gauges: Mapping[str, float], models: Mapping[str, Model], apprentices: Mapping[str, str]
) -> list[Alert]:
    """Return what a report of the control role says is wrong.

    Args:
        gauges: of the report.
        models: that are deployed, by name.
        apprentices: by application.
    """
    bounds: dict[tuple[str, str, str], dict[str, float]] = {}
    found: list[Alert] = []
    for full, value in gauges.items():
        name, labels = parse(full)
        model, version = labels.get("model", ""), labels.get("version", "")
        if name == DIFFERENCE:
            bounds.setdefault((model, version, labels.get("incumbent", "")), {})[labels.get("bound", "")] = value
        elif name == SILENT and model in models and version in models[model].shares:
            found.append(silent(model, version, models[model].shares[version]))
        elif name == APPRENTICE and value < 0.0 and (policy := apprentices.get(labels.get("application", ""))):
            found.append(apprentice(labels["application"], policy, value))
        elif name == HINDERED:
            why = from_label(labels.get("reason", ""))
            found.append(hindered(labels.get("kind", ""), labels.get("name", ""), labels.get("candidate", ""), why))
    for (name, version, incumbent), each in bounds.items():
        model_now = models.get(name)
        if model_now is not None and model_now.version == incumbent and version in model_now.shares:
            row = Compared(name, version, incumbent, each.get("upper", 1.0), each.get("serving", 1.0))
            found.extend(told(row, model_now))
    return found


def told(row: Compared, model: Model) -> Iterator[Alert]:
    """Say that a version is worse than the one that serves, or that this one is worse than the one before it."""
    name, version, incumbent, upper, serving = row
    has_served = any(service.version == version for service in model.served)
    stands = standing(model.shares[version])
    sure = f"at confidence {1.0 - ALPHA:.0%}"
    if upper < 0.0:
        text = f"{name} {version} ({stands}) is worse than {incumbent}, which serves, by {-upper:.3f} errors a query at"
        text += f" least, {sure}"
        # A version that served before is held back on purpose, as a rule.
        yield Alert(level="warn" if has_served else "bad", text=text, command=end(model, version))
    if serving < 0.0:
        text = f"{name} {incumbent}, which serves, is worse than {version} ({stands}), which served before, by"
        text += f" {-serving:.3f} errors a query at least, {sure}"
        yield Alert(level="bad", text=text, command=skysail("model", "use", name, version))


def silent(model: str, version: str, share: float) -> Alert:
    """Say that a canary answers nothing."""
    text = f"{model} {version} ({standing(share)}) has answered none of its queries in the last minute"
    return Alert(level="bad", text=text, command=skysail("model", "canary", model, version, "--share", "0"))


def apprentice(application: str, policy: str, upper: float) -> Alert:
    """Say that a policy that learns along is worse than the one that decides."""
    text = f"{application}: the apprentice {policy} is worse than the policy that decides, by {-upper:.3f} errors a"
    text += " query at least"
    return Alert(level="bad", text=text, command=skysail("app", "promote", application, "--end"))


def hindered(kind: str, name: str, candidate: str, why: str) -> Alert:
    """Say that a candidate cannot be compared, so that it stays where it is."""
    who, group = (f"{name} {candidate}", "model") if kind == VERSION else (f"{candidate} of {name}", "app")
    text = f"{who} is to take over on evidence and cannot be compared: {why}"
    return Alert(level="warn", text=text, command=skysail(group, "show", name))


def standing(share: float) -> str:
    """Say what a version beside the one that serves is."""
    return f"canary, {share:.0%}" if share else "shadow"


def end(model: Model, version: str) -> str:
    """Return the command that ends a canary or a shadow."""
    if model.shares[version]:
        return skysail("model", "canary", model.name, version, "--share", "0")
    return skysail("model", "shadow", model.name, version, "--end")


def _rivals(promoting: Promoting) -> Iterator[Rival]:
    """Yield the versions with comparisons, without those that candidates hold back."""
    held = {(each.plan.name, each.plan.incumbent) for each in promoting.courses.values() if _has_taken_over(each)}
    for each in promoting.rivals:
        if each.evidence.pairs and (each.model, each.version) not in held:
            yield each


def _has_taken_over(course: Course) -> bool:
    return course.plan.kind == VERSION and course.stage is not None and course.stage.is_promoted


def _compared(rival: Rival) -> Compared:
    serving = 1.0 if rival.serving is None else rival.serving.upper
    return Compared(rival.model, rival.version, rival.incumbent, rival.evidence.upper, serving)


def _silent(promoting: Promoting, history: History, now_us: int) -> Iterator[Rival]:
    """Yield the canaries that have had time to be loaded and have answered nothing while the others have."""
    _, risen = history.since(MINUTE_US, now_us)
    for each in promoting.rivals:
        if each.share and now_us - each.since_us > LOADING_US and _answers(risen, each.model, each.version) == 0.0:
            shares = promoting.rivals.models[each.model].shares
            others = _answers(risen, each.model) / max(1e-9, 1.0 - sum(shares.values()))
            if others * each.share >= FEW:
                yield each


def _answers(risen: Risen, model: str, version: str = "") -> float:
    """Return how often a version has answered; empty = the one that serves."""
    return risen.get(Key("rows_total", "", model, f"{version} ok".strip()), 0.0)
