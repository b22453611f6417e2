"""Prints versions and packages for `skysail model`."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict

from deploy.cli.common import print_json, print_table
from deploy.state.labels import labels_of, loaded
from deploy.terminal import echo
from workers.errors import PackageError
from workers.kernel.model.routing import STABLE, label
from workers.manifest import described, pinned
from workers.packages.loading import checked

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from deploy.placement.whereabouts import Whereabouts
    from schemas.records import Model, Profile
    from streams.control.page.alerts import LoadFault
    from streams.control.page.hosts import HostRow
    from workers.manifest import Manifest
    from workers.manifest_form import Timings

MIB = 1 << 20


def print_versions(
    found: Sequence[tuple[Model, Model]],
    where: Whereabouts,
    *,
    as_json: bool,
    faults: Mapping[tuple[str, str], LoadFault] = MappingProxyType({}),
    hosts: Sequence[HostRow] = (),
    profile: Profile | None = None,
) -> None:
    """Print versions, each with the one that serves, and where it runs.

    Args:
        found: the versions.
        where: they run.
        as_json: for scripts.
        faults: why versions could not be loaded, for scripts; people are told otherwise.
        hosts: that are told below, with what they have in memory.
        profile: what batches of the model took in a host, of the version that it names.
    """
    rows = [(r, _standing(r, serving), where.of(r, serving)) for r, serving in found]
    if as_json:
        more = [
            {
                "runs": place,
                "fault": _fault(r, faults),
                "in_memory": _held(r, where.hosts),
                "profile": _profile(r, profile),
            }
            for r, _, place in rows
        ]
        print_json([asdict(r) | at | told for (r, at, _), told in zip(rows, more, strict=True)])
        return
    print_table(
        ("model", "version", "label", "share", "runs", "runtime", "input", "output", "package"),
        (
            (r.name, r.version, _named(at), f"{at['share']:g}", place, r.runtime, _input(r), r.output, r.path)
            for r, at, place in rows
        ),
    )
    for line in _of_hosts(hosts):
        echo(line)
    if profile is not None:
        _print_profile(profile)


def _print_profile(profile: Profile) -> None:
    """Print what batches and loading took."""
    echo(f"version {profile.version} in its host: each size by the longest of its last ten batches")
    print_table(
        ("rows a batch", "ms"),
        ((str(rows), f"{us / 1e3:,.2f}") for rows, us in zip(profile.sizes, profile.p99_us, strict=True)),
    )
    echo(f"loading takes {profile.load_us / 1e3:,.1f} ms, and it takes {profile.bytes / MIB:,.1f} MiB in memory")


def _profile(version: Model, profile: Profile | None) -> dict[str, object] | None:
    """Return what batches of a version took; None if that is not known."""
    return profile._asdict() if profile is not None and profile.version == version.version else None


def _of_hosts(hosts: Sequence[HostRow]) -> Iterator[str]:
    """Say what each host has in memory, what it unloaded last, and what it does not ask any more."""
    for host in hosts:
        used, there = host["bytes"] / MIB, host["budget_bytes"] / MIB
        yield (
            f"host {host['pool']} ({host['instance']}): {host['resident']:,} of {host['known']:,} models in memory, "
            f"{used:,.1f} of {there:,.0f} MiB; {host['loads']:,} loads, {host['evictions']:,} to make room for another "
            f"one, {host['refused']:,} rows refused as they could not be in time"
        )
        if host["longer"] is not None and host["shorter"] is not None:
            yield (
                f"  of {host['predicted']:,} batches {host['longer']:.1%} took longer than predicted, "
                f"{host['shorter']:.1%} less time"
            )
        if host["models"]:
            yield f"  in memory: {', '.join(host['models'])}"
        if host["evicted"]:
            yield f"  unloaded last: {host['evicted']}"
        for out in host["out"]:
            yield f"  {out['name']} {out['version']} is taken out ({out['times']} times in a row): {out['reason']}"


def _held(version: Model, hosts: Sequence[HostRow]) -> bool | None:
    """Tell whether a version is in memory; None where no host runs."""
    return any(f"{version.name} {version.version}" in host["models"] for host in hosts) if hosts else None


def _fault(version: Model, faults: Mapping[tuple[str, str], LoadFault]) -> dict[str, object] | None:
    """Return why a version could not be loaded; None if that is not known to have failed."""
    fault = faults.get((version.name, version.version))
    return None if fault is None else fault._asdict()


class _Standing(TypedDict):
    serves: bool
    label: str
    share: float
    labels: list[str]


def _standing(version: Model, serving: Model) -> _Standing:
    """Return what a version is for, the share of queries that it answers, and the labels that it was given."""
    name, given = version.version, labels_of(serving, version.version)
    if name == serving.version:
        rest = round(1.0 - sum(serving.shares.values()), 9)
        return {"serves": True, "label": STABLE, "share": rest, "labels": given}
    share = serving.shares.get(name)
    is_loaded = name in loaded(serving)
    return {"serves": False, "label": label(share) if is_loaded else "", "share": share or 0.0, "labels": given}


def _named(at: _Standing) -> str:
    """Return what a version is for and its labels, for people."""
    return ", ".join(filter(None, (at["label"], *at["labels"])))


def _input(record: Model) -> str:
    if record.dtype:
        return f"{record.dtype}{list(record.shape)}"
    if record.inputs:
        return described(record.inputs, ())
    manifest = _manifest(record)
    return "text or bytes" if manifest is None else str(manifest.input)


def _manifest(record: Model) -> Manifest | None:
    """Return the manifest of a version; None = its package is not here as it was deployed."""
    with suppress(PackageError):
        found = pinned(Path(record.path))
        return found.manifest if found.digest == record.digest else None
    return None


def print_columns(record: Model) -> None:
    """Print the columns that a version takes, each with its type; nothing if it takes no tables, or is not here."""
    manifest = _manifest(record)
    if manifest is not None and manifest.input.columns:
        echo(f"version {record.version} takes tables with these columns:")
        print_table(("column", "type"), manifest.input.columns)


def print_package(package: Path, *, as_json: bool) -> None:
    """Print what is in a package, its files checked against the manifest."""
    manifest, digest = checked(package)
    if as_json:
        print_json(asdict(manifest) | {"digest": digest})
        return
    print_table(("", ""), _lines(manifest, digest))
    conversion = manifest.options.get("conversion", {})
    if "batch_us" in conversion:
        echo("measured when it was packaged; with --convert auto each worker measures, and logs its choice:")
        print_timings(conversion["batch_us"])
    elif conversion:
        echo(f"each worker converts it to {', '.join(conversion['to'])}, measures, and logs its choice")


def _lines(manifest: Manifest, digest: str) -> Iterator[tuple[str, str]]:
    """Return what is in a manifest for people, a line each."""
    yield "model", f"{manifest.name} {manifest.version}"
    yield "runtime", manifest.runtime
    yield "input", f"{manifest.input}{', NaN allowed' if manifest.input.allow_nan else ''}"
    for name, kind in manifest.input.columns:
        yield "", f"{name}: {kind}"
    yield "output", manifest.output
    for form in manifest.outputs:
        yield "", described((form,), ())
    yield "classes", ", ".join(map(str, manifest.classes)) or "none"
    for name, found in manifest.files.items():
        yield "file", f"{name} {found}"
    for name, value in manifest.options.items():
        if name != "conversion":
            yield name, value if isinstance(value, str) else json.dumps(value)
    yield "digest", digest


def print_timings(batch_us: Timings) -> None:
    """Print a table of microseconds, a row for each runtime."""
    sizes = next(iter(batch_us.values()))
    rows = ((name, *(f"{us:,.0f}" for us in times.values())) for name, times in batch_us.items())
    print_table(("us a batch of", *map(str, sizes)), rows)
