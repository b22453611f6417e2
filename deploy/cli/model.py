"""`skysail model`: package, deploy, change versions, list."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from deploy.cli import going_back, packing
from deploy.cli import promote as promotions
from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.cli.comparing import compare
from deploy.cli.signing import key_type, keygen, sign_command, verify
from deploy.cli.versions import print_columns, print_package, print_timings, print_versions
from deploy.cli.watch import watch
from deploy.connect.schema_registry import codec_for
from deploy.diagnose.rehearsal import refuse_deadly
from deploy.errors import UsageError
from deploy.placement.whereabouts import whereabouts
from deploy.state import catalog, desired, labels, packages
from deploy.state.history import way_back
from deploy.terminal import echo
from schemas.records import Application, Model
from schemas.topics import MODEL_VERSION
from streams.promotion.lifecycle import VERSION
from workers import manifest as manifests
from workers.packages.conversion import CONVERSIONS
from workers.packages.signing.signed import keys_module, sign

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from deploy.config.settings import Settings
    from schemas.codec import Codec
    from streams.control.page.alerts import LoadFault
    from streams.control.page.hosts import HostRow
    from workers.manifest_form import Conversion

folder_argument = click.argument("package", type=click.Path(path_type=Path, exists=True, file_okay=False))

share_option = click.option(
    "--share",
    type=click.FloatRange(0.0, 1.0),
    default=1.0,
    show_default=True,
    help="The share of the model's queries that it answers.",
)

EXAMPLES = """\
skysail model package my_rules:predict_batch models/rules-1 --name rules --sample '[[0.0, 1.0]]'
skysail model package net.safetensors models/net-1 --name net --sample rows.npy --architecture my_nets:make_net
skysail model package cats.safetensors models/cats-1 --name cats --sample rows.npy --architecture my_nets:make_head \
    --trunk trunk.safetensors --trunk-architecture my_nets:make_trunk
skysail model package forest.joblib models/forest-1 --name forest --sample rows.npy --trust-pickle SHA256
skysail model package forest.joblib models/forest-2 --name forest --version 2 --sample rows.npy --warm-up traces/monday
skysail model package --mlflow mlruns/0/abc/artifacts/model models/churn-1 --name churn
skysail model sign models/forest-1 --key release.key    it was made by you: see also keygen, verify and package --sign
skysail model add models/forest-1      deploy it
skysail model add models/forest-2      a new version takes over; no query is lost or late
skysail model add models/forest-2 --share 0.1     it answers a tenth of the queries, the present version the rest
skysail model add models/forest-2 --shadow        it sees every query and answers none
skysail model canary forest 2 --share 0.5         another share for a known version
skysail model canary forest 2 --share 1           it serves: as `use`
skysail model canary forest 2 --share 0           it ends
skysail model canary forest 3 --share 0.2         one more canary, beside the others
skysail model shadow forest 2          run a known version as a shadow; its score: skysail tail reports
skysail model shadow forest 2 --end
skysail model compare forest@2         how it has fared beside the version that serves, and what guardrails say
skysail model compare forest@2 traces/week        the same, by a recorded log alone
skysail model promote forest@2         it takes over, if the feedback shows that it is better
skysail model promote forest@2 --auto             from share to share by itself, and back if it is worse
skysail model promote forest@2 --end              take `--auto` back
skysail model watch models --latest 2  deploy every package in a folder, and those that will come
skysail model label forest@3 nightly   who asks for forest@nightly gets version 3
skysail model unlabel forest nightly
skysail model keep forest --latest 2   the two versions added last stay loaded, and answer who names them
skysail model keep forest --version 1 --version 3
skysail model keep forest --all
skysail model keep forest --none       others than the one that serves are unloaded, unless they have a share or label
skysail model rollback forest          ends all canaries; without one, back to the version that served before
skysail model use forest 1             back to a version by name
skysail model retry forest 3           load it again here, although loading it has ended processes
skysail model list
skysail model show models/forest-1     what is in a package
skysail model show forest 2            what is in that version's package
skysail model show forest              the versions of a model, and what each is for
skysail model remove forest
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def model() -> None:
    """Package models, deploy them, list them.

    From Python, `skysail.package_sklearn(estimator, folder, name, version, sample)` does the same without a pickle.
    `skysail.package_torch` packages torch networks.
    """


