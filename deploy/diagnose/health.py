"""Checks a deployment: Kafka, Redis, topics, models, applications, and which roles report.

It changes nothing. It takes a second if all is well, three if a role is silent.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from deploy.config.addresses import connection
from deploy.config.folder import run_folder
from deploy.connect.clients import Unreachable
from deploy.connect.schema_registry import codec_for
from deploy.diagnose.doctor import Check, Level
from deploy.diagnose.servers import check_kafka, check_page, check_redis_answers, check_redis_keeps, check_store_file
from deploy.diagnose.trust import check_keys, distrust, forbidden_code
from deploy.placement import placement
from deploy.placement.grouping import GATEWAY, plan
from deploy.placement.whereabouts import Whereabouts, whereabouts
from deploy.state import catalog, desired, topics
from deploy.state.labels import labels_of, loaded
from deploy.system.launch import PAGE
from schemas import topics as names
from schemas.errors import DecodeError, RegistryError
from schemas.records import Application, Model, Report
from schemas.topics import MODEL_VERSION, outside
from streams.control.figures import fold, is_silent, parse
from streams.control.history import History
from streams.control.page.alerts import failing, load_faults, not_beside, not_loaded
from streams.control.page.hosts import HeardProcess, host_rows
from streams.control.page.mute_models import mute
from streams.control.page.report_filter import sound
from streams.control.page.rivals import from_gauges
from streams.mapping.errors import MappingError
from streams.mapping.spec import TopicMapping
from streams.operators.selection.coded.code import code_of
from streams.operators.statistics import BY_COLUMNS, NOT_BY_COLUMNS, SENT_AGO
from streams.operators.times import span
from streams.runtime.errors import StreamError
from streams.runtime.kafka.log_reader import KafkaRecent, KafkaTail
from workers import manifest as manifests
from workers.errors import PackageError
from workers.kernel.model.routing import CANARY, SHADOW, STANDBY, label

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.control.figures import Figures
    from streams.control.page.alerts import LoadFault
    from streams.control.page.hosts import HostRow
    from streams.operators.contract import Record

CLOCK_MS = 250.0  # beyond that a process follows its machine's clock, which takes twice as long
REPORTS_S = 3.0  # every role reports once a second
POLL_MS = 200
ALIVE = ("serving", "model_not_loaded")  # gauges of models with a version, of those without any
MINUTE_US = 60_000_000
NOWHERE = Whereabouts()
ANSWERING = ("serving", CANARY, STANDBY)  # gauges of the versions that a query may name
_SHOWN_COLUMNS = 8  # what is said of columns: those that go by them, and some that do not
LAST_REPORTS = 256  # enough for this many processes


def _store(settings: Settings) -> list[Check]:
    if settings.store.kind == "embedded":
        return [check_store_file(settings)]
    answers = check_redis_answers(settings)
    return [answers, check_redis_keeps(settings)] if answers.level is Level.OK else [answers]


def examine(settings: Settings) -> tuple[Check, ...]:
    """Check everything that the settings name, in the order in which it is needed."""
    kafka = check_kafka(settings)
    found = [kafka, *_store(settings), *check_keys(settings)]
    if kafka.level is Level.DOWN:
        return tuple(found)
    try:
        codec = codec_for(settings)
    except RegistryError as error:
        return (*found, Check("schema registry", Level.DOWN, "not usable", str(error)))
    try:
        found.extend(_deployed(settings, codec))
    except Unreachable as error:  # what was found until then is still said
        advice = "the broker or this machine may be too busy: try again"
        found.append(Check("Kafka", Level.DOWN, f"answered at first, then no more: {error}", advice))
    return tuple(found)


def _deployed(settings: Settings, codec: Codec) -> Iterator[Check]:
    """Check what is deployed on a broker that answers."""
    if not topics.partition_counts(settings):
        yield _fresh(settings)
        return
    models, versions = catalog.read(settings, codec, Model), catalog.versions(settings, codec)
    applications = catalog.read(settings, codec, Application)
    yield from check_topics(settings, codec)
    reports = _reported(settings, codec, models)
    yield from check_models(models, versions, _whereabouts(settings, reports), settings)
    yield from check_applications(applications, models)
    yield from check_mappings(applications, topics.partition_counts(settings, outside=True))
    yield from check_roles(settings, models, reports, applications)
    yield from check_answering(_recent(settings, codec))


def _whereabouts(settings: Settings, reports: Mapping[str, Sequence[Report]]) -> Whereabouts:
    heard = (
        HeardProcess(each.instance, each.role, each.counters, each.gauges) for its in reports.values() for each in its
    )
    return whereabouts(settings, host_rows(heard))


def _fresh(settings: Settings) -> Check:
    """Return the advice for a deployment that has never run."""
    first = (
        "" if settings.models else "package a model, name it and an application in skysail.yaml (see README), then: "
    )
    return Check("topics", Level.DOWN, f"{settings.prefix} has none yet", f"{first}skysail run")


def advise(checks: tuple[Check, ...], settings: Settings | None) -> str:
    """Return the next step: advice on the first fault, else a query to try; nothing without settings."""
    wrong = [check for check in checks if check.level in {Level.MISSING, Level.DOWN}]
    wrong.sort(key=lambda check: check.name.startswith("application "))  # nothing answers where roles do not run
    if wrong:
        return f"{wrong[0].name}: {wrong[0].advice}"
    if settings is None:
        return ""
    application = next(
        (c.name.removeprefix("application ") for c in checks if c.name.startswith("application ")), "APP"
    )
    page = f"; live page: http://{settings.control.host}:{settings.control.port}/" if PAGE in settings.roles else ""
    return f"ask: skysail query {application} --input '[...]'{page}"


def check_topics(settings: Settings, codec: Codec) -> Iterator[Check]:
    """Check the topics against the topology."""
    known = desired.known_models(settings, codec)
    topology = desired.build(settings, known)
    findings = [*topics.check(settings, topology), *desired.unspread(settings, known)]
    wanted = [f for f in findings if f.fault or f.aspect != "replication" or settings.replication > 1]
    if not any(finding.fault for finding in findings):
        yield Check("topics", Level.OK, f"{len(topology.topics)} of {settings.prefix} can be used")
    for finding in wanted:
        yield Check("topics", Level.DOWN if finding.fault else Level.WARN, finding.aspect, finding.message)


def check_models(
    models: Mapping[str, Model],
    versions: Mapping[str, Sequence[Model]] = {},
    where: Whereabouts = NOWHERE,
    settings: Settings | None = None,
) -> Iterator[Check]:
    """Check that the packages that serve, and those of canaries and shadows, are on this machine and unchanged.

    Args:
        models: that serve, by name.
        versions: of each.
        where: they run, which is told with each.
        settings: which packages they trust; None = any.
    """
    why = partial(distrust, settings) if settings is not None else lambda _: ""
    if not models:
        advice = "package one (skysail model package --help) and name it under `models` in skysail.yaml"
        yield Check("models", Level.DOWN, "none is deployed", advice)
    for name, model in sorted(models.items()):
        yield _package(
            model, where.of(model, model), "serves", f"skysail model rollback {name}, or add another version", why
        )
        for beside in versions.get(name, ()):
            if beside.version in loaded(model) - {model.version}:
                share = model.shares.get(beside.version)
                stands = f"{label(share)} {share:.0%}" if share else label(share)
                yield _package(
                    beside, where.of(beside, model), stands, f"skysail model {_ended(model, beside.version)}", why
                )


def _ended(model: Model, version: str) -> str:
    """Return the command that ends a version beside the one that serves."""
    if version in model.shares:
        return (
            f"canary {model.name} {version} --share 0"
            if model.shares[version]
            else f"shadow {model.name} {version} --end"
        )
    given = labels_of(model, version)
    return f"unlabel {model.name} {given[0]}" if given else f"keep {model.name} --none"


def _package(model: Model, runs: str, stands: str, instead: str, distrusted: Callable[[Model], str]) -> Check:
    """Check one version's package.

    Args:
        model: the version.
        runs: where it runs; empty = nobody knows.
        stands: what it is for.
        instead: what to do if its package has changed.
        distrusted: says why it is not trusted; empty = it is.
    """
    name, found = f"model {model.name}", f"{model.version} ({stands}), {model.runtime}, {model.path}"
    found += f"; {runs}" if runs else ""
    try:
        is_same = manifests.digest(Path(model.path)) == model.digest
    except PackageError:
        return Check(name, Level.WARN, found, "this package is not on this machine; its worker needs it")
    advice = distrusted(model) if is_same else f"its files have changed, so workers refuse it: {instead}"
    return Check(name, Level.DOWN if advice else Level.OK, found, advice)


def check_applications(applications: Mapping[str, Application], models: Mapping[str, Model]) -> Iterator[Check]:
    """Check that the models of each application are deployed."""
    if not applications:
        advice = "name one under `applications` in skysail.yaml, or: skysail app create NAME models=MODEL,..."
        yield Check("applications", Level.DOWN, "none", advice)
    for name, application in sorted(applications.items()):
        found = f"{application.policy} over {', '.join(application.models)}, {application.slo_ms:g} ms"
        absent = [model for model in application.asks if model not in models]
        advice = f"not deployed: {', '.join(absent)}; skysail model add PACKAGE" if absent else ""
        if advice := advice or forbidden_code(application):
            yield Check(f"application {name}", Level.DOWN, found, advice)
            continue
        if advice := _uncoded(application, models):
            yield Check(f"application {name}", Level.WARN, f"{found}; late outputs are not decoded", advice)
            continue
        yield Check(f"application {name}", Level.OK, found)


def check_mappings(applications: Mapping[str, Application], there: Mapping[str, int]) -> Iterator[Check]:
    """Check that the topics of others are there which applications read and write.

    Args:
        applications: that are deployed.
        there: partitions of topics that are not the deployment's, by `topics.outside`.
    """
    for name, application in sorted(applications.items()):
        try:
            mapping = TopicMapping.parse(application.mapping)
        except MappingError as error:
            yield Check(
                f"topics of {name}", Level.DOWN, f"cannot be mapped: {error}", "correct `from`, `to`, `feedback`"
            )
            continue
        written = [] if mapping.outgoing is None else [mapping.outgoing.form.topic]
        named = [*sorted(mapping.reads), *written]
        absent = [topic for topic in named if outside(topic) not in there]
        if named:
            advice = f"not there: {', '.join(absent)}; create them, or correct the names" if absent else ""
            level = Level.DOWN if absent else Level.OK
            yield Check(f"topics of {name}", level, f"{', '.join(named)}; skysail map check {name}", advice)


def _uncoded(application: Application, models: Mapping[str, Model]) -> str:
    """Return what to do where an application names a parity model that decodes none of its outputs."""
    if not application.parity:
        return ""
    if (parity := models.get(application.parity)) is None:
        return f"not deployed: {application.parity}; skysail model add PACKAGE"
    name, _, version = parity.parity_of.partition(MODEL_VERSION)
    if name not in application.models:
        of = f"{parity.name} is of {parity.parity_of}" if name else f"{parity.name} is no parity model"
        return f"{of}; take one of {', '.join(application.models)}: skysail parity train"
    if models[name].version != version:
        return f"{parity.name} is of {parity.parity_of}, and {models[name].version} serves: train one of that"
    if code_of(parity, models) is None:
        return f"{parity.name} does not fit {name}: train it again, and see that worker.partitions is at least its k"
    return ""


def check_roles(
    settings: Settings,
    models: Mapping[str, Model],
    reports: Mapping[str, Sequence[Report]],
    applications: Mapping[str, Application] = {},
) -> Iterator[Check]:
    """Check that every role reports, in as many processes as are asked for, and owns partitions; and the page.

    Args:
        settings: of the deployment.
        models: that serve, by name.
        reports: of lately, by role.
        applications: by name, for what they learn of versions.
    """
    page, reports = reports.get(PAGE, []), {role: its for role, its in reports.items() if role != PAGE}
    inside = _inside(reports)
    expected = {
        name: n for name, n in _expected(settings, models).items() if name.removeprefix("worker.") not in inside
    }
    if not reports:
        yield Check("roles", Level.DOWN, f"none of {', '.join(expected)} reports", "skysail run")
        return
    for name, wanted in expected.items():
        check = check_page(settings) if name == PAGE else _role(name, reports.get(name, []), wanted)
        is_served = name == GATEWAY and check.level is Level.OK
        yield replace(check, found=f"{settings.gateway.address}/v2 is served") if is_served else check
    yield from check_clocks(report for found in reports.values() for report in found)
    yield from check_senders(report for found in reports.values() for report in found)
    yield from check_columns(reports.get("selection", ()))
    yield from check_versions(report for found in reports.values() for report in found)
    yield from check_evidence(page, models, applications)
    for name in sorted(reports.keys() - set(expected)):
        yield Check(name, Level.WARN, "reports, though it is not asked for", "stop it, or deploy its model")


def check_answering(reports: Iterable[Report]) -> Iterator[Check]:
    """Tell of models that answer next to nothing although the processes that run them report.

    Args:
        reports: the last ones of all processes, several of each, oldest first.
    """
    history, end_us = History(), 0
    latest: dict[str, Figures] = {}
    for report in sorted(reports, key=lambda each: each.time_us):
        before, end_us = latest.get(report.instance), report.time_us
        latest[report.instance] = fold(before, report)
        history.add(before, latest[report.instance], end_us)
    gauges = [parse(full) for each in latest.values() if not is_silent(each, end_us) for full in each["gauges"]]
    models = {name: {labels.get("model", "") for what, labels in gauges if what == name} for name in ALIVE}
    shadows = {(labels.get("model", ""), labels.get("version", "")) for what, labels in gauges if what == SHADOW}
    for each in mute(history.since(MINUTE_US, end_us)[1], models["serving"] - models["model_not_loaded"], shadows):
        yield Check(f"answers of {each.model}", Level.DOWN, each.text, each.command)


def _expected(settings: Settings, models: Mapping[str, Model]) -> Counter[str]:
    """Return the roles that are to run, and in how many processes each."""
    known = placement.with_pool(settings, placement.read(run_folder(settings.prefix)))
    planned = plan(known, models, settings.worker.replicas)
    return Counter(_role_of(instance) for process in planned for instance in process.instances)


def _reported(settings: Settings, codec: Codec, models: Mapping[str, Model]) -> Mapping[str, Sequence[Report]]:
    """Return the last report of each process that is heard within `REPORTS_S`, by role."""
    if names.REPORTS not in topics.partition_counts(settings):
        return {}
    return asyncio.run(_reports(settings, codec, _expected(settings, models)))


def check_clocks(reports: Iterable[Report]) -> Iterator[Check]:
    """Tell of processes that are not where their machine's clock is."""
    for report in reports:
        off_ms = report.gauges.get("clock_off_ms", 0.0)
        if abs(off_ms) > CLOCK_MS:
            advice = "its machine's clock has been set: queries expire or wait too long until it has followed; run NTP"
            yield Check(f"clock of {report.instance}", Level.WARN, f"{off_ms:+,.0f} ms off its machine's", advice)


