"""The overview at a glance, from the history and the last reports."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from schemas.records import LAST_EXIT
from schemas.topics import dead_letters
from streams.control.figures import LAG, is_silent, is_stopped, parse
from streams.control.history import STEP_US, STEPS, Key
from streams.control.page.advice import at_most
from streams.control.page.alerts import WorkerVersions, alerts, load_faults, unserved
from streams.control.page.outages import LATELY_US
from streams.control.page.page_types import (
    WORKER,
    Alert,
    ApplicationRow,
    CoverageRow,
    Holding,
    LetterRow,
    ModelRow,
    Overview,
    ProcessRow,
    SourceRow,
    VersionRow,
    skysail,
)
from streams.control.page.times import budget, times
from streams.control.page.visibility import View
from streams.control.page.worse import of_existing
from streams.operators.statistics import BY_COLUMNS, NOT_BY_COLUMNS, SENT_AGO, UNSERVED

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from streams.control.figures import Figures
    from streams.control.history import History, Risen
    from streams.control.losses import WorseLoss

MINUTE_US = 60_000_000
STEP_S = STEP_US / 1e6
HERE = View()
PROMISED = "coverage_promised"


# What the page says of questions after the first one, by counter and labels.
_AGAIN: Mapping[tuple[str, str], str] = {
    ("steps_total", "escalate asked"): "asked a dearer model, too",
    ("steps_total", "escalate kept"): "kept the cheap answer",
    ("steps_total", "escalate late"): "kept the cheap answer since there was no time",
    ("steps_total", "overdue asked"): "asked a dearer model without an answer",
    ("hedges_total", "asked"): "asked another replica, too",
    ("hedges_total", "won"): "were answered by that first",
    ("hedges_total", "unpaid"): "would have, but for want of a token",
}


class Promise(NamedTuple):
    """What keeps a promise of coverage: its counters, and its words."""

    made: str
    judged: str
    sizes: str
    of: str
    truth: str
    unit: str


SETS = Promise(
    "label_sets_total", "label_sets_judged_total", "label_set_sizes_total", "sets of labels", "label", "labels a set"
)
INTERVALS = Promise(
    "intervals_total", "intervals_judged_total", "interval_widths_total", "intervals", "number", "wide in the mean"
)


class _Gauges:
    """The gauges of all processes that report, by name and labels."""

    def __init__(self, live: Iterable[Figures]) -> None:
        self._values: dict[Key, list[float]] = {}
        self.policies: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.failing: dict[str, str] = {}  # by model: the wanted version that could not be loaded
        self.not_loaded: set[str] = set()  # models without any loaded version
        self.holds: dict[str, dict[str, float]] = {}  # by application
        self.sources: dict[str, set[str]] = {}  # by application
        # By model and version: what it is for, and its share of the queries.
        self.beside: dict[str, dict[str, tuple[str, float]]] = {}
        self.labels: dict[tuple[str, str], set[str]] = {}  # by model and version
        self.unserved: dict[str, float] = {}  # records that nobody reads, by topic
        self.left: dict[str, str] = {}  # by application: why its queries are not answered by columns
        for entry in live:
            for full, value in entry["gauges"].items():
                name, labels = parse(full)
                if name == "deployed":
                    self.policies[labels.get("application", "")] = labels.get("policy", "")
                elif name == "serving":
                    self.versions[labels.get("model", "")] = labels.get("version", "")
                elif name == "version_failing":
                    self.failing[labels.get("model", "")] = labels.get("version", "")
                elif name == "model_not_loaded":
                    self.not_loaded.add(labels.get("model", ""))
                elif name in ("canary", "shadow", "standby"):
                    beside = self.beside.setdefault(labels.get("model", ""), {})
                    beside[labels.get("version", "")] = name, value if name == "canary" else 0.0
                elif name in ("labelled", "looked_up", UNSERVED, NOT_BY_COLUMNS):
                    self._gather(name, labels, value)
                elif labels.keys() == {"application"} and not name.endswith(("_us", "_seconds", "_share", PROMISED)):
                    held = self.holds.setdefault(labels["application"], {})
                    held[name] = held.get(name, 0.0) + value
                key = Key(name, labels.get("application", ""), labels.get("model", ""))
                self._values.setdefault(key, []).append(value)

    def _gather(self, name: str, labels: Mapping[str, str], value: float) -> None:
        """Take one of several labels of a version, sources of an application, or topics with partitions too many."""
        if name == UNSERVED:
            topic = labels.get("topic", "")
            self.unserved[topic] = max(value, self.unserved.get(topic, 0.0))
            return
        if name == NOT_BY_COLUMNS:
            self.left[labels.get("application", "")] = labels.get("why", "")
            return
        if name == "looked_up":
            self.sources.setdefault(labels.get("application", ""), set()).add(labels.get("source", ""))
            return
        place = labels.get("model", ""), labels.get("version", "")
        self.labels.setdefault(place, set()).add(labels.get("label", ""))

    def total(self, name: str, model: str) -> float | None:
        """Return the sum over the processes."""
        values = self._values.get(Key(name, "", model))
        return sum(values) if values else None

    def largest(self, name: str, application: str = "", model: str = "", scale: float = 1.0) -> float | None:
        """Return the largest of all processes."""
        values = self._values.get(Key(name, application, model))
        return _rounded(max(values) * scale) if values else None

    @property
    def asked(self) -> set[str]:
        """Return the models that any application may ask."""
        return {key.model for key in self._values if key.name == "candidate"}

    def models(self, application: str) -> set[str]:
        """Return the models that an application may ask."""
        return {key.model for key in self._values if key.name == "candidate" and key.application == application}


def overview(
    known: Sequence[Figures],
    history: History,
    now_us: int,
    view: View = HERE,
    hosted: Collection[str] = (),
    more: Sequence[Alert] = (),
    risen_losses: Sequence[WorseLoss] = (),
) -> Overview:
    """Return what is shown at `now_us` of these processes, those that are silent included.

    Where nothing comes back from Kafka, it is what was known when something last did.

    Args:
        known: the processes.
        history: of what they reported.
        now_us: the time.
        view: the page's knowledge of itself.
        hosted: models that are planned on a host.
        more: alerts that others have found.
        risen_losses: of applications and models.
    """
    then_us = now_us if view.as_of_us is None else view.as_of_us
    seconds, risen = history.since(MINUTE_US, then_us)
    live = [entry for entry in known if not is_silent(entry, then_us)]
    gauges = _Gauges(live)
    asked = gauges.asked
    known = [entry for entry in known if not (is_silent(entry, then_us) and _has_left(entry, asked))]
    names = gauges.policies.keys() | {key.application for key in risen if key.name == "answers_total"}
    applications = [_application(name, gauges, history, then_us) for name in _busiest_first(names, history, then_us)]
    processes = [_process(entry, history, then_us, now_us) for entry in known]
    letters = _letters(known, risen)
    lately = history.since(LATELY_US, then_us)[1]
    faults = load_faults(entry["gauges"] for entry in live)
    shadows = {(m, v) for m, beside in gauges.beside.items() for v, (what, _) in beside.items() if what == "shadow"}
    versions = WorkerVersions(gauges.versions, gauges.failing, gauges.not_loaded, faults, hosted, shadows)
    others = [*more, *unserved(gauges.unserved)]
    rises, worsened = (risen, lately), of_existing(risen_losses, names, live)
    found = alerts(applications, processes, letters, rises, versions, view, now_us, others, worsened)
    return Overview(
        prefix=view.place.prefix,
        kafka=view.place.kafka,
        stale_s=None if view.as_of_us is None else round((now_us - view.as_of_us) / 1e6, 1),
        level=min((alert["level"] for alert in found), default="well"),
        window_s=round(seconds, 1),
        step_s=STEP_S,
        alerts=found,
        applications=applications,
        processes=processes,
        dead_letters=letters,
    )


def _busiest_first(names: Iterable[str], history: History, now_us: int) -> list[str]:
    """Return the applications by their answers of five minutes, in powers of two so that rows seldom change places."""
    _, risen = history.since(STEPS * STEP_US, now_us)
    return sorted(names, key=lambda name: (-int(risen.get(Key("answers_total", name), 0.0)).bit_length(), name))


def _has_left(entry: Figures, asked: Collection[str]) -> bool:
    """Tell whether a silent process is a stopped worker of a removed model."""
    role = entry["role"]
    return is_stopped(entry) and role.startswith(WORKER) and role.removeprefix(WORKER) not in asked


def _application(name: str, gauges: _Gauges, history: History, now_us: int) -> ApplicationRow:
    seconds, risen = history.since(MINUTE_US, now_us)
    answers = risen.get(Key("answers_total", name), 0.0)
    asked = {key.model for key in risen if key.name == "asked_total" and key.application == name and key.model}
    return ApplicationRow(
        name=name,
        policy=gauges.policies.get(name, ""),
        rate=_rounded(answers / seconds),
        in_time=_in_time(risen, name),
        partial=_share(risen, Key("answers_total", name, "", "partial"), answers),
        defaults=_defaults(risen, name),
        partials=_reasons(risen, name, "partial", answers),
        reasons=_reasons(risen, name, "default", answers),
        late=_share(risen, Key("late_answers_total", name), answers),
        sent_ago_ms=gauges.largest(SENT_AGO, name, scale=1e-3),
        without_state=_share(risen, Key("decided_without_state_total", name), answers),
        by_columns=_share(risen, Key(BY_COLUMNS, name), answers) if Key(BY_COLUMNS, name) in risen else None,
        left=gauges.left.get(name, ""),
        again=_again(risen, name, answers) | _of_stages(risen, name),
        turned_away=_turned_away(risen, name),
        holds=holdings(gauges.holds.get(name, {})),
        sources=[_source(source, risen) for source in sorted(gauges.sources.get(name, ()))],
        joined=_rounded(risen.get(Key("joined_total", name), 0.0) / seconds),
        loss=_loss(risen, name),
        cost=_cost(risen, name),
        coverage=_coverage(name, gauges, history, now_us),
        p50_ms=gauges.largest("answer_p50_us", name, scale=1e-3) if answers else None,
        p99_ms=gauges.largest("answer_p99_us", name, scale=1e-3) if answers else None,
        times=times(risen, name, gauges.largest("answer_objective_seconds", name)),
        rates=history.series(lambda step: _rounded(step.get(Key("answers_total", name), 0.0) / STEP_S), now_us),
        default_shares=history.series(lambda step: _defaults(step, name), now_us),
        losses=history.series(lambda step: _loss(step, name), now_us),
        models=[_model(name, model, gauges, risen, history, now_us) for model in sorted(asked | gauges.models(name))],
    )


def _reasons(risen: Mapping[Key, float], name: str, status: str, answers: float) -> dict[str, float]:
    """Return the reasons of answers of a status, as shares of all answers."""
    return {
        key.rest.partition(" ")[2]: _rounded(count / answers)
        for key, count in sorted(risen.items())
        if key.name == "answers_total" and key.application == name and key.rest.startswith(f"{status} ")
    }


def _coverage(name: str, gauges: _Gauges, history: History, now_us: int) -> CoverageRow | None:
    """Return what became of an application's promise; None if it makes none."""
    promised = gauges.largest(PROMISED, name)
    if promised is None:
        return None
    _, risen = history.since(STEPS * STEP_US, now_us)
    its = INTERVALS if Key(INTERVALS.made, name) in risen else SETS
    made, some = (risen.get(Key(its.made, name, "", kind), 0.0) for kind in ("", "some"))
    held, judged = _held(risen, its, name), risen.get(Key(its.judged, name), 0.0)
    return CoverageRow(
        promised=promised,
        of=its.of,
        truth=its.truth,
        unit=its.unit,
        held=held,
        at_most=at_most(held or 0.0, judged),
        judged=judged,
        size=_share(risen, Key(its.sizes, name), some),
        all=_rounded(1.0 - some / made) if made else None,
        series=history.series(lambda step: _held(step, its, name), now_us),
    )