@model.command()
@click.argument("places", nargs=-1, required=True, metavar="[SOURCE] FOLDER")
@click.option(
    "--mlflow",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="A model folder of MLflow instead of SOURCE: of scikit-learn, XGBoost, LightGBM, ONNX or PyTorch.",
)
@click.option("--name", required=True, help="The model's name in applications.")
@click.option("--version", default="1", show_default=True)
@click.option(
    "--sample",
    help="A few input rows: a .npy file, an .npz file of tensors by name, or JSON as for `skysail query`; for a data"
    " frame a .csv file with its columns, or JSON objects. Packages of convertible models keep them.  [default, of"
    " --mlflow alone: its input example]",
)
@click.option(
    "--output",
    type=click.Choice(manifests.OUTPUTS),
    help="[default: value of a regressor, scores of a classifier of few classes, else label]",
)
@click.option("--classes", help="Labels of a network's or function's scores: cat,dog [default: 0, 1, ...].")
@click.option("--architecture", help="Builds the torch network whose state is SOURCE: module:factory.")
@click.option("--argument", "arguments", multiple=True, help="Argument of the architecture, as NAME=JSON; repeatable.")
@click.option(
    "--trunk",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="State of what comes before the network, which is then a head (.safetensors). Models of one host with equal"
    " trunks hold it once, and their rows go through it together.",
)
@click.option("--trunk-architecture", help="Builds the trunk: module:factory.")
@click.option("--trunk-argument", "trunk_arguments", multiple=True, help="As --argument, of the trunk; repeatable.")
@click.option("--allow-nan", is_flag=True, help="Rows may hold NaN.")
@click.option("--by-reference", is_flag=True, help="A text is the address of a row; see `worker.references`.")
@click.option("--trust-pickle", metavar="SHA256", help="Digest of SOURCE, if it is a pickle that you trust.")
@click.option(
    "--allow-pickle",
    is_flag=True,
    help="Store an estimator as a pickle, for types that skops does not know; workers need worker.allow_pickle.",
)
@click.option(
    "--convert",
    type=click.Choice(CONVERSIONS),
    default="load",
    show_default=True,
    help="`load`: trees and linear models become arrays when they are loaded, if those agree and are faster. "
    "`hummingbird`: also tensor operations of torch. `none`: never. `onnx`, `trees`, `linear`: the package holds this "
    "form. `auto`: it holds all of them, and workers run the fastest. `stages`: a pipeline as one file a step, and "
    "models of one process share the equal ones.",
)
@click.option(
    "--warm-up",
    metavar="FILE",
    help="Up to 1,000 rows that every process has answered before it takes queries: a file as for --sample, or the"
    " folder of a recorded trace, of which the last queries count; `none` keeps none.  [default: the sample]",
)
@click.option("--sign", "key", type=key_type, help="A private key, which signs the package: see `skysail model sign`.")
@json_option
def package(
    places: Sequence[str], sample: str | None, *, mlflow: Path | None, key: Path | None, as_json: bool, **options: Any
) -> None:
    """Package SOURCE into FOLDER, and try it on the sample.

    SOURCE is a function `module:name`; the state of a torch network (.safetensors, or .pt with --trust-pickle); an ONNX
    graph (.onnx); or a fitted estimator saved with joblib or pickle (with --trust-pickle). Modules are also searched
    for in the current folder. With --mlflow the folder says what the model is; its pickles need --trust-pickle, too.
    """
    folder, private = Path(places[-1]), None if key is None else keys_module().read_private(key)
    rows = None if sample is None else packing.sample(sample)
    if len(places) != (2 if mlflow is None else 1):
        raise click.UsageError("give SOURCE and FOLDER, or --mlflow PATH and FOLDER")
    if mlflow is not None:
        manifest = packing.package_mlflow(mlflow, folder, rows, **options)
    elif rows is None:
        raise click.UsageError("Missing option '--sample'.")
    else:
        manifest = packing.package(places[0], folder, rows, **options)
    digest = manifests.digest(folder)
    if private is not None:
        sign(folder, private)
    if as_json:
        print_json(asdict(manifest) | {"folder": str(folder), "digest": digest})
        return
    echo(f"packaged {manifest} in {folder}, digest {digest}{'' if key is None else f', signed with {key}'}")
    conversion = manifest.options.get("conversion")
    if conversion is not None:
        _print_conversion(conversion)
    echo(f"deploy it with: skysail model add {folder}")
    if options["allow_pickle"]:
        echo("it is a pickle: its worker needs `worker: {allow_pickle: true}` in the settings")


