"""From what a person says to a job that can run: which models, which columns, which chunks."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from deploy.connect.clients import answering
from deploy.connect.schema_registry import codec_for
from deploy.errors import UsageError
from deploy.scoring import states as pinning
from deploy.scoring import writing
from deploy.scoring.askers import OneVersion, whole_asker
from deploy.scoring.chunks import Chunks, forget, locked, opened
from deploy.scoring.inputs import RowReader, told_by
from deploy.scoring.job import CHUNK_ROWS, FileRows, FileSink, ScoringJob, described, first_block, total
from deploy.scoring.kernel import KernelAsker
from deploy.scoring.models import PackagedModels, of_package
from deploy.scoring.reading import files as found_files
from deploy.scoring.topic import TOPIC, TopicRows, TopicSink, bounds
from deploy.state import catalog
from policies.combine import VOTE
from policies.contract import is_answering
from policies.outside import comes_from_outside
from schemas.records import Application, Model
from schemas.topics import APPLICATIONS, MODEL_VERSION
from streams.mapping.formats import REGISTRY, TopicForm
from streams.mapping.spec import TopicMapping
from streams.operators.configuration import Configuration
from streams.operators.contract import Record
from streams.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from deploy.config.settings import Settings
    from deploy.scoring.askers import RowAsker, StateReader
    from deploy.scoring.job import ScoreSink, ScoreSource, ScoringReport
    from schemas.codec import Codec
    from schemas.records import Value
    from streams.mapping.fields import FieldSource
    from streams.mapping.spec import Incoming
    from streams.operators.configuration import Deployed
    from workers.manifest import Signature


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """What a person says of a job; see `skysail score --help`."""

    rows: str
    out: str
    application: str | None = None
    model: str | None = None
    package: Path | None = None
    input: FieldSource | None = None
    id: FieldSource | None = None
    key: FieldSource | None = None
    features: FieldSource | None = None
    keep: str = "all"
    fields: Sequence[str] = ()
    chunk_rows: int = CHUNK_ROWS
    since: str = ""  # as it was said: a job that goes on begins where it began
    since_us: int = 0
    restart: bool = False
    overwrite: bool = False


class ScoredSubject(NamedTuple):
    """Who is asked.

    Attributes:
        models: that there are.
        names: of those that may answer, each with what is named of it: a version, a label, "".
        deployed: the application; None = a model alone.
        incoming: what the application's own mapping says of rows.
    """

    models: PackagedModels
    names: Mapping[str, str]
    deployed: Deployed | None
    incoming: Incoming | None


def scored(settings: Settings, told: ScoreOptions, tell: Callable[[int, int | None], None]) -> ScoringReport:
    """Score the rows that are named.

    Raises:
        UsageError: what is said does not go together.
        DeployError: a file cannot be read, or no broker or Redis answers.
        PackageError: a package cannot be loaded.
    """
    if sum(each is not None for each in (told.application, told.model, told.package)) != 1:
        raise UsageError("who answers? Give one of --application NAME, --model NAME[@VERSION], --package DIR")
    kind = _checked_out(told)
    codec = codec_for(settings)
    subject = _subject(settings, codec, told)
    with ExitStack() as stack:
        stored: StateReader = stack.enter_context(pinning.StoredStates(settings, codec))
        stack.enter_context(locked(_folder(told)))
        chunks = _chunks(settings, codec, told, subject, stored)
        source, whole = _source(settings, told, subject, chunks.pinned)
        asker = _asker(settings, codec, subject, told, chunks.pinned, stored)
        block = first_block(source, told.rows)
        is_found = told.input is None and subject.incoming is None
        reader = RowReader("", _signature(subject), _incoming(told, subject), is_found).settled(block)
        form = _form(kind, told, subject, block.names)
        writing.check_names(form, block.names)
        chunks.write()
        job = ScoringJob(source, _sink(settings, told, form, chunks.pinned), reader, asker, _default(subject),
                         told.chunk_rows)  # fmt: skip
        return job.run(chunks, lambda done: tell(done, whole))


def _checked_out(told: ScoreOptions) -> str:
    """Return the kind of the output.

    Raises:
        UsageError: it cannot be written.
    """
    if told.out.startswith(TOPIC):
        return "json"
    kind = writing.output_kind(Path(told.out))
    if Path(told.out).exists() and not told.overwrite:
        raise UsageError(f"{told.out} is there already: name another file, or add --overwrite")
    return kind


def _folder(told: ScoreOptions) -> Path:
    """Return where the chunks of a job lie: beside its output, or here for a topic."""
    if told.out.startswith(TOPIC):
        return Path(f"{told.out.removeprefix(TOPIC)}.parts")
    out = Path(told.out)
    return out.with_name(f"{out.name}.parts")


def _chunks(
    settings: Settings, codec: Codec, told: ScoreOptions, subject: ScoredSubject, stored: StateReader
) -> Chunks:
    """Return the chunks of a job that was begun, or of a new one."""
    folder = _folder(told)
    if told.restart:
        forget(folder)
    files = [] if told.rows.startswith(TOPIC) else described(found_files(Path(told.rows)))
    what = {"rows": told.rows, "input": files, "since": told.since, **_job(subject, told)}
    found = opened(folder, what)
    if found is not None:
        return found
    pinned = _pinned(settings, codec, subject, stored) | {"job": uuid.uuid4().hex}
    if told.rows.startswith(TOPIC):
        with answering(settings):
            pinned["bounds"] = bounds(settings, told.rows.removeprefix(TOPIC), told.since_us)
    return Chunks(folder, what, pinned)


def _source(
    settings: Settings, told: ScoreOptions, subject: ScoredSubject, pinned: Mapping[str, Any]
) -> tuple[ScoreSource, int | None]:
    """Return where rows come from, and how many there are, where that is known."""
    if not told.rows.startswith(TOPIC):
        files = found_files(Path(told.rows))
        return FileRows(files), total(files)
    name = told.rows.removeprefix(TOPIC)
    its = None if subject.incoming is None else subject.incoming.form
    form = its if its is not None and its.topic == name else TopicForm(name)
    if form.schema == REGISTRY:
        raise UsageError(f"{name} is of schemas in a registry, which are not looked up here: score files, or JSON")
    return TopicRows(settings, form, pinned["bounds"]), sum(end - start for start, end in pinned["bounds"])


def _sink(settings: Settings, told: ScoreOptions, form: writing.OutputForm, pinned: Mapping[str, Any]) -> ScoreSink:
    if told.out.startswith(TOPIC):
        return TopicSink(settings, told.out.removeprefix(TOPIC), form, str(pinned["job"]))
    return FileSink(Path(told.out), form)


def _subject(settings: Settings, codec: Codec, told: ScoreOptions) -> ScoredSubject:
    if told.package is not None:
        models, record = of_package(settings, told.package)
        return ScoredSubject(models, {record.name: record.version}, None, None)
    with answering(settings):
        versions = catalog.versions(settings, codec)
        serving = catalog.read(settings, codec, Model)
        applications = catalog.read(settings, codec, Application) if told.application is not None else {}
    known = {f"{each.name}{MODEL_VERSION}{each.version}": each for listed in versions.values() for each in listed}
    models = PackagedModels(settings, serving, known)
    if told.model is not None:
        name, _, version = told.model.partition(MODEL_VERSION)
        return ScoredSubject(models, {name: version}, None, None)
    name = str(told.application)
    if name not in applications:
        raise UsageError(f"there is no application {name}; there are: {', '.join(applications) or 'none'}")
    application = applications[name]
    configuration = Configuration(codec)
    configuration.on_record(Record(APPLICATIONS, 0, 0, 0, name.encode(), codec.encode(application)))
    mapping = TopicMapping.parse(application.mapping)
    asked = {each: application.versions.get(each, "") for each in dict.fromkeys(application.asks)}
    return ScoredSubject(models, asked, configuration.applications[name], mapping.incoming)


def _job(subject: ScoredSubject, told: ScoreOptions) -> dict[str, Any]:
    """Return what makes a job the same one as an earlier start's."""
    asked = {name: _described(subject.models, name, version) for name, version in subject.names.items()}
    application = None if subject.deployed is None else asdict(subject.deployed.application)
    sources = {name: repr(getattr(told, name)) for name in ("input", "id", "key", "features")}
    return {
        "models": asked, "application": repr(application), **sources, "keep": told.keep, "fields": [*told.fields],
    }  # fmt: skip


