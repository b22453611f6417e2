"""`skysail replay --offline`: a trace through the kernels, without a deployment."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import Progress

from deploy.cli.common import print_json, print_table
from deploy.config.settings import Control, JoinerSection, SelectionSection, Settings
from deploy.connect.schema_registry import codec_for
from deploy.connect.stores import state_store
from deploy.terminal import echo
from schemas import topics
from streams.operators.join.kernel import JoinerSettings
from streams.operators.selection.kernel import SelectionSettings
from streams.replay.as_it_was import RecordedDeployment, replay
from streams.replay.report import HOW, KINDS, MISSING, STATES, WAITING, WHY
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from schemas.codec import Codec
    from schemas.records import PolicyState
    from streams.operators.contract import StateKey
    from streams.replay.report import ReplayReport
    from streams.replay.untaped.run_again import Running
    from streams.trace.manifest import TraceManifest

DIFFERENT = 1  # exit status
SHOWN = 10  # differences that are printed; all are in --json, up to 1,000


def as_it_was(settings: Settings, folder: Path, packages: Sequence[Path], *, stored: bool, as_json: bool) -> None:
    """Replay a trace as it was, print what differs, and end with status 1 if anything does."""
    trace, codec = Trace.open(folder), codec_for(settings)
    begun_s = time.monotonic()
    with Progress(console=Console(stderr=True), transient=True) as bar:
        calls = trace.manifest.topics.get(topics.CALLS)
        task = bar.add_task("replaying", total=0 if calls is None else calls.count)
        known = replace(deployment(trace.manifest), running=_running(settings, packages))
        report = replay(trace, known, codec, lambda so_far: _show(bar, task, so_far))
    took_s = time.monotonic() - begun_s
    if stored:
        report.compare_states(asyncio.run(_stored(settings, codec, report)), codec)
    if as_json:
        print_json(summary(report, took_s))
    else:
        _print(report, took_s)
    if not report.is_equal:
        raise SystemExit(DIFFERENT)


def deployment(manifest: TraceManifest) -> RecordedDeployment:
    """Return what a replay must know of the deployment that was recorded, by its settings."""
    known = manifest.topics.get(topics.OBSERVATIONS) or manifest.topics.get(topics.PREDICTIONS)
    there = Settings().partitions if known is None else known.partitions
    partitions = int(manifest.settings.get("partitions", there))  # somebody may have added some, which are not served
    selection = SelectionSection.model_validate(manifest.settings.get("selection", {}))
    joiner = JoinerSection.model_validate(manifest.settings.get("joiner", {}))
    margin_us = None if selection.margin_ms is None else int(selection.margin_ms * 1_000)
    first = {} if known is None or known.name != topics.OBSERVATIONS else known.first
    return RecordedDeployment(
        SelectionSettings(partitions, margin_us=margin_us, cache_bytes=selection.cache_bytes),
        JoinerSettings(
            partitions,
            int(joiner.window_s * 1e6),
            int(joiner.early_s * 1e6),
            large_bytes=joiner.large_mib << 20,
        ),
        begun=frozenset(number for number in range(partitions) if not first.get(number, 0)),
        copies_bytes=Control.model_validate(manifest.settings.get("control", {})).ids_mib << 20,
    )


def _running(settings: Settings, packages: Sequence[Path]) -> Running:
    """Load models' packages, to be run on what was recorded.

    Raises:
        PackageError: one cannot be loaded.
    """
    if not packages:
        return {}
    from deploy.state.packages import loaded
    from workers.executors.predictor import predictor

    models = [loaded(settings, package) for package in packages]
    return {(record.name, record.version): predictor(model) for record, model in models}


def summary(report: ReplayReport, took_s: float) -> dict[str, Any]:
    """Return what a replay has shown, for scripts."""
    return {
        "seconds": report.span_s,
        "took_s": took_s,
        "times_real_time": report.span_s / took_s,
        "records": dict(report.records),
        "undecodable": dict(report.undecodable),
        "checked": {kind: report.checked[kind] for kind in KINDS},
        "different": {kind: report.different[kind] for kind in KINDS},
        "missing": {kind: report.missing[kind] for kind in MISSING},
        "unchecked": dict(report.unchecked),
        "waiting": dict(report.waiting),
        "inferred": dict(report.inferred),
        "gap": report.gap,
        "states": len(report.states),
        "differences": [difference._asdict() for difference in report.differences],
    }


def _show(bar: Progress, task: Any, report: ReplayReport) -> None:
    bar.update(
        task, completed=report.records[topics.CALLS], description=f"replaying: {report.different.total()} differences"
    )


async def _stored(settings: Settings, codec: Codec, report: ReplayReport) -> Mapping[StateKey, PolicyState]:
    """Return the states that the store has now under the names that the trace has states for."""
    store = state_store(settings, codec)
    try:
        found = await store.read([*report.states])
    finally:
        await store.close()
    return {key: state for key, state in found.states.items() if state is not None}


def _print(report: ReplayReport, took_s: float) -> None:
    queries = report.records[topics.QUERIES]
    times = report.span_s / took_s
    echo(f"{queries:,} queries of {report.span_s:,.1f} s in {took_s:,.1f} s: {times:,.1f} times real time")
    # States are compared with --stored alone.
    kinds = [kind for kind in KINDS if kind != STATES or report.checked[kind]]
    print_table(("WHAT", "CHECKED", "DIFFERENT"), [(k, f"{report.checked[k]:,}", report.different[k]) for k in kinds])
    for kind in MISSING:
        if report.missing[kind]:
            echo(f"missing: {report.missing[kind]:,} {kind} that should have been written")
    for name, count in report.unchecked.most_common():
        echo(f"not checked: {count:,}: {WHY[name]}")
    for name, count in report.inferred.most_common():
        echo(f"checked with a part inferred: {count:,}: {HOW[name]}")
    if report.gap:
        echo(f"models answer with numbers that differ by {report.gap:.2g} of them at most")
    for name, count in report.waiting.most_common():
        echo(f"not looked for: {count:,}: {WAITING[name]}")
    for topic, count in report.undecodable.most_common():
        echo(f"{topic}: {count:,} records are none of ours: dead letters")
    for difference in report.differences[:SHOWN]:
        echo(f"{difference.kind} of {difference.id}:")
        echo(f"  recorded  {difference.recorded}", f"  replayed  {difference.replayed}")
    left = report.different.total() + report.missing.total() - SHOWN
    if left > 0:
        echo(f"and {left:,} more differences; --json has up to 1,000")
    echo("all is as it was" if report.is_equal else "it is not as it was")
