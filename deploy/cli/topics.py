"""`skysail topics`: the topics that the topology needs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.config import asyncapi
from deploy.connect.schema_registry import codec_for
from deploy.state import acls, desired
from deploy.state.topics import check, create, lag, mend, usage
from deploy.terminal import echo
from streams.checks import SIZE
from streams.topology import describe

if TYPE_CHECKING:
    from deploy.config.settings import Settings


_UNITS = ((1 << 10, "KiB"), (1 << 20, "MiB"), (1 << 30, "GiB"))
EXAMPLES = """\
skysail topics describe                who reads and writes what
skysail topics create                  create missing topics and partitions
skysail topics check                   what is wrong and what to do; exit code 1 on a fault
skysail topics check --mend            set what can be set: sizes, retention, compression, timestamps
skysail topics usage                   the disk that each topic takes, and how long it keeps what
skysail topics lag                     what each role has yet to read, by partition
skysail topics acl                     who needs which rights, as lines for kafka-acls
skysail topics quotas                  how much clients may write, as lines for kafka-configs
skysail topics asyncapi                topics, records and roles as an AsyncAPI 3 document
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def topics() -> None:
    """Create, check and describe the topics."""


@topics.command("create")
@json_option
@with_settings
def create_(settings: Settings, *, as_json: bool) -> None:
    """Create missing topics, and add the partitions that `worker.partitions` wants; all else stays as it is.

    Partitions are added while everything runs. Selection uses them once the model's workers read them, some ten
    seconds later. If `max_input_kib` has been raised, it names the commands that let existing topics take such inputs.
    """
    codec = codec_for(settings)
    topology = desired.build(settings, desired.known_models(settings, codec))
    created = create(settings, topology)
    spread = desired.spread_out(settings, codec)
    small = [finding.message for finding in check(settings, topology) if finding.aspect == SIZE]
    if as_json:
        print_json({"created": [f"{settings.prefix}.{name}" for name in created], "spread": spread, "to_do": small})
        return
    told = [f"created {settings.prefix}.{name}" for name in created]
    told += [f"the queries of {name} are spread over {count} partitions now" for name, count in spread.items()]
    echo(*(told + small or ["nothing was missing"]))


@topics.command("check")
@click.option("--mend", "mends", is_flag=True, help="Set the topics' properties that are not as needed, then check.")
@json_option
@with_settings
def check_(settings: Settings, *, mends: bool, as_json: bool) -> None:
    """Compare the broker with the topology. The exit code is 1 on a fault, 0 with warnings only.

    With --mend it first sets the properties of topics which were created without, or changed: size, retention, cleanup,
    compression, timestamps. Partitions, copies and missing topics it leaves as they are.
    """
    known = desired.known_models(settings, codec_for(settings))
    topology = desired.build(settings, known)
    mended = mend(settings, check(settings, topology)) if mends else []
    findings = [*check(settings, topology), *desired.unspread(settings, known)]
    faults = [finding for finding in findings if finding.fault]
    if as_json:
        told = {"mended": mended} if mends else {}
        print_json({"usable": not faults, **told, "findings": [asdict(finding) for finding in findings]})
    else:
        for line in mended:
            echo(f"mended: {line}")
        for finding in findings:
            echo(f"{'fault' if finding.fault else 'warning'}: {finding.message}")
        echo("these topics cannot be used as they are" if faults else "all topics can be used")
    sys.exit(1 if faults else 0)


@topics.command("usage")
@json_option
@with_settings
def usage_(settings: Settings, *, as_json: bool) -> None:
    """Show the disk that each topic takes on all brokers, for how long it keeps records, and what it may take.

    `retention_days` and `keep_inputs` set the latter two; `skysail topics check --mend` gives them to what exists.
    """
    rows = usage(settings)
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    width = max((len(row.topic) for row in rows), default=5)
    echo(f"{'topic':{width}}  {'on disk':>11}  {'kept':>8}  {'at most':>11}")
    for row in rows:
        most = "" if row.most is None else size(row.most)
        echo(f"{row.topic:{width}}  {size(row.bytes):>11}  {kept(row.days):>8}  {most:>11}".rstrip())
    echo(f"{size(sum(row.bytes for row in rows))} in all, every copy counted")