def check_evidence(
    reports: Iterable[Report], models: Mapping[str, Model], applications: Mapping[str, Application]
) -> Iterator[Check]:
    """Tell of versions and policies that are shown to be worse, and of candidates that cannot be compared.

    Args:
        reports: of the control role, which compares them.
        models: that are deployed, by name.
        applications: likewise.
    """
    apprentices = {name: application.apprentice for name, application in applications.items()}
    told = {alert["text"]: alert for report in reports for alert in from_gauges(report.gauges, models, apprentices)}
    for text, alert in sorted(told.items()):
        yield Check("evidence", Level.DOWN if alert["level"] == "bad" else Level.WARN, text, alert["command"])


def check_senders(reports: Iterable[Report]) -> Iterator[Check]:
    """Tell of applications of which nearly all queries have expired when they come."""
    for report in reports:
        for full, value in report.gauges.items():
            name, labels = parse(full)
            if name == SENT_AGO:
                found = f"nearly all queries expire on arrival: sent {span(int(value))} ago by their senders' clocks"
                lag = report.gauges.get("lag", 0.0)
                advice = "set the senders' clocks (NTP); with sent_us 0 a query's time is that of its Kafka record"
                if lag:
                    advice = f"{report.instance} has {lag:,.0f} records to read: wait, or start another; else {advice}"
                yield Check(f"senders of {labels.get('application', '')}", Level.WARN, found, advice)


