"""Brings the topic `models` to what a folder of packages holds, look by look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from deploy.diagnose.rehearsal import why_deadly
from deploy.state import catalog, desired, topics
from deploy.watch.aspired import aspired
from deploy.watch.folder import Packages
from schemas.records import Model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from deploy.config.settings import Settings
    from deploy.process.progress import Progress
    from deploy.state.desired import CreateTopics
    from deploy.watch.aspired import Aspired, AspirePolicy
    from deploy.watch.folder import FoundPackage
    from schemas.codec import Codec


class Look(NamedTuple):
    """What came of a look.

    Attributes:
        changes: of models, those that are new among them.
        unchanged: models that are as they were.
        packages: that were found.
        faults: why packages cannot be used, by folder.
        empty: models of which the folder holds no package any more; what runs of them goes on.
    """

    changes: Sequence[Aspired]
    unchanged: Sequence[str]
    packages: int
    faults: Mapping[Path, str]
    empty: Sequence[str]


class Watcher:
    """Watches a folder; nothing is read before the first look.

    Args:
        settings: of the deployment.
        codec: of its records.
        folder: of packages.
        policy: which versions are aspired.
        create_topics: creates missing topics.
    """

    def __init__(
        self,
        settings: Settings,
        codec: Codec,
        folder: Path,
        policy: AspirePolicy,
        create_topics: CreateTopics = topics.create,
    ) -> None:
        self._settings = settings
        self._codec = codec
        self._packages = Packages(folder, settings)
        self._policy = policy
        self._create_topics = create_topics
        self._seen: dict[str, list[FoundPackage]] = {}  # by model, what was published
        self._last: list[FoundPackage] = []

    def look(self, progress: Progress, *, is_patient: bool = True) -> Look | None:
        """Publish what the folder holds now; None if nothing has changed since the last look.

        Args:
            progress: of reading the packages.
            is_patient: a package with a fault may still be on its way: it is named if it is the same at the next look.

        Raises:
            DeployError: the broker refused it, so the next look tries again.
        """
        what = f"the packages of {self._packages.folder}"
        found = self._packages.look(
            lambda number, count, path: progress.waits(what, f"{number} of {count}: {path.name}")
        )
        faults = {each.folder: each.fault for each in found if each.fault and each.looks == (2 if is_patient else 1)}
        if not faults and not _differ(found, self._last):
            return None
        progress.waits("the broker")
        look = self._publish(found)
        self._last = found
        return look._replace(faults={**faults, **look.faults})

    def _publish(self, found: Sequence[FoundPackage]) -> Look:
        """Publish what has changed, all in one go: the topics of new models first."""
        listed = catalog.versions(self._settings, self._codec)
        published = catalog.read(self._settings, self._codec, Model)
        by_model = _by_model(found, listed)
        changes: list[Aspired] = []
        now_us = time.time_ns() // 1000
        faults: dict[Path, str] = {}
        for name, packages in sorted(by_model.items()):
            if not _differ(packages, self._seen.get(name, ())):
                continue  # what an operator has said since then stands
            deadly = self._deadly(packages, listed.get(name, ()))
            faults |= deadly
            records = [each.record for each in packages if each.record is not None and each.folder not in deadly]
            outcome = aspired(records, listed.get(name, ()), published.get(name), self._policy, now_us)
            faults |= {package.folder: reason for package in packages if (reason := _reason(package, outcome))}
            if name in self._seen or outcome.news or outcome.serving != published.get(name):
                changes.append(outcome)  # also as it was: workers try anew what was mended
        self._write(published, changes)
        changed = {change.serving.name for change in changes if change.serving is not None}
        empty = sorted(self._seen.keys() - by_model.keys())
        self._seen = by_model
        return Look(changes, sorted(by_model.keys() - changed), len(found), faults, empty)

    def _deadly(self, packages: Iterable[FoundPackage], listed: Sequence[Model]) -> dict[Path, str]:
        """Return which packages that are new end the process which loads them, and how."""
        known = {model.digest for model in listed}
        new = {each.folder: each.record for each in packages if each.record and each.record.digest not in known}
        return {folder: why for folder, model in new.items() if (why := why_deadly(self._settings, model))}

    def _write(self, published: Mapping[str, Model], changes: Iterable[Aspired]) -> None:
        """Write the records of changed models."""
        settings, codec = self._settings, self._codec
        kept = [(change, change.serving) for change in changes if change.serving is not None]
        news = [model if change.before else desired.spread(settings, model) for change, model in kept]
        if any(model.name not in published for model in news):
            known = {**published, **{model.name: model for model in news}}
            self._create_topics(settings, desired.build(settings, known))
        added = [version for change, _ in kept for version in change.news]
        if news:
            catalog.aspire(settings, codec, added, news)


def _by_model(found: Iterable[FoundPackage], listed: Mapping[str, Sequence[Model]]) -> dict[str, list[FoundPackage]]:
    """Return packages by model; a known version whose package is damaged now stays one: it may be loaded."""
    places = {model.path: model for versions in listed.values() for model in versions}
    groups: dict[str, list[FoundPackage]] = {}
    for package in found:
        record = package.record or places.get(str(package.folder.resolve()))
        if record is not None:
            groups.setdefault(record.name, []).append(package._replace(record=record))
    return groups


def _reason(package: FoundPackage, outcome: Aspired) -> str:
    return "" if package.record is None else outcome.refused.get(package.record.version, "")


def _differ(found: Iterable[FoundPackage], before: Iterable[FoundPackage]) -> bool:
    """Tell whether packages came, went or were changed."""
    return [package[:2] for package in found] != [package[:2] for package in before]
