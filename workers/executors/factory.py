"""What runs a model, as the settings say: a thread of this process, a process of its own, or several."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from schemas.topics import MODEL_VERSION
from workers.executors.careful import Careful
from workers.executors.frames import Package
from workers.executors.host import HostExecutors
from workers.executors.models import ModelExecutors
from workers.executors.pool import PoolExecutor
from workers.executors.predictor import TIMES_SAMPLE, loaded_by, longest_inside, predictor, within
from workers.executors.process import ProcessExecutor
from workers.executors.thread import Executor, ThreadExecutor
from workers.inputs.references import References
from workers.packages.autotune import SIZES
from workers.packages.load_notes import LoadNotes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from schemas.records import Input, Model
    from streams.operators.contract import Predicted
    from workers.packages.autotune import Choice
    from workers.packages.disk_cache import DiskCache
    from workers.settings import WorkerSettings


# What batches may take in the process of a host beside its models: at least this, or a quarter of what those may.
BATCHES_BYTES: Final = 128 << 20


def executors_of(
    settings: WorkerSettings, now_us: Callable[[], int], make: Callable[[Model], Executor] | None = None
) -> ModelExecutors:
    """Return what runs the versions of a role's models.

    Args:
        settings: how they are run.
        now_us: the clock.
        make: returns what runs a version, by that clock alone; None = as the settings say.
    """
    if make is not None:
        return ModelExecutors(lambda model, _: make(model), now_s=lambda: now_us() / 1e6)
    careful = None
    if settings.notes is not None:
        careful = Careful(LoadNotes(Path(settings.notes)), lambda model: _beside(model, settings, now_us))
    return ModelExecutors(lambda model, chose: executor_of(model, settings, now_us, chose), careful)


def _beside(model: Model, settings: WorkerSettings, now_us: Callable[[], int]) -> Executor | None:
    """Return a child that loads a version before this process does; None = it never runs in this process."""
    if settings.processes_of(model.name, model.digest):
        return None
    return _child_of(model, settings, now_us)


def executor_of(
    model: Model, settings: WorkerSettings, now_us: Callable[[], int], chose: Callable[[Choice], None]
) -> Executor:
    """Return what will run a version; nothing is loaded yet.

    Args:
        model: which; its package must lie where the record says.
        settings: how it is run.
        now_us: the clock.
        chose: called with the forms of a package that run, and the times measured.
    """
    package = package_of(model, settings)
    if count := settings.processes_of(model.name, model.digest):
        children = [_child_of(model, settings, now_us, chose) for _ in range(count)]
        return children[0] if count == 1 else PoolExecutor(children, now_us, package.sizes)

    def load() -> Callable[[Sequence[Input]], Predicted]:
        loaded = loaded_by(package._replace(digest=model.digest))  # nothing is loaded here that is not pinned
        if loaded.choice is not None:
            chose(loaded.choice)
        if getattr(loaded.runtime, "waits", False) or loaded.manifest.input.by_reference:
            executor.keep_in_thread()
        elif getattr(loaded.runtime, "leaves_lock", False):
            executor.leaves_lock()
        predict = predictor(loaded, package.sizes, package.references)
        if settings.is_inside and (longest := longest_inside(loaded)):
            executor.weigh(longest // TIMES_SAMPLE)
            return within(longest, predict, model.name)
        return predict

    executor = ThreadExecutor(load, now_us, settings.load_s)
    return executor


def _child_of(
    model: Model, settings: WorkerSettings, now_us: Callable[[], int], chose: Callable[[Choice], None] = lambda _: None
) -> ProcessExecutor:
    """Return a child process for a version."""
    memory_bytes = settings.memory_bytes.get(model.name, 0)
    package = package_of(model, settings)
    return ProcessExecutor(package, now_us, load_s=settings.load_s, memory_bytes=memory_bytes, chose=chose)


def package_of(model: Model, settings: WorkerSettings, cache: DiskCache | None = None) -> Package:
    """Return what is loaded for a version, and how; a `cache` has files of packages on a disk of this machine."""
    sizes = settings.allowed_batch_sizes.get(model.name, ())
    return Package(
        model.path,
        model.digest or None,
        settings.threads,
        settings.allow_pickle,
        settings.code,
        sizes,
        sizes or _sizes(settings),
        References(settings.references, settings.reference_bytes, settings.queue_bytes),
        cache,
        settings.packages,
        settings.keys,
        f"{model.name}{MODEL_VERSION}{model.version}",
    )


def hosted_by(
    settings: WorkerSettings,
    now_us: Callable[[], int],
    lanes: int = 1,
    memory_bytes: int = 0,
    cache: DiskCache | None = None,
) -> HostExecutors:
    """Return what runs the models of a host: one child process; nothing is started yet.

    Args:
        settings: how they are run.
        now_us: the clock.
        lanes: batches that run at a time.
        memory_bytes: that the models may take together, for which batches get room beside them; 0 = any.
        cache: of packages' files, on a disk of this machine; None = there is none.
    """
    room = max(memory_bytes // 4, BATCHES_BYTES) if memory_bytes else 0
    return HostExecutors(
        lambda model: package_of(model, settings, cache),
        now_us,
        lanes=lanes,
        load_s=settings.load_s,
        memory_bytes=memory_bytes + room,
        models_bytes=memory_bytes,
        threads=settings.threads,
        notes=None if settings.notes is None else LoadNotes(Path(settings.notes)),
    )


def _sizes(settings: WorkerSettings) -> tuple[int, ...]:
    """Return the batch sizes by which a runtime is chosen: the one that is in use, where that is known."""
    if settings.controller != "fixed":
        return SIZES
    return (int((settings.parameters or {}).get("rows", 1)),)
