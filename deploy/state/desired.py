"""Desired state from the settings and from earlier publications: applications, models, topology."""

from __future__ import annotations

import difflib
import json
import logging
import time
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from deploy.config.folder import load_notes
from deploy.errors import UsageError
from deploy.state import catalog, graphs, metrics, packages, topics
from deploy.state.graphs import NO_PROFILES
from deploy.state.history import following, last_served
from deploy.state.labels import standing
from deploy.state.traffic_split import (
    canaries,
    check_successor,
    check_unlabelled,
    ended,
    given,
    instead,
    without_canaries,
)
from policies import registry
from policies.loss_rules import rule, written
from policies.outside import comes_from_outside
from schemas.errors import DecodeError
from schemas.records import Application, Cross, Model, Source
from schemas.topics import MODEL_PARTITIONS, MODEL_VERSION, MODELS, QUERIES, check_name, model_queries
from streams import rights, topology
from streams.checks import Finding
from streams.mapping.spec import TopicMapping
from streams.operators.configuration import (
    apprentice_of,
    check,
    check_answering,
    check_graph,
    check_ranking,
    check_tensors,
)
from workers.packages.load_notes import LoadNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from deploy.config.settings import ApplicationSettings, Settings
    from schemas.codec import Codec
    from schemas.records import Profile, Service
    from streams.rights import Right
    from streams.topology import Topology

_log = logging.getLogger(__name__)

# Creates missing topics. The embedded broker knows no CreateTopics request and has its own way.
NO_MODELS: Mapping[str, Model] = MappingProxyType({})
CreateTopics: TypeAlias = "Callable[[Settings, Topology], object]"


def models(settings: Settings) -> list[Model]:
    """Return the records of the packages that the settings name.

    Raises:
        PackageError: a folder is no package, or one that the settings do not trust.
        UsageError: a package is not there, or has another name than in the settings.
    """
    packages.require_keys(settings)
    records = []
    for name, package in settings.models.items():
        if not package.is_dir():
            raise UsageError(
                f"models.{name}: there is no folder {package}; package the model there (`skysail model package"
                " --help`), or correct the path: relative ones start at the folder of the settings file"
            )
        record = packages.model_record(package, settings)
        if record.name != name:
            message = f"models.{name}: the package in {package} is called {record.name}; use that name in the settings"
            raise UsageError(message)
        records.append(record)
    return records


def applications(settings: Settings, profiles: Mapping[str, Profile] = NO_PROFILES) -> list[Application]:
    """Return the records of the applications that the settings name.

    Args:
        settings: of the deployment.
        profiles: what batches of models take, for splitting the time over stages; the settings may say it, too.

    Raises:
        PolicyError: there is no such policy or parameter; names the nearest.
        UsageError: an application is impossible.
    """
    records = [
        checked(asking(Application(name=name, **_fields(name, app, profiles)), app.models))
        for name, app in settings.applications.items()
    ]
    _check_readers(settings)
    longest_s = settings.joiner.window_s
    for application in records:
        if application.window_s > longest_s:
            message = f"applications.{application.name}: window_s is {application.window_s:g}, over joiner.window_s"
            raise UsageError(f"{message} ({longest_s:g}); set joiner.window_s at least as long, for joiner and learner")
        _check_mapping(application, settings)
    return records


def _check_mapping(application: Application, settings: Settings) -> None:
    """Refuse feedback by key on answers that wait no longer, and schemas of a registry that nobody names."""
    from streams.mapping.spec import TopicMapping

    if not application.mapping:
        return
    mapping, name = TopicMapping.parse(application.mapping), f"applications.{application.name}"
    if mapping.has_registry and settings.registry.url is None:
        raise UsageError(f"{name} maps topics by a registry's schemas: set `registry.url`")
    for place, told in enumerate(mapping.feedback):
        if told.within_us > application.window_s * 1e6:
            raise UsageError(
                f"{name}.feedback[{place}]: within is {told.within_us / 1e6:g} s, over window_s"
                f" ({application.window_s:g}): no answer waits so long; set window_s at least as long"
            )


