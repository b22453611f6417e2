"""Alerts of an application: the fault, whose it is, and the next command."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import TYPE_CHECKING, Final, Literal

from policies.estimators.two_windows import coin_entropy
from streams.control.history import Key
from streams.control.page.page_types import Alert, ApplicationRow, run, skysail
from streams.operators.times import span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from streams.control.history import Risen
    from streams.control.page.page_types import ApplicationRow, ModelRow

# One in twenty is what an application's users notice. Fewer answers than this say little: they warn.
MANY, FEW = 0.05, 20
# Losses lie in [0, 1]. With a mean this large nearly all are 1, and distinguish no models.
ALL_LOST = 0.98
# Why answers are late: a process has one thread, so it is at its limit before it uses a core in full.
BUSY = "selection is at its limit, start another one", run("selection")
NOT_BUSY = "queries come late to selection, or the machine is too busy with other things", skysail("doctor")
# Meanings of the reasons for defaults, each with the next command (`{application}` and `{model}` are filled in).
_NEXT = ("tail", "model-predictions", "--count", "5")
_SHOW = ("app", "show", "{application}")
_WORKER = ("run", "--role", "worker", "--model", "{model}")
REASONS = {
    "deadline": ("no model had answered by the deadline", _NEXT),
    "expired_in_queue": ("models have more queries than they can answer in time", _WORKER),
    "expired": ("queries came after their deadline: see the lag of selection", ("doctor",)),
    "invalid_input": ("inputs do not have the shape or type that the models take", _SHOW),
    "low_confidence": ("the models do not agree enough for confidence_floor", _SHOW),
    "model_failed": ("models raise: their workers' logs say what", _NEXT),
    "no_model_in_time": ("no model is quick enough for the queries' deadlines", _SHOW),
    "not_ranked": (
        "candidates could not be ranked: the message of each says why",
        ("tail", "predictions", "--count", "5"),
    ),
    "over_limit": ("it has more in hand than its share: it asks faster than it is answered", _SHOW),
    "overloaded": ("models have more queries than they can answer in time", _WORKER),
    "oversized_outputs": ("its models' outputs are too large for one record", _SHOW),
    "policy_failed": ("its policy raises, or returns what cannot be: see skysail policy check", _SHOW),
    "too_many_features": ("queries have more features than the policy counts", _SHOW),
    "unknown_application": ("no such application is deployed", ("app", "list")),
    "unknown_model": ("a model of it is not deployed", ("model", "list")),
    "unknown_version": ("queries name a version that does not run, or does not answer", ("model", "list")),
}


def application(
    row: ApplicationRow, risen: Risen, served: Collection[str], follows: Collection[str], *, is_busy: bool
) -> Iterator[Alert]:
    """Return what is wrong with one application.

    Args:
        row: as it is shown.
        risen: counters in the last minute.
        served: models with a worker, also a silent one that has an alert of its own.
        follows: figures that follow from another alert.
        is_busy: selection uses a core in full.
    """
    name = row["name"]
    told: set[str] = set()  # reasons that a model's alert explains
    for model in row["models"]:
        if model["name"] not in served:
            text = f"{name}: no worker serves {model['name']}"
            yield Alert(level="bad", text=text, command=run(f"worker.{model['name']}"))
        if failing := _failing(name, model):
            told.add("model_failed")
            yield failing
    if wrong := _wrong_inputs(row, risen):
        told.add("invalid_input")
        yield wrong
    answers = risen.get(Key("answers_total", name), 0.0)
    if answers >= FEW:
        yield from (alert for figure, alert in _answers(row, told, is_busy=is_busy) if figure not in follows)
    elif (row["defaults"] or 0.0) > MANY and "defaults" not in follows:
        yield _default(row, f"{(row['defaults'] or 0.0) * answers:.0f} of {answers:.0f} answers", "warn")
    losses = risen.get(Key("losses_total", name), 0.0)
    if losses >= FEW and (row["loss"] or 0.0) >= ALL_LOST and "losses" not in follows:
        text = (
            f"{name}: nearly every loss is 1, the largest there is, so nothing is learnt from them. For numbers, set"
            " `span` to how far answers may be off; for labels, check that feedback names them as the models do"
        )
        yield Alert(level="warn", text=text, command=skysail("app", "show", name))
    yield from broken(row)
    for what, count in row["turned_away"].items():
        if what != "queries":  # whose answers say so
            text = f"{name} has its share of what may wait: {count:.0f} {what} were turned away in the last minute"
            yield Alert(level="warn", text=text, command=skysail("app", "show", name))


def _wrong_inputs(row: ApplicationRow, risen: Risen) -> Alert | None:
    """Say that clients send what models do not take, once for all models; only this application's queries count."""
    asked = {model["name"]: risen.get(Key("asked_total", row["name"], model["name"]), 0.0) for model in row["models"]}
    wrong = [model for model in row["models"] if (model["invalid"] or 0.0) > MANY and asked[model["name"]] >= FEW]
    if not wrong:
        return None
    shares = ", ".join(f"{model['name']} ({model['invalid']:.0%} of its queries)" for model in wrong)
    text = f"clients of {row['name']} send inputs that are not taken by {shares}. Their answers say what is wrong"
    return Alert(level="bad", text=text, command=skysail("model", "show", wrong[0]["name"]))