def _print_conversion(conversion: Conversion) -> None:
    forms, at_load = ", ".join(conversion["to"]), conversion.get("at") == "load"
    said = f"will be converted to {forms} when it is loaded" if at_load else f"converted to {forms}"
    echo(f"{said}: {conversion['rows']} rows agree within {conversion['difference']:.1g}")
    if not at_load:
        for name, reason in conversion["refused"].items():
            echo(f"not to {name}: {reason}")
        print_timings(conversion["batch_us"])


@model.command()
@folder_argument
@share_option
@click.option("--shadow", is_flag=True, help="It sees every query and answers none.")
@click.option(
    "--force", is_flag=True, help="Also if its inputs or outputs differ from those of the version that serves."
)
@json_option
@with_settings
def add(settings: Settings, package: Path, *, share: float, shadow: bool, force: bool, as_json: bool) -> None:
    """Deploy PACKAGE: check it, create its topic, publish it.

    A new version of a running model takes over without a restart: its workers load it beside the present version, warm
    it up, and change between two batches. If it cannot be loaded, the present version goes on. With --share it answers
    only some queries (a canary), with --shadow none. `skysail run` starts workers for a new model, also while it runs,
    once PACKAGE is on its machine.

    A version whose inputs or outputs differ from those of the version that serves is refused without --force. Even then
    its workers change to it only when a query fits it. A package that ends the process which loads it is refused where
    that can be tried: one that names code is not.
    """
    record, codec = packages.model_record(package, settings), codec_for(settings)
    refuse_deadly(settings, record)
    share = 0.0 if shadow else _above_zero(share)
    before, now = desired.add(settings, codec, package, share=share, force=force)
    if as_json:
        print_json(asdict(record))
    elif share < 1.0:
        echo(_told_beside(record.name, record.version, share))
    else:
        echo(f"{record.name} {record.version} is deployed")
        echo(_told_next(before, now))


@model.command()
@click.argument("name")
@click.argument("version")
@json_option
@with_settings
def use(settings: Settings, name: str, version: str, *, as_json: bool) -> None:
    """Let VERSION of model NAME answer, forward or back: any version of `skysail model list`."""
    _use(settings, name, version, as_json=as_json)


@model.command()
@click.argument("name")
@click.argument("version")
@json_option
@with_settings
def retry(settings: Settings, name: str, version: str, *, as_json: bool) -> None:
    """Let VERSION of model NAME be loaded again, although loading it has ended processes on this machine.

    What became of loading it is forgotten in this folder, where `skysail run` or the worker was started, and workers
    begin anew.
    """
    desired.retry(settings, codec_for(settings), name, version)
    if as_json:
        print_json({"model": name, "version": version})
    else:
        echo(f"{name} {version} is loaded again by workers that were started in this folder")


@model.command()
@click.argument("name")
@click.argument("version")
@share_option
@json_option
@with_settings
def canary(settings: Settings, name: str, version: str, *, share: float, as_json: bool) -> None:
    """Let VERSION of model NAME answer a share of the queries, and the present version the rest.

    The query id decides which. Every answer names its version, and counts for the model. A model may have several
    canaries, with shares that are together below 1. With a share of 1 this version serves and the others end. With 0
    it ends.
    """
    if share == 1.0:
        _use(settings, name, version, as_json=as_json)
    else:
        _run_beside(settings, name, version, share or None, as_json=as_json)


@model.command()
@click.argument("name")
@click.argument("version")
@click.option("--end", is_flag=True, help="End the shadow.")
@json_option
@with_settings
def shadow(settings: Settings, name: str, version: str, *, end: bool, as_json: bool) -> None:
    """Run VERSION of model NAME as a shadow: it sees every query and answers none.

    The joiner's reports show its loss beside those of the versions that answer (`version_loss_total` /
    `version_joined_total`). It runs in the model's workers, in a queue of its own.
    """
    _run_beside(settings, name, version, None if end else 0.0, as_json=as_json)


