"""Candidates that are to take over on evidence, the steps that were taken, and what a step changes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deploy.errors import UsageError
from deploy.state import catalog, desired, topics
from deploy.state.traffic_split import canaries
from policies import registry
from schemas import topics as names
from schemas.errors import DecodeError
from schemas.records import Application, Candidate, Model, Promotion
from streams.promotion.lifecycle import VERSION
from streams.promotion.verdict import WHOLE, Action
from streams.topology import build

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.promotion.verdict import CandidateStage


def want(settings: Settings, codec: Codec, plan: Candidate) -> None:
    """Publish a wish; the control role carries it out.

    Raises:
        DeployError: the broker refused it.
    """
    topics.create(settings, build(()))  # a deployment of an earlier release has no such topic
    catalog.write(settings, [(names.CANDIDATES, names.candidate(plan.kind, plan.name), codec.encode(plan))])


def withdraw(settings: Settings, kind: str, name: str) -> None:
    """Take a wish back; what it has come to stays.

    Raises:
        DeployError: the broker refused it.
    """
    catalog.write(settings, [(names.CANDIDATES, names.candidate(kind, name), None)])


def wanted(settings: Settings, codec: Codec) -> dict[str, Candidate]:
    """Return the wishes by key, those included that have ended.

    Raises:
        DeployError: the broker stopped answering.
    """
    found: dict[str, Candidate] = {}
    for key, value in _records(settings, names.CANDIDATES):
        found.pop(key, None)
        if value is not None:
            try:
                found[key] = codec.decode(Candidate, value)
            except DecodeError:
                continue
    return found


def steps(settings: Settings, codec: Codec) -> list[Promotion]:
    """Return the steps that were taken, the first ones first.

    Raises:
        DeployError: the broker stopped answering.
    """
    found = []
    for _, value in _records(settings, names.PROMOTIONS):
        try:
            found.append(codec.decode(Promotion, value))
        except DecodeError:
            continue
    return found


def _records(settings: Settings, topic: str) -> list[tuple[str, bytes | None]]:
    if topic not in topics.partition_counts(settings):
        return []
    return [(key.decode("utf-8", "replace"), value) for key, value in catalog.values(settings, topic)]


def note(settings: Settings, codec: Codec, step: Promotion) -> None:
    """Write a step that was taken.

    Raises:
        DeployError: the broker refused it.
    """
    topics.create(settings, build(()))
    catalog.write(settings, [(names.PROMOTIONS, names.candidate(step.kind, step.name), codec.encode(step))])


def carry_out(settings: Settings, codec: Codec, step: Promotion, holdback: float = 0.0) -> None:
    """Change the deployment as a step says; once more changes nothing.

    Args:
        settings: of the deployment.
        codec: of its records.
        step: what is to be done.
        holdback: share of the queries that the incumbent keeps when the candidate takes over.

    Raises:
        UsageError: it cannot be done any more: somebody has changed the deployment.
        DeployError: the broker refused it.
    """
    if step.kind != VERSION:
        if step.action == Action.PROMOTE.value:
            _let_decide(settings, codec, step)
        elif step.action == Action.BACK.value:
            let_learn(settings, codec, step.name, "", instead_of=step.candidate)
        return
    serving = _serving(settings, codec, step.name)
    is_serving = serving.version == step.candidate
    if step.share == WHOLE:
        if not is_serving:
            desired.use(settings, codec, step.name, step.candidate, holdback)
        elif holdback and serving.shares.get(step.incumbent) != holdback:
            desired.run_beside(settings, codec, step.name, step.incumbent, holdback)
    elif step.action == Action.BACK.value:
        _take_back(settings, codec, step, serving)
    elif serving.shares.get(step.candidate) != step.share:
        desired.run_beside(settings, codec, step.name, step.candidate, step.share)


def _take_back(settings: Settings, codec: Codec, step: Promotion, serving: Model) -> None:
    if serving.version == step.candidate:
        desired.switch(settings, codec, step.name, step.incumbent, takes_back=True)
    elif step.candidate in serving.shares:
        desired.run_beside(settings, codec, step.name, step.candidate, None)


def _serving(settings: Settings, codec: Codec, name: str) -> Model:
    known = catalog.read(settings, codec, Model)
    if name not in known:
        raise UsageError(f"there is no model {name}; there are: {', '.join(sorted(known)) or 'none'}")
    return known[name]


def _let_decide(settings: Settings, codec: Codec, step: Promotion) -> None:
    application = catalog.read(settings, codec, Application).get(step.name)
    if application is None:
        raise UsageError(f"there is no application {step.name}")
    deciding = replace(with_policy(application, step.candidate), apprentice="")
    catalog.publish(settings, codec, [desired.checked(deciding)])


def let_learn(settings: Settings, codec: Codec, name: str, policy: str, instead_of: str | None = None) -> None:
    """Let a policy learn along for an application that there is.

    Args:
        settings: of the deployment.
        codec: of its records.
        name: of the application.
        policy: as `policies.registry.spec()` writes it; empty = none.
        instead_of: nothing changes where another policy than this learns along.

    Raises:
        PolicyError: the policy cannot learn along.
        DeployError: the broker refused it.
    """
    application = catalog.read(settings, codec, Application).get(name)
    if application is None or application.apprentice == policy or instead_of not in (None, application.apprentice):
        return
    news = replace(application, apprentice=policy)
    catalog.publish(settings, codec, [desired.checked(news) if policy else news])


def is_apprentice(settings: Settings, codec: Codec, plan: Candidate) -> bool:
    """Tell whether a policy learns along for its application.

    Raises:
        DeployError: the broker stopped answering.
    """
    application = catalog.read(settings, codec, Application).get(plan.name)
    return application is not None and application.apprentice == plan.candidate


def with_policy(application: Application, spec: str) -> Application:
    """Return the application with another policy, given as `policies.registry.spec()` writes it.

    Raises:
        PolicyError: there is no such policy.
    """
    return replace(application, **registry.fields_of(registry.parse(spec)))


def fault_of(
    settings: Settings, codec: Codec, plan: Candidate, stage: CandidateStage, due: Promotion | None = None
) -> str:
    """Say what somebody has changed so that a candidate is no longer where its last step left it; empty = nothing.

    Args:
        settings: of the deployment.
        codec: of its records.
        plan: of the candidate.
        stage: where its last step left it.
        due: the step that it should take now; who stands where that leads has taken it, but has not written it.

    Raises:
        DeployError: the broker stopped answering.
    """
    goes = None if due is None else due.action
    if plan.kind != VERSION:
        return _fault_of_apprentice(plan, catalog.read(settings, codec, Application).get(plan.name), goes)
    serving = catalog.read(settings, codec, Model).get(plan.name)
    if serving is None:
        return f"model {plan.name} was removed"
    if plan.candidate not in (serving.version, *serving.shares):
        is_back = goes == Action.BACK.value and serving.version == plan.incumbent
        return "" if is_back else f"somebody has ended {plan.name} {plan.candidate}"
    if serving.version not in (plan.candidate, plan.incumbent):
        return f"somebody lets {plan.name} {serving.version} serve"
    if not stage.is_promoted and not canaries(serving).get(plan.candidate) and stage.share:
        return "" if serving.version == plan.candidate else f"somebody has made {plan.name} {plan.candidate} a shadow"
    return ""


def _fault_of_apprentice(plan: Candidate, application: Application | None, goes: str | None) -> str:
    policy = None if application is None else policy_of(application)
    if application is None or policy not in (plan.incumbent, plan.candidate):
        return f"application {plan.name} has another policy than {plan.incumbent}, or is gone"
    if policy == plan.candidate:
        return "" if goes == Action.PROMOTE.value else f"somebody lets {plan.candidate} decide for {plan.name}"
    if application.apprentice == plan.candidate or goes == Action.BACK.value:
        return ""
    return f"{plan.candidate} does not learn along any more"


def policy_of(application: Application) -> str:
    """Return an application's policy as its decisions name it."""
    return registry.spec(registry.policy_of(application))