def check_columns(reports: Iterable[Report]) -> Iterator[Check]:
    """Tell which applications are answered by columns, and why others are not.

    Args:
        reports: of selection.
    """
    by_columns, left = set[str](), dict[str, str]()
    for report in reports:
        for full in (*report.counters, *report.gauges):
            name, labels = parse(full)
            if name == BY_COLUMNS:
                by_columns.add(labels.get("application", ""))
            elif name == NOT_BY_COLUMNS:
                left[labels.get("application", "")] = labels.get("why", "")
    found = [", ".join(sorted(by_columns - left.keys())) or "no application yet"]
    found += [f"{name} by Python ({why})" for name, why in sorted(left.items())]
    if by_columns or left:
        yield Check("columns", Level.OK, "; ".join(found[:_SHOWN_COLUMNS]))


def check_versions(reports: Iterable[Report]) -> Iterator[Check]:
    """Tell of versions that are wanted and could not be had, each once."""
    reports = list(reports)
    faults = load_faults(report.gauges for report in reports)
    told = {}
    for report in reports:
        gauges = [parse(full) for full in report.gauges]
        serving = next((labels.get("version", "") for name, labels in gauges if name == "serving"), "none")
        for name, labels in gauges:
            model, wanted = labels.get("model", ""), labels.get("version", "")
            if name == "model_not_loaded":
                known = [fault for (failed, _), fault in sorted(faults.items()) if failed == model]
                text = not_loaded(model, known[-1] if known else None)
                told[model] = text, f"mend its package, or add another version: skysail model show {model}"
            elif name == "version_failing":
                text = failing(model, wanted, serving, faults.pop((model, wanted), None))
                told.setdefault(model, (text, f"skysail model rollback {model}"))
    for (model, version), fault in sorted(faults.items()):
        told.setdefault(model, (not_beside(model, version, fault), f"skysail model show {model}"))
    for model, (found, advice) in sorted(told.items()):
        yield Check(f"version of {model}", Level.DOWN, found, advice)