def _run_beside(settings: Settings, name: str, version: str, share: float | None, *, as_json: bool) -> None:
    serving = desired.run_beside(settings, codec_for(settings), name, version, share)
    if share is None or as_json:
        _tell_rest(serving, (version,), as_json=as_json)
    else:
        echo(_told_beside(name, version, share))


def _told_beside(name: str, version: str, share: float) -> str:
    if share:
        told = f"{name} {version} answers {share:.3g} of the queries as soon as its workers have loaded it"
        end = f"skysail model canary {name} {version} --share 0"
        return f"{told}; all of them: skysail model use {name} {version}; none: {end}"
    told = f"{name} {version} sees every query as soon as its workers have loaded it, and answers none"
    return f"{told}; to end that: skysail model shadow {name} {version} --end"


def _told_next(before: Model | None, now: Model) -> str:
    if before is None:
        return (
            "`skysail run` starts its workers, also while it runs; if you start roles one by one: skysail run --role"
            f" worker --model {now.name}"
        )
    told = "its workers answer with it as soon as they have loaded it"
    return told if before.version == now.version else f"{told}; to go back: skysail {way_back(before, now)}"


def _above_zero(share: float) -> float:
    if share == 0.0:
        raise UsageError(
            "a new version with a share of 0 would do nothing; with --shadow it sees queries and answers none"
        )
    return share


@model.command()
@click.argument("candidate", metavar="NAME@VERSION")
@click.option("--application", default="", help="Whose losses count  [default: of all that ask the model]")
@click.option("--shadow", is_flag=True, help="First let it see every query and answer none.")
@click.option(
    "--share", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), help="First let it answer some."
)
@promotions.shared_options
@promotions.auto_options
@json_option
@with_settings
def promote(
    settings: Settings,
    candidate: str,
    *,
    application: str,
    shadow: bool,
    share: float | None,
    auto: bool,
    end: bool,
    unproven: bool,
    limits: tuple[tuple[str, float], ...],
    as_json: bool,
    **given: Any,
) -> None:
    """Let VERSION of model NAME take over, if the feedback shows that it is better than the version that serves.

    Both are compared on the same queries while it is a shadow, and on queries side by side while it is a canary. It
    takes over if the lower bound of the difference of their mean losses is above 0. The bounds hold however often one
    looks. Otherwise this says how much is missing.

    With --auto the control role takes it from share to share: up while the bounds allow it, and back at once if they
    turn, a guard is over its limit, or it has cost its budget of errors. Steps that begin with 0 begin with a shadow.
    """
    codec = codec_for(settings)
    name = candidate.partition("@")[0]
    if end:
        promotions.end(settings, codec, VERSION, name, as_json=as_json)
        return
    plan = promotions.version_plan(settings, codec, candidate, limits=promotions.limits_of(limits), **given)
    if shadow or share is not None:
        _run_beside(settings, name, plan.candidate, share or 0.0, as_json=as_json)
        if why := promotions.never_compared(settings, codec, plan, application):
            echo(f"it cannot be compared so: {why}", err=True)
    elif auto:
        promotions.leave_to_control(settings, codec, plan, as_json=as_json)
    else:
        promotions.take_over(settings, codec, plan, application, unproven=unproven, as_json=as_json)


@model.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="At once, without a look at what feedback says of the two versions.")
@json_option
@with_settings
def rollback(settings: Settings, name: str, *, force: bool, as_json: bool) -> None:
    """End the canaries of model NAME; without a canary, go back to the version that served before the present one.

    A version that was a canary or shadow only, or was taken back, is none to go back to. This says how both versions
    have fared, and refuses a version that feedback shows to be worse.
    """
    codec = codec_for(settings)
    serving, gone = desired.end_canaries(settings, codec, name)
    if gone:
        _tell_rest(serving, gone, as_json=as_json)
    else:
        going_back.go(settings, codec, name, force=force, as_json=as_json)


def _tell_rest(serving: Model, gone: Sequence[str], *, as_json: bool) -> None:
    if as_json:
        print_json({"model": serving.name, "serves": serving.version, "shares": serving.shares})
        return
    for version in gone:
        echo(
            f"{serving.name} {version} ends: it answers the queries that it holds, {serving.version} answers all others"
        )