def _failing(application: str, model: ModelRow) -> Alert | None:
    """Say that a model fails on an application's inputs."""
    if (model["failed"] or 0.0) <= MANY:
        return None
    name = model["name"]
    text = f"{application}: {name} fails on {model['failed']:.0%} of its inputs; its worker's log says why"
    return Alert(level="bad", text=text, command=skysail("model", "show", name))


def _answers(row: ApplicationRow, told: Collection[str], *, is_busy: bool) -> Iterator[tuple[str, Alert]]:
    """Return the faults of the answers, each with its figure."""
    name = row["name"]
    if (row["defaults"] or 0.0) > MANY and _usual_reason(row) not in told:
        yield "defaults", _default(row, f"{row['defaults']:.0%} of the answers", "bad")
    if (row["late"] or 0.0) > MANY:
        why, command = BUSY if is_busy else NOT_BUSY
        text = f"{name}: {row['late']:.0%} of the answers left after their deadline: {why}"
        yield "late", Alert(level="bad", text=text, command=command)
    if (row["without_state"] or 0.0) > MANY:
        text = (
            f"{name}: {row['without_state']:.0%} of its queries were decided before their policy's state was read:"
            " Redis is slow, or more users come than selection.states remembers"
        )
        yield "without_state", Alert(level="warn", text=text, command=skysail("doctor"))


def _default(row: ApplicationRow, which: str, level: Literal["bad", "warn"]) -> Alert:
    """Say that so many answers are the default, why most of them are, and what to type."""
    name, model, reason = row["name"], _busiest(row), _usual_reason(row)
    meaning, words = REASONS.get(reason, (reason.replace("_", " "), ("tail", "predictions", "--count", "5")))
    if reason == "expired" and row["sent_ago_ms"] is not None:
        ago = span(int(row["sent_ago_ms"] * 1_000))
        meaning = f"they come expired: sent {ago} ago by their senders' clocks. Set these (NTP), or see selection's lag"
    if "{model}" in words and not model:
        words = _SHOW
    text = f"{name}: {which} are the default, most because {meaning}"
    filled = (word.replace("{application}", name).replace("{model}", model) for word in words)
    return Alert(level=level, text=text, command=skysail(*filled))


def _usual_reason(row: ApplicationRow) -> str:
    return max(row["reasons"], key=lambda reason: row["reasons"][reason], default="")


def _busiest(row: ApplicationRow) -> str:
    models = row["models"]
    return max(models, key=lambda model: model["queue_rows"] or 0.0)["name"] if models else ""


# One looks at five minutes once a second: a year has 100,000 such stretches that do not overlap.
CHANCE: Final = 1e-6
_HALVINGS: Final = 40


def at_most(held: float, count: float) -> float:
    """Return the largest share of sets that hold the true label, given that a share `held` of so many did.

    Of `count` independent sets that each hold it with probability q or more, a share of h < q or fewer hold it with a
    probability of at most exp(-count * KL(h, q)), KL being the relative entropy of two coins (Chernoff, 1952). So that
    share is at most the q at which this is `CHANCE`.
    """
    low, high = held, 1.0
    for _ in range(_HALVINGS if count else 0):
        middle = (low + high) / 2.0
        low, high = (low, middle) if count * coin_entropy(held, middle) > -log(CHANCE) else (middle, high)
    return high


def broken(row: ApplicationRow) -> Iterator[Alert]:
    """Return the alert where sets or intervals hold less than was promised, and chance does not explain it."""
    coverage = row["coverage"]
    if coverage is None or coverage["held"] is None or coverage["at_most"] >= coverage["promised"]:
        return
    text = (
        f"{row['name']}: {coverage['held']:.1%} of {coverage['judged']:.0f} {coverage['of']} held the true one in the"
        f" last five minutes; promised are {coverage['promised']:.1%}, and by chance there are so few once in a million"
        " times. Inputs, labels or models have changed: with feedback they grow until the promise is kept again"
    )
    yield Alert(level="bad", text=text, command=skysail("app", "show", row["name"]))