def failing_versions(settings: Settings, codec: Codec) -> list[Check]:
    """Tell of versions that are wanted and could not be had, by the last reports; nothing where none can be read."""
    return [*check_versions(_lately(settings, codec))]


def load_faults_lately(settings: Settings, codec: Codec) -> dict[tuple[str, str], LoadFault]:
    """Return why versions could not be loaded, by model and version, by the last reports."""
    return load_faults(report.gauges for report in _lately(settings, codec))


def hosts_lately(settings: Settings, codec: Codec) -> list[HostRow]:
    """Return what hosts have in memory, by the last reports."""
    reports = _lately(settings, codec)
    return host_rows(HeardProcess(each.instance, each.role, each.counters, each.gauges) for each in reports)


def running_inside(settings: Settings, codec: Codec, now_us: int) -> set[str]:
    """Return the models that run inside a selection role now, by the last reports."""
    lately = [report for report in _lately(settings, codec) if now_us - report.time_us < REPORTS_S * 1e6]
    return _inside({"selection": [report for report in lately if report.role == "selection"]})


def answering(settings: Settings, codec: Codec, model: str) -> set[str]:
    """Return the versions of a model that answer in each process that runs it, by the last reports."""
    found = []
    for report in _lately(settings, codec):
        gauges = [(name, labels) for name, labels in map(parse, report.gauges) if labels.get("model") == model]
        versions = {labels.get("version", "") for name, labels in gauges if name in ANSWERING}
        if any(name == "serving" for name, _ in gauges):
            found.append(versions)
    return set.intersection(*found) if found else set()