def _source(name: str, risen: Risen) -> SourceRow:
    """Return how often a source was asked in vain."""
    asked = risen.get(Key("features_total", rest=name), 0.0)
    return SourceRow(name=name, imputed=_share(risen, Key("features_total", rest=f"{name} imputed"), asked))


def _held(risen: Risen, its: Promise, name: str) -> float | None:
    """Return the share of the sets or intervals that held the truth, of those for which it is known."""
    return _share(risen, Key(its.judged, name, "", "held"), risen.get(Key(its.judged, name), 0.0))


def _model(application: str, name: str, gauges: _Gauges, risen: Risen, history: History, now_us: int) -> ModelRow:
    rows, batches = risen.get(Key("batch_rows_total", "", name), 0.0), Key("batches_total", "", name)
    return ModelRow(
        name=name,
        version=gauges.versions.get(name, ""),
        share=_asked(risen, application, name),
        weight=gauges.largest("policy_weight", application, name),
        loss=_mean(risen, "model_loss_total", "model_losses_total", application, name),
        cost=_cost(risen, application, name),
        failed=_failed(risen, application, name, "failed"),
        invalid=_failed(risen, application, name, "invalid"),
        batch_rows=_rounded(rows / risen[batches]) if risen.get(batches) else None,
        batch_cap=gauges.largest("batch_cap", "", name),
        queue_rows=gauges.total("queue_rows", name),
        p50_ms=gauges.largest("model_p50_us", "", name, 1e-3) if rows else None,
        p99_ms=gauges.largest("model_p99_us", "", name, 1e-3) if rows else None,
        budget=budget(risen, name, gauges.largest("estimated_wait_seconds", "", name)),
        shares=history.series(lambda step: _asked(step, application, name), now_us),
        versions=_versions(application, name, gauges, risen),
    )