def half_known(settings: Settings, profiles: Mapping[str, Profile] = NO_PROFILES) -> Iterator[str]:
    """Yield warnings for graphs of which it is known what batches of some stages take, and not of all."""
    found = (graphs.half_known(name, app, profiles) for name, app in settings.applications.items())
    return filter(None, found)


def _fields(name: str, app: ApplicationSettings, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    fields = app.model_dump(exclude={"rate", "stages", "incoming", "to", "feedback", "metrics"})
    sources = tuple([Source(**source.model_dump()) for source in app.sources])
    crosses = tuple([Cross(cross.of[0], cross.of[1], cross.width) for cross in app.crosses])
    fields |= {"sources": sources, "crosses": crosses, "metrics": metrics.recorded(app)}
    fields |= {"stages": graphs.staged(name, app, profiles), "mapping": mapped(app)}
    loss = written(app.loss)
    fields |= {"loss": loss.text, "span": app.span if loss.span is None else loss.span}
    _check_span(name, fields)
    return fields | registry.recorded(app.policy, fields["parameters"])


def _check_span(name: str, fields: Mapping[str, Any]) -> None:
    """Refuse bounds on teachers where a span is learnt: it follows every label, also those beyond the bounds."""
    judged = rule(fields["loss"])
    is_learnt = judged.has_span and judged.span is None and fields["span"] is None
    if is_learnt and (fields["lessons_per_teacher"] or fields["lessons_per_context"]):
        raise UsageError(
            f"applications.{name}: lessons_per_teacher and lessons_per_context need a span, as one that is learnt"
            " follows every label, whoever tells it; say which error costs 1, such as span: 50"
        )


def _check_readers(settings: Settings) -> None:
    """Refuse two applications that read one topic of others."""
    readers: dict[str, str] = {}
    for name, app in settings.applications.items():
        for topic in sorted(TopicMapping.parse(mapped(app)).reads):
            if (other := readers.setdefault(topic, name)) != name:
                raise UsageError(
                    f"applications.{name} and applications.{other} read topic {topic}: one application reads a topic;"
                    " give one application the models of both, or have the records copied"
                )


def mapped(app: ApplicationSettings) -> str:
    """Return what an application has of others' topics, as its record says it; "" = nothing."""
    given = {"from": app.incoming, "to": app.to, "feedback": app.feedback}
    said = {key: value for key, value in given.items() if value}
    return json.dumps(said) if said else ""


def rights_of(settings: Settings, topology: Topology) -> Mapping[str, tuple[Right, ...]]:
    """Return who may do what on Kafka, by principal, others' topics that the mappings name included."""
    mappings = [TopicMapping.parse(mapped(app)) for app in settings.applications.values()]
    writes = {each.outgoing.form.topic for each in mappings if each.outgoing is not None}
    reads, acts = {name for each in mappings for name in each.reads}, settings.control.tokens is not None
    return rights.rights(topology, settings.prefix, reads, writes, acts=acts)


def asking(application: Application, models: Sequence[str]) -> Application:
    """Return the application with these models, each MODEL or MODEL@VERSION; a version may be a label, too."""
    parts = [model.partition(MODEL_VERSION) for model in models]
    versions = {name: version for name, _, version in parts if version}
    return replace(application, models=tuple(name for name, _, _ in parts), versions=versions)


def verify(settings: Settings) -> None:
    """Check the settings alone, before anything starts; raises the same errors as `establish`."""
    models(settings)
    applications(settings)


def checked(application: Application, models: Mapping[str, Model] = NO_MODELS) -> Application:
    """Return the application if the roles can run it.

    Args:
        application: that is wanted.
        models: those that are known, by name.

    Raises:
        PolicyError: its policy cannot exist; names the nearest policy or parameter.
        SchemaError: its name cannot be one.
        UsageError: anything else about it is impossible.
    """
    check_name(application.name, "application")
    policy = registry.policy_of(application)
    policy.init(len(application.models))
    apprentice_of(application, policy)
    check_answering(application, policy)
    check_ranking(application, policy)
    check_graph(application, policy)
    check_tensors(application, policy, models)
    try:
        check(application)
    except DecodeError as error:
        raise UsageError(str(error)) from error
    return application


def build(settings: Settings, known: Mapping[str, Model | None]) -> Topology:
    """Return the topology for these models; those that the settings run inline have no topic.

    Args:
        settings: of the deployment.
        known: models by name, as they are published; None = not yet.
    """
    apart = {name: model for name, model in known.items() if name not in settings.selection.named_inline}
    counts = {name: _partitions(settings, name) if model is None else model.partitions for name, model in apart.items()}
    return topology.build(
        apart,
        settings.partitions,
        counts,
        window_ms=int(settings.joiner.window_s * 1000),
        retention_ms={name: int(days * topology.DAY_MS) for name, days in settings.kept_days.items()},
        record_bytes=settings.max_input_kib << 10,
        hosts={pool: [name for name in apart if settings.pool_of(name) == pool] for pool in settings.hosts},
        most_bytes={QUERIES: int(settings.keep_inputs.gib * (1 << 30))} if settings.keep_inputs.days else {},
    )


def _partitions(settings: Settings, model: str) -> int:
    """Return how many partitions the topic of a new model gets: in a host one, unless the settings say more."""
    return settings.worker.spread(model, MODEL_PARTITIONS if settings.pool_of(model) is None else 1)


def known_models(settings: Settings, codec: Codec) -> dict[str, Model | None]:
    """Return every model that the settings name or that was published; None = not published yet."""
    return {**dict.fromkeys(settings.models), **catalog.read(settings, codec, Model)}


def spread(settings: Settings, model: Model) -> Model:
    """Return the model with as many partitions as the settings want it to have."""
    return replace(model, partitions=settings.worker.spread(model.name, model.partitions))


def spread_out(settings: Settings, codec: Codec) -> dict[str, int]:
    """Spread the queries of published models over as many partitions as the settings want; returns what has changed.

    First the topics get the partitions, then the workers take them, and then selection is told: no query is late.

    Raises:
        DeployError: the broker refused it.
    """
    news = [model for old in catalog.read(settings, codec, Model).values() if (model := spread(settings, old)) != old]
    if news:
        topics.create(settings, build(settings, {model.name: model for model in news}))
    for model in news:
        catalog.serve(settings, codec, model)
    return {model.name: model.partitions for model in news}


def unspread(settings: Settings, known: Mapping[str, Model | None]) -> list[Finding]:
    """Return a finding for each model whose queries are spread over another number of partitions than is wanted."""
    return [
        Finding(
            "partitions",
            (model_queries(name),),
            f"the queries of {name} are spread over {model.partitions} partitions, and the settings want {wanted}: "
            "skysail topics create",
            fault=False,
        )
        for name, model in known.items()
        if model is not None and (wanted := settings.worker.spread(name, model.partitions)) != model.partitions
    ]


def used_by(
    settings: Settings, codec: Codec, roles: Iterable[str], models: Iterable[Model], pools: Iterable[str] = ()
) -> Topology:
    """Return the part of the topology that some roles use.

    Args:
        settings: of the deployment.
        codec: of its records.
        roles: as in the settings.
        models: of the workers among them.
        pools: of the hosts among them.
    """
    run = {model.name: model for model in models}
    whole = build(settings, known_models(settings, codec) if {"selection", "host"} & {*roles} else run)
    others = [role for role in roles if role not in {"worker", "host"}]
    hosts = [topology.host_role(pool) for pool in pools]
    return whole.used_by([*others, *map(topology.worker_role, run), *hosts])


def establish(settings: Settings, codec: Codec, create_topics: CreateTopics = topics.create) -> Mapping[str, Model]:
    """Create missing topics and publish the settings' models and applications; returns all deployed models by name.

    Raises:
        Unreachable: no broker answers.
        PackageError: a package is missing or damaged.
        PolicyError: an application's policy cannot exist.
    """
    wanted, apps = models(settings), applications(settings)
    create_topics(settings, build(settings, {model.name: None for model in wanted}))
    if any(app.stages for app in apps):
        measured = catalog.profiles(settings, codec)
        apps = applications(settings, measured)
        for warning in half_known(settings, measured):
            _log.warning("%s", warning)
    published, versions = catalog.read(settings, codec, Model), catalog.versions(settings, codec)
    news = [
        _beside(settings, model, published, versions) for model in wanted if not _overruled(model, published, versions)
    ]
    now = {name: spread(settings, model) for name, model in {**published, **{new.name: new for new in news}}.items()}
    for app in apps:
        checked(app, now)
    create_topics(settings, build(settings, now))
    for stranger in strangers(apps, {*published, *settings.models}):
        _log.warning("%s", stranger)
    known = catalog.read(settings, codec, Application)
    apps = [_taught(app, known) for app in apps]
    for app in apps:
        if anew := begins_anew(known.get(app.name), app):
            _log.warning("%s", anew)
    fresh = [now[new.name] for new in news if published.get(new.name) != new]
    catalog.publish(settings, codec, [*fresh, *(app for app in apps if known.get(app.name) != app)])
    for model in now.values():
        if model not in fresh and published[model.name] != model:
            catalog.serve(settings, codec, model)
    return now


def _beside(
    settings: Settings, model: Model, published: Mapping[str, Model], versions: Mapping[str, Sequence[Model]]
) -> Model:
    """Return the model with the partitions and the other versions of its published one; a new one has its own."""
    serving = published.get(model.name)
    if serving is None:
        return following(replace(model, partitions=_partitions(settings, model.name)), None, _now_us())
    return standing(instead(model, serving, _now_us()), _with(model.version, versions[model.name]))


def _with(version: str, listed: Sequence[Model]) -> list[str]:
    """Return the versions of a model in the order of addition, this one among them."""
    known = [model.version for model in listed]
    return known if version in known else [*known, version]


def begins_anew(before: Application | None, after: Application) -> str:
    """Say that what an application has learnt is not kept, where its policy stays and a parameter changes; else empty.

    Args:
        before: as it is published; None = not at all.
        after: as it is to be.
    """
    if before is None or before.policy != after.policy:
        return ""
    old, new = registry.policy_of(before), registry.policy_of(after)
    if old == new or (comes_from_outside(new) and new.adopts):
        return ""
    return (
        f"application {after.name}: {registry.spec(new)} starts anew; what {registry.spec(old)} has learnt is not kept"
    )


def _taught(app: Application, published: Mapping[str, Application]) -> Application:
    """Return the application with the apprentice of its published record."""
    known = published.get(app.name)
    return app if known is None else replace(app, apprentice=known.apprentice)


def strangers(apps: Iterable[Application], models: Iterable[str]) -> Iterator[str]:
    """Return warnings for applications that name models which are not deployed (yet)."""
    deployed = sorted(models)
    for app in apps:
        for name in sorted({*app.asks}.difference(deployed)):
            nearest = difflib.get_close_matches(name, deployed, n=1, cutoff=0.0)
            hint = f": did you mean {nearest[0]}?" if nearest else ""
            yield (
                f"application {app.name} names model {name}, which is not deployed{hint or '.'} Until `skysail model"
                " add FOLDER` deploys it, queries are answered without it; if no other model is asked, by the default"
                " output"
            )
        if app.parity and app.parity not in deployed:
            yield (
                f"application {app.name} names the parity model {app.parity}, which is not deployed. Until `skysail"
                " model add FOLDER` deploys it, nothing is coded"
            )


def _overruled(model: Model, published: Mapping[str, Model], versions: Mapping[str, Sequence[Model]]) -> bool:
    """Whether the deployment serves a later version than the settings name: a restart must not move it back."""
    serving = published.get(model.name)
    known = {(version.version, version.digest) for version in versions.get(model.name, ())}
    if serving is None or serving.version == model.version or (model.version, model.digest) not in known:
        return False
    _log.warning(
        "the settings name version %s of model %s, but %s was deployed later and serves; to change that: skysail model"
        " use %s %s",
        *(model.version, model.name, serving.version, model.name, model.version),
    )
    return True


def add(
    settings: Settings,
    codec: Codec,
    package: Path,
    create_topics: CreateTopics = topics.create,
    share: float = 1.0,
    *,
    force: bool = False,
) -> tuple[Model | None, Model]:
    """Deploy a package; returns the record of the version that served, None of a new model, and the present one.

    Args:
        settings: of the deployment.
        codec: of its records.
        package: its folder.
        create_topics: creates a missing topic.
        share: of the model's queries that it answers from now on; 1 = it serves, 0 = it is a shadow.
        force: let it serve although its inputs or outputs differ from those of the version that serves.

    Raises:
        PackageError: the folder is no package.
        UsageError: its version is known as another package, it cannot have this share, or cannot stand in for the
                version that serves.
        DeployError: the broker refused it.
    """
    if not 0.0 <= share <= 1.0:  # nor NaN, which the command line lets pass
        raise UsageError(f"a share lies between 0 and 1, not {share:g}")
    record, versions = packages.model_record(package, settings), catalog.versions(settings, codec)
    listed = versions.get(record.name, [])
    same = next((model for model in listed if model.version == record.version), None)
    if same is not None and same.digest != record.digest:
        message = f"{record.name} {record.version} is another package already, {same.path}"
        raise UsageError(f"{message}; package this one with another --version, so that answers distinguish the two")
    published = catalog.read(settings, codec, Model)
    serving = published.get(record.name)
    if serving is not None:
        check_unlabelled(record, serving)
    if serving is not None and share == 1.0 and not force:
        check_successor(record, serving)
    if serving is None:
        news = following(replace(record, partitions=_partitions(settings, record.name)), None, _now_us())
    else:
        news = instead(record, serving, _now_us(), shadows_only=True)
    news = spread(settings, news)
    news = standing(news, _with(record.version, listed))
    _check_answers(record, catalog.read(settings, codec, Application).values())
    create_topics(settings, build(settings, {**published, record.name: news}))
    if share < 1.0:
        if not listed:
            raise UsageError(f"there is no model {record.name} yet: its first version serves, without a share")
        given(_serving(settings, codec, record.name), record, share)  # a version that is refused stays unknown
        if same != record:
            catalog.know(settings, codec, record)
        return serving, run_beside(settings, codec, record.name, record.version, share)
    if same == record:
        catalog.serve(settings, codec, news)
    else:
        catalog.publish(settings, codec, [news])
    return serving, news


def _check_answers(record: Model, apps: Iterable[Application]) -> None:
    """Refuse a model whose answers an application that asks it could not combine.

    Raises:
        PolicyError: it is such.
    """
    for app in apps:
        if record.output == "tensors" and record.name in app.models:
            checked(app, {record.name: record})


def run_beside(settings: Settings, codec: Codec, name: str, version: str, share: float | None) -> Model:
    """Run a known version beside the one that serves, or end it; returns the serving one, as published.

    Args:
        settings: of the deployment.
        codec: of its records.
        name: of the model.
        version: that is to run.
        share: of the queries that it answers, beside what other canaries do; 0 = a shadow; None = end it.

    Raises:
        UsageError: there is no such model or version, the settings do not trust it, it cannot stand in for the one that
                serves, or the shares of all canaries would leave nothing to that one.
        DeployError: the broker refused it.
    """
    serving, found = _serving(settings, codec, name), _version(settings, codec, name, version)
    if share is not None:
        packages.require_trusted(settings, found)
    news = ended(serving, version) if share is None else given(serving, found, share)
    news = standing(news, known_versions(settings, codec, name))
    catalog.serve(settings, codec, news)
    return news


def change(settings: Settings, codec: Codec, name: str, changed: Callable[[Model, Sequence[str]], Model]) -> Model:
    """Change what runs of a model, beside the version that serves; returns that one, as published.

    Args:
        settings: of the deployment.
        codec: of its records.
        name: of the model.
        changed: what becomes of the version that serves, given the known versions in the order of addition.

    Raises:
        UsageError: there is no such model, or it cannot be changed so.
        DeployError: the broker refused it.
    """
    serving = _serving(settings, codec, name)
    news = changed(serving, known_versions(settings, codec, name))
    if news != serving:
        catalog.serve(settings, codec, news)
    return news


def known_versions(settings: Settings, codec: Codec, name: str) -> list[str]:
    """Return the versions of a model in the order of addition."""
    return [model.version for model in catalog.versions(settings, codec)[name]]


def end_canaries(settings: Settings, codec: Codec, name: str) -> tuple[Model, tuple[str, ...]]:
    """Let the serving version answer everything; returns it as published, and the canaries that ended.

    Raises:
        UsageError: there is no such model, or one of them served before: it may be meant to serve again, or to end.
        DeployError: the broker refused it.
    """
    serving = _serving(settings, codec, name)
    gone, news = tuple(canaries(serving)), without_canaries(serving)
    if held := [version for version in gone if version in {service.version for service in serving.served}]:
        raise UsageError(
            f"{name} {held[0]} served before {serving.version} and answers {serving.shares[held[0]]:g} of the queries."
            f" To go back to it: skysail model use {name} {held[0]}; to end it: skysail model canary {name} {held[0]}"
            " --share 0"
        )
    if gone:
        catalog.serve(settings, codec, news)
    return news, gone


def _serving(settings: Settings, codec: Codec, name: str) -> Model:
    known = catalog.read(settings, codec, Model)
    if name not in known:
        raise UsageError(f"there is no model {name}; there are: {', '.join(sorted(known)) or 'none'}")
    return known[name]


def _version(settings: Settings, codec: Codec, name: str, version: str) -> Model:
    listed = {model.version: model for model in catalog.versions(settings, codec)[name]}
    if version not in listed:
        raise UsageError(f"there is no version {version} of {name}; there are: {', '.join(listed)}")
    return listed[version]


def retry(settings: Settings, codec: Codec, name: str, version: str) -> None:
    """Forget what became of loading a version on this machine, and have workers begin anew.

    Raises:
        UsageError: there is no such model or version.
        DeployError: the broker refused it.
    """
    serving, found = _serving(settings, codec, name), _version(settings, codec, name, version)
    LoadNotes(load_notes()).forget(found.digest)
    catalog.write(settings, [(MODELS, name, codec.encode(serving))])


def use(settings: Settings, codec: Codec, name: str, version: str, holdback: float = 0.0) -> tuple[str, str]:
    """Let a known version of a model serve; returns the former and the present one. Arguments are those of `switch`."""
    before, now = switch(settings, codec, name, version, holdback)
    return before.version, now.version


def switch(
    settings: Settings, codec: Codec, name: str, version: str, holdback: float = 0.0, *, takes_back: bool = False
) -> tuple[Model, Model]:
    """Let a known version of a model serve; returns the records of the former and of the present one.

    Its canaries end; shadows go on. All in one record: a version that keeps a share is never unloaded for it.

    Args:
        settings: of the deployment.
        codec: of its records.
        name: of the model.
        version: that is to serve.
        holdback: share of the queries that the former one keeps.
        takes_back: whether the former one is none to go back to.

    Raises:
        UsageError: there is no such model or version, the settings do not trust it, or the two cannot share queries.
        DeployError: the broker refused it.
    """
    serving, found = _serving(settings, codec, name), _version(settings, codec, name, version)
    packages.require_trusted(settings, found)
    news = instead(found, serving, _now_us(), shadows_only=True)
    if takes_back:
        news = replace(news, served=tuple([service for service in news.served if service.version != serving.version]))
    news = given(news, serving, holdback) if holdback else news
    catalog.serve(settings, codec, news)
    return serving, news


def former(settings: Settings, codec: Codec, name: str) -> tuple[Model, Service]:
    """Return the record of the version that serves, and which one served before: the one to go back to.

    Raises:
        UsageError: there is no such model, none is known to have served before.
    """
    serving, known = _serving(settings, codec, name), known_versions(settings, codec, name)
    found = last_served(serving, known)
    others = [version for version in known if version != serving.version]
    if found is None:
        told = f"no version of {name} is known to have served before {serving.version}"
        if not others:
            raise UsageError(f"{told}, and there is no other one")
        raise UsageError(
            f"{told}: the others were never more than canary or shadow, were taken back, or served before there was a"
            f" history. There are {', '.join(others)}: skysail model use {name} VERSION"
        )
    return serving, found


def _now_us() -> int:
    return time.time_ns() // 1000