def _described(models: PackagedModels, name: str, told: str) -> list[Any]:
    models.version(name, told)  # or it is refused
    model = models.serving[name]
    return [told, model.version, model.digest, dict(model.shares), dict(model.labels)]


def _pinned(settings: Settings, codec: Codec, subject: ScoredSubject, stored: StateReader) -> dict[str, Any]:
    """Return what stays as it is now, whenever the job ends."""
    now_us = SystemClock().now_us()
    if subject.deployed is None:
        return {"now_us": now_us, "states": []}
    keys = pinning.commons(subject.deployed.application, settings.partitions)
    return {"now_us": now_us, "states": pinning.written(stored.read(keys), codec)}


def _asker(
    settings: Settings,
    codec: Codec,
    subject: ScoredSubject,
    told: ScoreOptions,
    pinned: Mapping[str, Any],
    stored: StateReader,
) -> RowAsker:
    if subject.deployed is None:
        ((name, version),) = subject.names.items()
        return OneVersion(subject.models, name, version)
    if told.key is not None and not subject.deployed.application.per_context:
        raise UsageError(f"application {told.application} has one state for all contexts: leave --key out")
    states = pinning.PinnedStates(pinning.read_back(pinned["states"], codec), stored)
    application, now_us = subject.deployed.application, int(pinned["now_us"])
    kernel = partial(KernelAsker, codec, subject.models, application, settings.partitions, states, now_us)
    return whole_asker(subject.models, subject.deployed, settings.partitions, states, now_us, kernel)