def _use(settings: Settings, name: str, version: str, *, as_json: bool) -> None:
    before, now = desired.switch(settings, codec_for(settings), name, version)
    if as_json:
        print_json({"model": name, "served": before.version, "serves": now.version})
    elif before.version == now.version:
        echo(f"{name} {version} serves already and answers all queries; other versions: skysail model show {name}")
    else:
        echo(f"{name} {version} serves, no longer {before.version}, as soon as its workers have loaded it")
        echo(f"to go back: skysail {way_back(before, now)}")


for command in (compare, watch, keygen, sign_command, verify):
    model.add_command(command)


@model.command()
@click.argument("version", metavar="NAME@VERSION")
@click.argument("label")
@click.option("--force", is_flag=True, help="Also if its workers have not loaded it: they do then.")
@json_option
@with_settings
def label(settings: Settings, version: str, label: str, *, force: bool, as_json: bool) -> None:
    """Give VERSION of model NAME a LABEL; the version that had it loses it.

    A query or an application may then ask for NAME@LABEL. The version stays loaded for as long as it has the label.
    Only a version that all of the model's workers have loaded gets one at once. So first let it run: as a canary, or
    with `skysail model keep`.
    """
    codec = codec_for(settings)
    name, _, wanted = version.partition(MODEL_VERSION)
    if not wanted:
        raise UsageError(f"name the version: {name}@VERSION; see `skysail model show {name}`")

    def changed(serving: Model, known: Sequence[str]) -> Model:
        news = labels.labelled(serving, known, wanted, label)
        if not force and wanted not in _answering(settings, codec, name):
            raise UsageError(
                f"{name} {wanted} is not loaded by all workers of {name}, so its queries would get no answer: let it"
                f" run first (skysail model keep {name} --version {wanted}), or label it with --force"
            )
        return news

    news = desired.change(settings, codec, name, changed)
    _tell_labels(news, f"{name}@{label} is version {wanted} from now on; to end that: skysail model unlabel", as_json)


def _answering(settings: Settings, codec: Codec, name: str) -> set[str]:
    from deploy.diagnose.health import answering

    return answering(settings, codec, name)


@model.command()
@click.argument("name")
@click.argument("label")
@json_option
@with_settings
def unlabel(settings: Settings, name: str, label: str, *, as_json: bool) -> None:
    """Take LABEL from the version of model NAME that has it.

    Queries that name it get the outcome `unknown_version` from then on. The version is unloaded if nothing else keeps
    it.
    """
    news = desired.change(settings, codec_for(settings), name, lambda serving, _: labels.unlabelled(serving, label))
    _tell_labels(news, f"{name} has no label {label} any more; the others: skysail model show", as_json)


def _tell_labels(news: Model, text: str, as_json: bool) -> None:
    if as_json:
        print_json({"model": news.name, "serves": news.version, "labels": news.labels})
    else:
        echo(f"{text} {news.name}")


@model.command()
@click.argument("name")
@click.option("--latest", type=click.IntRange(1), help="So many of the versions added last, those to come among them.")
@click.option("--version", "versions", multiple=True, help="This version; repeatable.")
@click.option("--all", "keeps_all", is_flag=True, help="All versions, those to come among them.")
@click.option("--none", "keeps_none", is_flag=True, help="None.")
@json_option
@with_settings
def keep(
    settings: Settings,
    name: str,
    *,
    latest: int | None,
    versions: tuple[str, ...],
    keeps_all: bool,
    keeps_none: bool,
    as_json: bool,
) -> None:
    """Keep versions of model NAME loaded, and unload the others.

    They stand by: they answer the queries that name them, and no others. The version that serves, canaries, shadows
    and versions with a label are loaded in any case.
    """
    if sum((latest is not None, bool(versions), keeps_all, keeps_none)) != 1:
        raise UsageError("say which versions stay loaded: --latest N, --version VERSION, --all or --none")
    last = labels.ALL if keeps_all else latest or 0
    news = desired.change(
        settings, codec_for(settings), name, lambda serving, known: labels.keeping(serving, known, versions, last)
    )
    others = sorted(labels.loaded(news) - {news.version})
    if as_json:
        print_json({"model": name, "serves": news.version, "latest": news.latest, "standby": news.standby})
    else:
        echo(f"{name} {news.version} serves; loaded besides: {', '.join(others) or 'none'}")