def _versions(application: str, model: str, gauges: _Gauges, risen: Risen) -> list[VersionRow]:
    """Return the versions of a model, where there are several."""
    beside = gauges.beside.get(model, {})
    serving = gauges.versions.get(model, "")
    if not beside and not gauges.labels.get((model, serving)):
        return []
    rest = 1.0 - sum(share for _, share in beside.values())
    return [
        VersionRow(
            version=version,
            label=", ".join([what, *sorted(gauges.labels.get((model, version), ()))]),
            share=_rounded(share),
            loss=_share(
                risen,
                Key("version_loss_total", application, model, version),
                risen.get(Key("version_joined_total", application, model, version), 0.0),
            ),
        )
        for version, (what, share) in {serving: ("stable", rest), **dict(sorted(beside.items()))}.items()
    ]


def _process(entry: Figures, history: History, then_us: int, now_us: int) -> ProcessRow:
    gauges, resident, back_us = entry["gauges"], entry["gauges"].get("resident_bytes"), entry.get("back_us", 0)
    return ProcessRow(
        instance=entry["instance"],
        role=entry["role"],
        silent=is_silent(entry, then_us),
        stopped=is_stopped(entry),
        pid=gauges.get("pid"),
        age_s=round(max(now_us - entry["time_us"], 0) / 1e6, 1),
        up_s=gauges.get("uptime_s"),
        restarts=entry.get("restarts", 0),
        exit=gauges.get(LAST_EXIT),
        back_s=round(max(then_us - back_us, 0) / 1e6, 1) if back_us else None,
        away_s=round(entry.get("away_us", 0) / 1e6, 1),
        cpu=_rounded(entry["rates"]["cpu_seconds_total"]) if "cpu_seconds_total" in entry["rates"] else None,
        memory_mb=round(resident / 1e6, 1) if resident else None,
        clock_off_ms=gauges.get("clock_off_ms"),
        holds=holdings({name: value for name, value in gauges.items() if _is_held(name)}),
        lag=gauges.get(LAG),
        lags=history.lags((entry["instance"],), then_us),
    )