def _signature(subject: ScoredSubject) -> Signature:
    """Return what rows must be: what the first model takes, in the type that all of them take.

    Raises:
        UsageError: it takes several tensors, and a row of a file is a row of a table.
    """
    loaded = [subject.models.loaded(name, _some_version(subject, name)) for name in _choosable(subject)]
    first = loaded[0].manifest.input
    if first.inputs:
        raise UsageError(
            f"{loaded[0].manifest.name} takes several tensors ({first}), which files have no columns for: ask from"
            " Python, `client.predict_many(APPLICATION, {NAME: ARRAY, ...})`"
        )
    dtypes = {each.manifest.input.dtype for each in loaded}
    return first if first.kind != "tensor" or len(dtypes) == 1 else replace(first, dtype="float64")


def _choosable(subject: ScoredSubject) -> Sequence[str]:
    """Return the models that are asked about the row itself."""
    if subject.deployed is None or not subject.deployed.application.stages:
        return [*subject.names] if subject.deployed is None else subject.deployed.application.models
    stages = subject.deployed.application.stages
    return [stage.model for stage in stages if stage.model and not stage.after] or [*subject.names]


def _some_version(subject: ScoredSubject, name: str) -> str:
    models = subject.models
    return models.version(name, subject.names.get(name, "")) or models.serving[name].version


def _incoming(told: ScoreOptions, subject: ScoredSubject) -> Incoming:
    """Return what names columns: what is said, else the application's own mapping."""
    if told.input is None and subject.incoming is not None:
        its = subject.incoming
        said = {name: getattr(told, name) or getattr(its, name) for name in ("id", "key", "features")}
        return replace(its, **said, where=None)
    return told_by(told.input, told.id, told.key, told.features)


def _form(kind: str, told: ScoreOptions, subject: ScoredSubject, names: Sequence[str]) -> writing.OutputForm:
    keep = tuple(names) if told.keep == "all" else () if told.keep == "none" else tuple(told.keep.split(","))
    answer = writing.answer_kind(_kinds(subject))
    return writing.OutputForm(kind, answer, keep, writing.named(told.fields), told.keep == "all")


def _kinds(subject: ScoredSubject) -> frozenset[str]:
    """Return of which kinds answers may be: whole, number, text."""
    names = [*subject.names] if subject.deployed is None else subject.deployed.application.models
    found = [subject.models.loaded(name, _some_version(subject, name)).kinds for name in names]
    kinds = frozenset[str]().union(*found)
    if subject.deployed is None:
        return kinds
    policy, application = subject.deployed.policy, subject.deployed.application
    if is_answering(policy):
        kinds = frozenset({"number"})
    elif comes_from_outside(policy):
        kinds = frozenset({"text"})  # it may answer anything
    elif application.combine != VOTE and "whole" in kinds:
        kinds |= {"number"}
    default = application.default_output
    if default is None:
        return kinds
    return kinds | {"text" if isinstance(default, str) else "whole" if isinstance(default, int) else "number"}


def _default(subject: ScoredSubject) -> Value | None:
    return None if subject.deployed is None else subject.deployed.application.default_output