def _lately(settings: Settings, codec: Codec) -> list[Report]:
    """Return the last report of each process that was heard at the end; nothing where none can be read."""
    reports = _recent(settings, codec)
    return [*newest(reports, max((report.time_us for report in reports), default=0))]


def _recent(settings: Settings, codec: Codec) -> list[Report]:
    """Return the last reports of all processes, oldest first; nothing where none can be read."""
    recent = KafkaRecent(connection(settings, "skysail-versions"))
    if names.REPORTS not in topics.partition_counts(settings):
        return []
    with suppress(StreamError):
        return [*_decoded(codec, asyncio.run(recent.last(names.REPORTS, LAST_REPORTS)))]
    return []


def newest(reports: Iterable[Report], end_us: int) -> Iterator[Report]:
    """Return the last report of each process that is heard lately, at the end of these."""
    latest = {report.instance: report for report in reports}
    return (report for report in latest.values() if end_us - report.time_us < REPORTS_S * 1e6)


def _role(name: str, reports: Sequence[Report], wanted: int) -> Check:
    advice = f"see why in its log, or start it: skysail run --role {_as_words(name)}"
    if not reports:
        return Check(name, Level.DOWN, f"no report within {REPORTS_S:g} s", advice)
    if len(reports) < wanted:
        return Check(name, Level.WARN, f"{len(reports)} of {wanted} processes report within {REPORTS_S:g} s", advice)
    partitions = sum(report.gauges.get("partitions", 0) for report in reports)
    found = f"{partitions:g} partitions" + (f" in {len(reports)} processes" if len(reports) > 1 else "")
    advice = "" if partitions else "it is joining its group, which takes seconds; if it stays so, see its log"
    return Check(name, Level.OK if partitions else Level.WARN, found, advice)