def _is_held(full: str) -> bool:
    """Tell a gauge of what a process keeps from that of all its memory; those of applications are shown with them."""
    name, labels = parse(full)
    is_room = name.removesuffix("_limit").endswith("_bytes")
    return is_room and name != "resident_bytes" and "application" not in labels


def holdings(gauges: Mapping[str, float]) -> list[Holding]:
    """Return gauges of what takes room, each with its limit if there is one (`held` and `held_limit`)."""
    found = []
    for full, value in sorted(gauges.items()):
        name, labels = parse(full)
        if not name.endswith("_limit"):
            words = " ".join([*labels.values(), name])
            found.append(Holding(name=words, value=value, limit=gauges.get(f"{full}_limit")))
    return found


def _again(risen: Risen, application: str, answers: float) -> dict[str, float]:
    """Return the shares of queries that asked again, or were to: by a plan, or since a model took longer than usual."""
    counts: defaultdict[str, float] = defaultdict(float)
    for key, count in risen.items():
        if key.application == application and (what := _AGAIN.get((key.name, key.rest))) is not None:
            counts[what] += count
    return {what: _rounded(count / answers) for what, count in sorted(counts.items())} if answers else {}


def _of_stages(risen: Risen, application: str) -> dict[str, float]:
    """Return which shares of the rows of a graph's stages have no output, or were left out."""
    return {
        f"of the rows of stage {stage}: {outcome.replace('_', ' ')}": _rounded(
            count / risen[Key("stages_total", application, "", stage)]
        )
        for key, count in sorted(risen.items())
        if key.name == "stages_total" and key.application == application
        for stage, _, outcome in (key.rest.partition(" "),)
        if outcome not in ("", "ok")
    }


