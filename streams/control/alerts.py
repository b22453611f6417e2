"""What is wrong, in words, and the next command to type; the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streams.control.history import Key
from streams.control.shown import Alert

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from streams.control.history import Risen, Series
    from streams.control.shown import ApplicationRow, LetterRow, ProcessRow

# One default in twenty is what an application's users notice; fewer answers than this say little.
MANY_DEFAULTS, MANY_LATE, MANY_FAILED, FEW_ANSWERS = 0.05, 0.05, 0.05, 20
# How long a restart is worth telling.
A_NIGHT_S = 43_200.0
# A lag is growing if it is above what a poll brings and twice what it was half a minute ago.
LAG_RECORDS, LAG_STEPS = 500, 6
ROLES = {
    "selection": "queries are not answered",
    "joiner": "feedback is not joined; it waits in Kafka",
    "learner": "nothing is learnt; observations wait in Kafka",
}
WORKER = "worker."
# Why answers are late: a process has one thread, so it is at its limit before it uses a core in full.
BUSY_CORES = 0.8
BUSY = "selection is at its limit, start another one", "skysail run --role selection"
NOT_BUSY = "queries come late to selection, or the machine is too busy with other things", "skysail doctor"
# Why answers were defaults: what it means, and what to type next.
REASONS = {
    "deadline": ("no model had answered by the deadline", "skysail tail model-predictions --count 5"),
    "expired_in_queue": (
        "models have more queries than they can answer in time",
        "skysail run --role worker --model {model}",
    ),
    "expired": ("queries came after their deadline: see the lag of selection", "skysail doctor"),
    "invalid_input": ("inputs do not have the shape or type that the models take", "skysail tail queries --count 1"),
    "low_confidence": ("the models do not agree enough for confidence_floor", "skysail app show {application}"),
    "model_failed": ("models raise: their workers' logs say what", "skysail tail model-predictions --count 5"),
    "no_model_in_time": ("no model is quick enough for the queries' deadlines", "skysail app show {application}"),
    "overloaded": (
        "models have more queries than they can answer in time",
        "skysail run --role worker --model {model}",
    ),
    "oversized_outputs": ("what its models answer is too large for one record", "skysail app show {application}"),
    "too_many_features": ("queries have more features than the policy counts", "skysail app show {application}"),
    "unknown_application": ("no such application is deployed", "skysail app list"),
    "unknown_model": ("a model of it is not deployed", "skysail model list"),
    "unknown_version": ("queries name a version that does not run, or does not answer", "skysail model list"),
}


def alerts(
    applications: Sequence[ApplicationRow],
    processes: Sequence[ProcessRow],
    letters: Sequence[LetterRow],
    risen: Risen,
    versions: Mapping[str, str],
) -> list[Alert]:
    """Return what is wrong.

    Args:
        applications: as they are shown.
        processes: as they are shown.
        letters: dead letters, as they are shown.
        risen: counters in the last minute.
        versions: of the models that a worker serves.
    """
    served = {*versions, *(row["role"][len(WORKER) :] for row in processes if row["role"].startswith(WORKER))}
    is_busy = any(row["role"] == "selection" and (row["cpu"] or 0.0) > BUSY_CORES for row in processes)
    found = [
        *_silence(processes),
        *_deaths(processes),
        *(each for row in applications for each in _application(row, risen, served, is_busy=is_busy)),
        *_failures(risen),
        *_lags(processes),
        *_letters(letters),
    ]
    return sorted(found, key=lambda alert: alert["level"])


def _silence(processes: Sequence[ProcessRow]) -> Iterator[Alert]:
    live = {process["role"] for process in processes if not process["silent"]}
    heard = {process["role"] for process in processes}
    for process in processes:
        role = process["role"]
        if process["silent"] and role not in live:
            what = ROLES.get(
                role, "its model answers nothing" if role.startswith(WORKER) else "its figures are missing"
            )
            text = f"{process['instance']} was last heard {process['age_s']:.0f} s ago: {what}"
            yield Alert(level="bad", text=text, command=_start(role))
        elif process["silent"]:
            text = f"{process['instance']} was last heard {process['age_s']:.0f} s ago; others of its role go on"
            yield Alert(level="warn", text=text, command="skysail doctor")
    for role, what in ROLES.items():
        if role not in heard and heard - {"control"}:
            yield Alert(level="bad", text=f"no {role} reports: {what}", command=_start(role))


def _deaths(processes: Sequence[ProcessRow]) -> Iterator[Alert]:
    for process in processes:
        up_s = process["up_s"] or 0.0
        is_page = process["role"] == "control"  # which does not know of itself whether it had been told to stop
        if process["restarts"] and up_s < A_NIGHT_S and not is_page:
            ago = f"the last time {up_s / 60:.0f} min ago ({process['restarts']} in all)"
            text = f"{process['instance']} died and was started again, {ago}; its log says why"
            yield Alert(level="warn", text=text, command="skysail doctor")


def _start(role: str) -> str:
    return (
        f"skysail run --role worker --model {role[len(WORKER) :]}"
        if role.startswith(WORKER)
        else f"skysail run --role {role}"
    )


def _application(row: ApplicationRow, risen: Risen, served: Collection[str], *, is_busy: bool) -> Iterator[Alert]:
    name, answers = row["name"], risen.get(Key("answers_total", row["name"]), 0.0)
    for model in row["models"]:
        if model["name"] not in served:  # a silent worker has been told of
            text = f"{name}: no worker serves {model['name']}"
            yield Alert(level="bad", text=text, command=f"skysail run --role worker --model {model['name']}")
        if (model["failed"] or 0.0) > MANY_FAILED:
            text = f"{name}: {model['name']} fails on {model['failed']:.0%} of its rows; its worker's log says why"
            yield Alert(level="bad", text=text, command=f"skysail model rollback {model['name']}")
    if answers < FEW_ANSWERS:
        return
    if (row["defaults"] or 0.0) > MANY_DEFAULTS:
        reason = max(row["reasons"], key=lambda reason: row["reasons"][reason])
        meaning, command = REASONS.get(reason, (reason, "skysail tail predictions --count 5"))
        text = f"{name}: {row['defaults']:.0%} of the answers are the default, most because {meaning}"
        yield Alert(level="bad", text=text, command=command.format(application=name, model=_busiest(row)))
    if (row["late"] or 0.0) > MANY_LATE:
        why, command = BUSY if is_busy else NOT_BUSY
        text = f"{name}: {row['late']:.0%} of the answers left after their deadline: {why}"
        yield Alert(level="bad", text=text, command=command)


def _busiest(row: ApplicationRow) -> str:
    models = row["models"]
    return max(models, key=lambda model: model["queue_rows"] or 0.0)["name"] if models else ""


def _failures(risen: Risen) -> Iterator[Alert]:
    if risen.get(Key("store_failures_total")):
        text = "Redis does not answer: decisions go by the states last read, and nothing new is learnt until it is back"
        yield Alert(level="bad", text=text, command="skysail doctor")
    if failures := risen.get(Key("kernel_failures_total")):
        text = f"{failures:.0f} errors of the program itself in the last minute; the logs have them"
        yield Alert(level="bad", text=text, command="skysail doctor")


def _lags(processes: Sequence[ProcessRow]) -> Iterator[Alert]:
    for process in processes:
        if not process["silent"] and _is_growing(process["lags"]):
            text = f"{process['instance']} falls behind: {process['lags'][-1]:,.0f} records are unread, and it grows"
            yield Alert(level="warn", text=text, command=_start(process["role"]))


def _is_growing(lags: Series) -> bool:
    newest, before = lags[-1], lags[-1 - LAG_STEPS]
    return newest is not None and before is not None and newest > LAG_RECORDS and newest > 2 * before


def _letters(letters: Sequence[LetterRow]) -> Iterator[Alert]:
    for row in letters:
        if row["minute"]:
            text = f"{row['minute']:.0f} dead letters in the last minute: {row['topic']}, cause {row['cause']}"
            yield Alert(level="warn", text=text, command=f"skysail tail {row['topic']}.dlq --from-beginning --end")