def _inside(reports: Mapping[str, Sequence[Report]]) -> set[str]:
    """Return the models that run inside selection, by its reports."""
    figures = [parse(full) for report in reports.get("selection", ()) for full in report.gauges]
    return {labels.get("model", "") for name, labels in figures if name == "serving"}


def _as_words(role: str) -> str:
    """Return how a role is named on the command line."""
    kind, _, of = role.partition(".")
    return f"{kind} --{'model' if kind == 'worker' else 'pool'} {of}" if of else role


async def _reports(settings: Settings, codec: Codec, expected: Mapping[str, int]) -> dict[str, list[Report]]:
    """Return by role the latest report of each of its processes that reports within `REPORTS_S`."""
    latest: dict[str, Report] = {}
    reader = KafkaTail(connection(settings, "skysail-doctor"), (names.REPORTS,))
    await reader.start()
    try:
        end_s = asyncio.get_running_loop().time() + REPORTS_S
        while not _are_there(expected, latest) and asyncio.get_running_loop().time() < end_s:
            latest |= {report.instance: report for report in _decoded(codec, await reader.poll(POLL_MS))}
    finally:
        await reader.stop()
    found: defaultdict[str, list[Report]] = defaultdict(list)
    for instance, report in latest.items():
        found[_role_of(instance)].append(report)
    return found


def _are_there(expected: Mapping[str, int], latest: Mapping[str, Report]) -> bool:
    """Tell whether all report, in as many processes as are wanted; models inside selection need no worker."""
    inside = _inside({"selection": [report for report in latest.values() if report.role == "selection"]})
    there = Counter(map(_role_of, latest))
    return all(there[name] >= n for name, n in expected.items() if name.removeprefix("worker.") not in inside)


def _decoded(codec: Codec, records: Iterable[Record]) -> Iterator[Report]:
    for record in records:
        with suppress(DecodeError):
            if (report := sound(codec.decode(Report, record.value))) is not None:  # its names are printed
                yield report


def _role_of(instance: str) -> str:
    return instance.partition("@")[0]
