"""`skysail model promote` and `skysail app promote`: a version or policy takes over when the feedback speaks for it."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from deploy.cli.common import print_json, print_table
from deploy.cli.states import Age
from deploy.errors import UsageError
from deploy.process.progress import shown
from deploy.state import candidates, catalog, desired
from deploy.state.evidence import compared
from deploy.state.priced import priced
from deploy.terminal import echo
from schemas.records import Application, Candidate, Model
from streams.promotion.guardrails import NONE, guardrails, told, watched_of
from streams.promotion.hindrance import Heard, counted_once, hindrance
from streams.promotion.lifecycle import POLICY, VERSION, step
from streams.promotion.verdict import GUARDS, SPENT, WHOLE, Action, Verdict, bounds, fault_of_plan, proof

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from schemas.records import Promotion
    from streams.promotion.evidence import Comparison, Evidence
    from streams.promotion.guardrails import Guardrails

    F = TypeVar("F", bound=Callable[..., Any])

STEPS = (0.05, 0.1, 0.25, 0.5, WHOLE)
LIMITS = {"failures": 0.05, "late": 0.1}
DAY_S = 86_400.0


class Limit(click.ParamType):
    """A guard's limit, as NAME=NUMBER."""

    name = "NAME=NUMBER"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Return name and number."""
        name, equals, text = str(value).partition("=")
        try:
            return name, float(text if equals else "")
        except ValueError:
            self.fail(f"{value!r} is no limit; write it as failures=0.02; guards: {', '.join(GUARDS)}", param, ctx)


def shared_options(function: F) -> F:
    """Give a command what both have in common."""
    options = (
        click.option("--since", type=Age(), help="Observations of this time count: 12h, 7d  [default: 1d]"),
        click.option("--alpha", type=float, default=0.05, show_default=True, help="Probability of being wrong, ever."),
        click.option(
            "--tolerance", type=float, default=0.0, show_default=True, help="Errors a query that it may cost instead."
        ),
        click.option("--least", type=int, default=100, show_default=True, help="Comparisons before the next step."),
        click.option("--end", is_flag=True, help="It takes over by itself no more; what it has come to stays."),
        click.option("--yes-without-evidence", "unproven", is_flag=True, help="Let it take over all the same."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def auto_options(function: F) -> F:
    """Give a command the plan of `--auto`."""
    options = (
        click.option("--steps", default=",".join(f"{share:g}" for share in STEPS), show_default=True, help="Shares."),
        click.option("--auto", is_flag=True, help="The control role goes from step to step, and back."),
        click.option("--holdback", type=float, default=0.0, show_default=True, help="Share that the incumbent keeps."),
        click.option("--dwell", type=float, default=30.0, show_default=True, help="Seconds at each share."),
        click.option("--risk", type=float, default=0.01, show_default=True, help="Errors a query of the next share."),
        click.option("--budget", type=float, default=50.0, show_default=True, help="Errors that it may cost in all."),
        click.option("--limit", "limits", type=Limit(), multiple=True, help=f"Of a guard: {', '.join(GUARDS)}."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def version_plan(settings: Settings, codec: Codec, name: str, **given: Any) -> Candidate:
    """Return the wish for MODEL@VERSION over the version that serves.

    Raises:
        UsageError: there is none such, it serves already, or the plan is impossible.
    """
    model, at, version = name.partition("@")
    if not at or not version:
        raise UsageError(f"{name} names no version; write it as {model or 'forest'}@2")
    serving = catalog.read(settings, codec, Model).get(model)
    if serving is None:
        raise UsageError(f"there is no model {model}; see `skysail model list`")
    known = [each.version for each in catalog.versions(settings, codec)[model]]
    if version not in known:
        raise UsageError(f"there is no version {version} of {model}; there are: {', '.join(known)}")
    if version == serving.version:
        raise UsageError(f"{model} {version} serves already; name another version: {', '.join(known)}")
    asking = [each for each in catalog.read(settings, codec, Application).values() if model in each.models]
    metrics = tuple([watched for each in asking for watched in watched_of(each)])
    return _checked(Candidate(VERSION, model, version, serving.version, **_fields(**given), metrics=metrics))


def policy_plan(settings: Settings, codec: Codec, name: str, policy: str, **given: Any) -> Candidate:
    """Return the wish for a policy over the one that an application has.

    Raises:
        UsageError: there is no such application, it has this policy already, or the plan is impossible.
        PolicyError: there is no such policy.
    """
    application = catalog.read(settings, codec, Application).get(name)
    if application is None:
        raise UsageError(f"there is no application {name}; see `skysail app list`")
    wanted = candidates.policy_of(desired.checked(candidates.with_policy(application, policy)))
    present = candidates.policy_of(application)
    if wanted == present:
        raise UsageError(f"application {name} has the policy {present} already")
    return _checked(Candidate(POLICY, name, wanted, present, **_fields(**given), metrics=watched_of(application)))


def _fields(since: float | None, *, steps: str = "0,1", dwell: float = 0.0, **others: Any) -> dict[str, Any]:
    others["limits"] = dict(others.get("limits", ()))
    try:
        shares = tuple(float(part) for part in steps.split(","))
    except ValueError:
        raise UsageError(f"{steps!r} are no shares; write them as 0.05,0.25,1") from None
    since_us = time.time_ns() // 1000 - int((DAY_S if since is None else since) * 1e6)
    return others | {"steps": shares, "since_us": since_us, "dwell_us": int(dwell * 1e6)}


def _checked(plan: Candidate) -> Candidate:
    fault = fault_of_plan(plan)
    if fault:
        raise UsageError(fault)
    return plan


def take_over(
    settings: Settings, codec: Codec, plan: Candidate, application: str, *, unproven: bool, as_json: bool
) -> None:
    """Let a candidate take over if the evidence speaks for it.

    Raises:
        UsageError: it does not; the message says what is missing.
    """
    with shown(None if as_json else Console(stderr=True)) as progress:
        heard = Heard(plan)
        comparison = compared(settings, codec, plan, application, learns_along=False, progress=progress, heard=heard)
    evidence, beside = comparison.evidence(plan.alpha), guardrails(plan, comparison)
    is_proven = evidence.lower > -plan.tolerance and not beside.lacks
    if not is_proven and not unproven:
        never = never_compared(settings, codec, plan, application)
        price = priced(compared_in(settings, codec, comparison), evidence)
        raise UsageError(refusal(plan, evidence, never, heard.lacks, beside, price))
    reason = proof(plan, evidence) if is_proven else "without evidence, as asked"
    if plan.kind == POLICY and not candidates.is_apprentice(settings, codec, plan):
        echo(anew(plan), err=True)
    verdict = Verdict(Action.PROMOTE, WHOLE, reason)
    taken = step(plan, verdict, evidence, time.time_ns() // 1000, metrics=beside.metrics)
    candidates.carry_out(settings, codec, taken, plan.holdback)
    candidates.note(settings, codec, taken)
    if as_json:
        print_json(taken._asdict() | {"metrics": [one._asdict() for one in taken.metrics]})
        return
    said = f"{_named(plan)} takes over from {plan.incumbent}: {reason}: {bounds(evidence)}, {_comparisons(evidence)}"
    said += priced(compared_in(settings, codec, comparison), evidence)
    echo(said, *[f"  {line}" for line in metric_lines(beside)])
    echo(f"to go back: {_back(plan)}")


def anew(plan: Candidate) -> str:
    """Say that a policy that has not learnt along knows nothing when it takes over."""
    return (
        f"{_named(plan)} starts anew, unless it decided or learnt along here some minutes ago; with --apprentice it"
        " learns first, and keeps what it has learnt"
    )


def never_compared(settings: Settings, codec: Codec, plan: Candidate, application: str = "") -> str:
    """Say why nothing that is deployed can compare a candidate with its incumbent; empty = something can.

    Args:
        settings: of the deployment.
        codec: of its records.
        plan: of the candidate.
        application: whose losses count; empty = those of all that ask the model.
    """
    serving = catalog.read(settings, codec, Model).get(plan.name) if plan.kind == VERSION else None
    applications = catalog.read(settings, codec, Application).values()
    asking = [each for each in applications if application in ("", each.name)]
    return hindrance(plan, asking, None if serving is None else serving.shares.get(plan.candidate))


def compared_in(settings: Settings, codec: Codec, comparison: Comparison) -> list[Application]:
    """Return the applications whose losses are compared."""
    known = catalog.read(settings, codec, Application)
    return [known[name] for name in comparison.applications if name in known]


def metric_lines(beside: Guardrails) -> list[str]:
    """Return a line for each metric: by how much the candidate is better or worse, with bounds, in its unit."""
    return [f"{one.application} {one.metric}: {told(one)}" for one in beside.metrics]


def refusal(
    plan: Candidate, evidence: Evidence, never: str = "", lacks: str = "", beside: Guardrails = NONE, price: str = ""
) -> str:
    """Say what is missing before a candidate may take over.

    Args:
        plan: of the candidate.
        evidence: on it.
        never: why nothing that is deployed can compare the two; empty = something can.
        lacks: what the observations lack for it; empty = nothing.
        beside: what its metrics say.
        price: the difference in the unit of costs; empty = there is none.
    """
    more = {None: "no number of such comparisons would be enough", 0: "enough"}.get(
        evidence.missing, f"about {evidence.missing or 0:,} more needed"
    )
    known = _comparisons(evidence)
    said = f"{_named(plan)} is not shown to be better than {plan.incumbent}: {known}, {more};"
    said = f"{said} {bounds(evidence)}{price}"
    if not evidence.pairs and evidence.waiting:
        said = f"nothing is known yet about {_named(plan)} beside {plan.incumbent}: {_waiting(plan, evidence)}"
    elif not evidence.pairs:
        said = f"nothing is known about {_named(plan)} beside {plan.incumbent}: no observation compares them"
        if never or lacks:
            said += f": {never or lacks}"
        if plan.kind == VERSION and not never:
            said += f"; let it see the queries: skysail model promote {plan.name}@{plan.candidate} --shadow"
    elif evidence.lower > -plan.tolerance and beside.lacks:
        said = f"{_named(plan)} is better than {plan.incumbent} by its loss: {bounds(evidence)}; but {beside.lacks}"
    elif evidence.upper < 0.0:
        said = f"{_named(plan)} is worse than {plan.incumbent}: {known}; {bounds(evidence)}"
    said = "; ".join((said, *([SPENT] if evidence.is_spent else []), *metric_lines(beside)))
    return f"{said}. To let it take over all the same: --yes-without-evidence"


def _waiting(plan: Candidate, evidence: Evidence) -> str:
    """Say that people count later, and where to look until then."""
    said = f"what somebody costs counts an hour after their first feedback, and {evidence.waiting:,} wait for that"
    so_far = f"skysail model compare {plan.name}@{plan.candidate}"
    return f"{said}; how it stands so far: {so_far}" if plan.kind == VERSION else said


def _comparisons(evidence: Evidence) -> str:
    """Return how many comparisons there are, and how many queries tell nothing, such as those a shadow is silent on."""
    left = f", beside {evidence.left_out:,} queries that tell nothing" if evidence.left_out else ""
    return f"{evidence.pairs:,} comparisons{left}"


def _named(plan: Candidate) -> str:
    return f"{plan.name} {plan.candidate}" if plan.kind == VERSION else f"{plan.candidate} of {plan.name}"


def _back(plan: Candidate) -> str:
    if plan.kind == VERSION:
        return f"skysail model use {plan.name} {plan.incumbent}"
    return f"skysail app promote {plan.name} --policy '{plan.incumbent}' --yes-without-evidence"


def leave_to_control(settings: Settings, codec: Codec, plan: Candidate, *, as_json: bool) -> None:
    """Publish a wish; its observations count from now on. A policy begins to learn along."""
    plan = replace(plan, since_us=time.time_ns() // 1000)
    if plan.kind == POLICY:
        candidates.let_learn(settings, codec, plan.name, plan.candidate)
    candidates.want(settings, codec, plan)
    why = never_compared(settings, codec, plan)
    once = counted_once(plan, catalog.read(settings, codec, Application).values())
    if as_json:
        metrics = [one._asdict() for one in plan.metrics]
        print_json(asdict(plan) | {"metrics": metrics, "cannot_be_compared": why, "counted_once": once})
        return
    shares = ", ".join(f"{share:g}" for share in plan.steps)
    if plan.kind == VERSION:
        echo(f"{_named(plan)} is a candidate: the control role takes it through the shares {shares}")
    else:
        echo(f"{_named(plan)} is an apprentice: it learns along and answers nothing until it is as good")
    if why:
        echo(f"it stays where it begins, as it cannot be compared: {why}", err=True)
    if once:
        echo(once, err=True)
    echo(f"watch it: skysail {_group(plan.kind)} show {plan.name}; take it back: {_end(plan)}")


def _group(kind: str) -> str:
    return "model" if kind == VERSION else "app"


def _end(plan: Candidate) -> str:
    if plan.kind == VERSION:
        return f"skysail model promote {plan.name}@{plan.candidate} --end"
    return f"skysail app promote {plan.name} --end"


def end(settings: Settings, codec: Codec, kind: str, name: str, *, as_json: bool) -> None:
    """Take a wish back; an apprentice learns no more."""
    candidates.withdraw(settings, kind, name)
    if kind == POLICY:
        candidates.let_learn(settings, codec, name, "")
    if as_json:
        print_json({"ended": name})
    elif kind == POLICY:
        echo(f"no policy learns along for {name} any more")
    else:
        echo(f"nothing takes over from what {name} has by itself any more; its shares stay as they are")


def print_course(settings: Settings, codec: Codec, kind: str, name: str) -> None:
    """Print the candidate that a model or an application has, if any, and its last steps."""
    taken = [each for each in candidates.steps(settings, codec) if (each.kind, each.name) == (kind, name)]
    plan = next((p for p in candidates.wanted(settings, codec).values() if (p.kind, p.name) == (kind, name)), None)
    if plan is not None and not _is_over(plan, taken):
        heard = Heard(plan)
        comparison = compared(settings, codec, plan, learns_along=True, heard=heard)
        evidence = comparison.evidence(plan.alpha)
        echo(
            "",
            f"candidate {_named(plan)}: {_comparisons(evidence)} with {plan.incumbent}; {bounds(evidence)}"
            + priced(compared_in(settings, codec, comparison), evidence),
            *[f"  {line}" for line in metric_lines(guardrails(plan, comparison))],
        )
        if not evidence.pairs and (why := never_compared(settings, codec, plan) or heard.lacks):
            echo(f"it cannot be compared: {why}")
        if evidence.is_spent:
            echo(f"it grows no more: {SPENT}")
    if taken:
        echo("", "steps:")
        print_table(*steps_table(taken[-10:]))


def _is_over(plan: Candidate, taken: list[Promotion]) -> bool:
    over = {Action.BACK.value, Action.END.value, *((Action.PROMOTE.value,) if plan.kind == POLICY else ())}
    return any(each.since_us == plan.since_us and each.action in over for each in taken)


def steps_table(taken: list[Promotion]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return heads and rows of steps, for a person."""
    heads = ("time", "candidate", "action", "share", "comparisons", "difference", "reason")
    rows: list[tuple[str, ...]] = [
        (
            time.strftime("%m-%d %H:%M:%S", time.localtime(each.time_us / 1e6)),
            each.candidate,
            each.action,
            f"{each.share:g}",
            f"{each.pairs:,}",
            f"{each.difference:.3f} [{each.lower:.3f}, {each.upper:.3f}]",
            each.reason,
        )
        for each in taken
    ]
    return heads, rows


def limits_of(given: tuple[tuple[str, float], ...]) -> Mapping[str, float]:
    """Return the limits of guards: the usual ones, and what was given."""
    return {**LIMITS, **dict(given)}