def _turned_away(risen: Risen, application: str) -> dict[str, float]:
    """Return what an application was refused for it had its share, queries and what waits for feedback."""
    queries = risen.get(Key("answers_total", application, "", "default over_limit"), 0.0)
    others = {
        key.rest: count
        for key, count in risen.items()
        if key.name == "over_limit_total" and key.application == application and key.rest
    }
    return {"queries": queries} | others if queries else others


def _letters(known: Iterable[Figures], risen: Risen) -> list[LetterRow]:
    totals: dict[tuple[str, str], float] = {}
    for entry in known:
        for full, value in entry["counters"].items():
            name, labels = parse(full)
            if name == "dead_letters_total" and "topic" in labels and "cause" in labels:
                place = labels["topic"], labels["cause"]
                totals[place] = totals.get(place, 0.0) + value
    return [
        LetterRow(
            topic=topic,
            lies_with=_lies_with(topic),
            cause=cause,
            minute=risen.get(Key("dead_letters_total", rest=f"{cause} {topic}"), 0.0),
            total=total,
            command=skysail("dlq", "show", "--topic", _lies_with(topic), "--cause", cause),
        )
        for (topic, cause), total in sorted(totals.items())
    ]


def _lies_with(topic: str) -> str:
    """Return whose letters are in the topic where those of `topic` lie: topics of others share one."""
    return dead_letters(topic).removesuffix(dead_letters(""))


def _defaults(risen: Risen, application: str) -> float | None:
    answers = risen.get(Key("answers_total", application), 0.0)
    return _share(risen, Key("answers_total", application, "", "default"), answers)


def _in_time(risen: Risen, application: str) -> float | None:
    """Return the share of answers that a model gave before the deadline."""
    answers, late = Key("answers_total", application), Key("late_answers_total", application)
    in_vain = risen.get(answers._replace(rest="default"), 0.0) + risen.get(late, 0.0)
    both = risen.get(late._replace(rest="default"), 0.0)
    whole = risen.get(answers, 0.0)
    return max(0.0, _rounded(1.0 - (in_vain - both) / whole)) if whole else None


def _asked(risen: Risen, application: str, model: str) -> float | None:
    """Return the share of an application's questions to models that went to this one."""
    return _share(risen, Key("asked_total", application, model), risen.get(Key("asked_total", application), 0.0))


def _failed(risen: Risen, application: str, model: str, outcome: str) -> float | None:
    """Return the share of an application's questions to a model that ended so."""
    asked = risen.get(Key("asked_total", application, model), 0.0)
    failed = risen.get(Key("failed_outputs_total", application, model, outcome), 0.0)
    return min(1.0, _rounded(failed / asked)) if asked else None  # those of the step before may end in this one


def _loss(risen: Risen, application: str) -> float | None:
    return _mean(risen, "loss_total", "losses_total", application)


def _cost(risen: Risen, application: str, model: str = "") -> float | None:
    """Return what 1,000 answers have cost, in the unit of the application's loss; None where it has none."""
    of = "model_" if model else ""
    if Key(f"{of}cost_total", application, model) not in risen:
        return None
    mean = _mean(risen, f"{of}cost_total", f"{of}losses_total", application, model)
    return None if mean is None else _rounded(1_000 * mean)


def _mean(risen: Risen, total: str, count: str, application: str, model: str = "") -> float | None:
    return _share(risen, Key(total, application, model), risen.get(Key(count, application, model), 0.0))


def _share(risen: Risen, key: Key, whole: float) -> float | None:
    return _rounded(risen.get(key, 0.0) / whole) if whole else None


def _rounded(value: float) -> float:
    return round(value, 4)