def size(count: int) -> str:
    """Return a number of bytes as people read it, of four digits at most."""
    if count < 1_000:
        return f"{count} B"
    unit, name = next(((unit, name) for unit, name in _UNITS if count < 1_000 * unit), _UNITS[-1])
    return f"{count / unit:,.1f} {name}"


def kept(days: float | None) -> str:
    """Return for how long records are kept as people read it."""
    if days is None:
        return "for good"
    return f"{days * 24:.3g} h" if days < 1 else f"{days:.3g} d"


@topics.command("describe")
@json_option
@with_settings
def describe_(settings: Settings, *, as_json: bool) -> None:
    """Draw the topology: every role with its inputs and outputs. It needs no broker; models come from the settings."""
    topology = desired.build(settings, dict.fromkeys(settings.models or ("MODEL",)))
    if as_json:
        print_json(asdict(topology))
    else:
        echo(*describe(topology).split("\n"))


@topics.command("lag")
@json_option
@with_settings
def lag_(settings: Settings, *, as_json: bool) -> None:
    """Show the partitions that roles have not read to their end, the longest first.

    A partition whose number stays while its end grows is stuck: `skysail tail TOPIC` shows the record at that offset.
    """
    known = desired.known_models(settings, codec_for(settings))
    rows = lag(settings, desired.build(settings, known))
    if as_json:
        print_json([row._asdict() | {"unread": row.end - row.at} for row in rows])
        return
    for role, topic, number, at, end in rows:
        echo(f"{end - at:>12,} unread  {role}: {topic}, partition {number}, from offset {at:,}")
    echo(*([] if rows else ["every partition is read to its end"]))


@topics.command("acl")
@click.option(
    "--as",
    "form",
    type=click.Choice(["commands", "json", "redis"]),
    default="commands",
    show_default=True,
    help="Lines for kafka-acls, data for any other tool, or lines for redis-cli.",
)
@with_settings
def acl_(settings: Settings, *, form: str) -> None:  # fmt: skip
    """Print the rights of each role, of askers, teachers, readers and operators, as they follow from the topology.

    Users are called PREFIX.ROLE. A role of its own user can then do what it is for, and nothing else. For Strimzi:
    `skysail k8s strimzi`. It needs no broker; models come from the settings.
    """
    known = desired.build(settings, dict.fromkeys(settings.models or ("MODEL",)))
    rights = desired.rights_of(settings, known)
    if form == "json":
        print_json(acls.data(rights, settings.prefix))
    elif form == "redis":
        echo(*acls.redis_lines(settings.prefix))
    else:
        echo(*acls.commands(rights, settings.prefix, settings.kafka.bootstrap))


@topics.command("quotas")
@json_option
@with_settings
def quotas_(settings: Settings, *, as_json: bool) -> None:
    """Print the quotas of clients' users, as the settings have them (`quotas`): lines for kafka-configs.

    Beyond its quota a client waits, and no other one does. Roles have none: what they write follows from what is asked.
    """
    if as_json:
        its = acls.quotas(settings.quotas)
        print_json([{"user": f"{settings.prefix}.{who}", "quotas": rates} for who, rates in its.items()])
        return
    lines = [*acls.quota_commands(settings.quotas, settings.prefix, settings.kafka.bootstrap)]
    echo(*(lines or ["no user has a quota: set `quotas`, such as {asker: {write_kib: 512}} (docs/security.md)"]))


@topics.command("asyncapi")
@click.option("--prefix", default="skysail", show_default=True, help="Of the topics, as the setting.")
@click.option("--bootstrap", default="127.0.0.1:9092", show_default=True, help="Host and port of a broker.")
def asyncapi_(prefix: str, bootstrap: str) -> None:
    """Print all topics with their Avro schemas, and who reads and writes them: AsyncAPI 3, in YAML.

    It needs no broker and no settings. What it prints by default is docs/topics.yaml.
    """
    echo(*asyncapi.text(prefix, bootstrap=bootstrap).splitlines())