@model.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Also if applications use it.")
@json_option
@with_settings
def remove(settings: Settings, name: str, *, force: bool, as_json: bool) -> None:
    """Remove model NAME from the deployment; its package stays.

    If an application still chooses it, the query is answered by default at once (`unknown_model`). Queries under way
    are answered. `skysail run` stops its worker; a worker that was started by itself idles until you stop it. The topic
    stays, and is used again if NAME comes back.
    """
    codec = codec_for(settings)
    known = catalog.read(settings, codec, Model)
    if name not in known:
        raise UsageError(f"there is no model {name}; there are: {', '.join(sorted(known)) or 'none'}")
    asking = sorted(app.name for app in catalog.read(settings, codec, Application).values() if name in app.asks)
    if asking and not force:
        raise UsageError(
            f"model {name} is used by {', '.join(asking)}; take it out of there first (skysail app set {asking[0]}"
            " models=OTHER,...), or answer those queries by default with --force"
        )
    catalog.remove(settings, Model, name)
    if as_json:
        print_json({"removed": name, "asked_by": asking, "in_settings": name in settings.models})
        return
    echo(
        f"model {name} is removed; `skysail run` stops its worker, and you stop one that was started by itself"
        + (f"; {', '.join(asking)} still uses it" if asking else "")
    )
    if name in settings.models:
        echo(f"the settings still name it under `models`: the next `skysail run` deploys {name} again", err=True)


@model.command("list")
@json_option
@with_settings
def list_(settings: Settings, *, as_json: bool) -> None:
    """List the deployed models and all their versions, in the order of addition.

    If `skysail run` was started from this folder, the column "runs" tells where each version runs, and why. Below
    stand the hosts, with what they have in memory and what they unloaded last, and the versions that could not be
    loaded, with the attempts and the reason.
    """
    codec = codec_for(settings)
    serving = catalog.read(settings, codec, Model)
    listed = sorted(catalog.versions(settings, codec).items())
    faults: Mapping[tuple[str, str], LoadFault] = {}
    hosts: Sequence[HostRow] = ()
    if serving:
        from deploy.diagnose.health import hosts_lately, load_faults_lately

        faults = load_faults_lately(settings, codec) if as_json else {}
        hosts = hosts_lately(settings, codec)
    found = [(r, serving[name]) for name, versions in listed for r in versions]
    print_versions(found, whereabouts(settings, hosts), as_json=as_json, faults=faults, hosts=hosts)
    if serving and not as_json:
        from deploy.diagnose.health import failing_versions

        for check in failing_versions(settings, codec):
            echo(f"{check.found}; {check.advice}", err=True)


@model.command()
@click.argument("package")
@click.argument("version", required=False)
@json_option
@with_settings
def show(settings: Settings, package: str, version: str | None, *, as_json: bool) -> None:
    """Show a package, its files checked against the manifest, or the versions of a model.

    Of a model that a host runs, it also shows what batches of each size took, as the host predicts them. Of one that
    takes tables it shows the columns.

    PACKAGE is a folder, or the name of a deployed model. With VERSION, that version's package is shown.
    """
    if version is None and Path(package).is_dir():
        print_package(Path(package), as_json=as_json)
        return
    codec = codec_for(settings)
    serving = catalog.read(settings, codec, Model).get(package)
    if serving is None:
        raise UsageError(f"{package} is neither the folder of a package nor a deployed model: see `skysail model list`")
    versions = catalog.versions(settings, codec)[package]
    if version is None:
        profile = catalog.profiles(settings, codec).get(package)
        from deploy.diagnose.health import hosts_lately

        where = whereabouts(settings, hosts_lately(settings, codec))
        print_versions([(r, serving) for r in versions], where, as_json=as_json, profile=profile)
        if not as_json:
            print_columns(serving)
            promotions.print_course(settings, codec, VERSION, package)
        return
    found = {record.version: record for record in versions}
    if version not in found:
        raise UsageError(f"{package} has no version {version}; it has {', '.join(found)}")
    print_package(Path(found[version].path), as_json=as_json)
