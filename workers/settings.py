"""How a worker batches and runs its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# Rows that a new version is tried on. Few batches carry more, and the largest rows take 32 MiB together.
WARM_UP_ROWS = 64
# A package may still be on its way to this machine, or its disk may be missing for a while. Five minutes is as long as
# TensorFlow Serving tries (5 times, a minute apart).
LOAD_RETRIES, LOAD_RETRY_US = 30, 10_000_000
# How long a new version waits for the present one to answer the rows read so far. If it waited longer, a rollback from
# a slow version would wait for that one's queue.
DRAIN_US = 100_000


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker batches and runs its model.

    Attributes:
        partitions: of `model-predictions`.
        controller: name of the batch controller.
        parameters: of the controller.
        objective_us: how long a batch may take; None = derived from the deadlines, see `Batcher.objective`.
        queue_rows: with this many unfinished queries, the worker reads no more.
        queue_bytes: with this many bytes of inputs of unfinished queries, the worker reads no more.
        threads: for the arithmetic of one batch.
        processes: of its own in which a model runs, which can be killed when it hangs, of every model or by its name;
            0 = none, in the worker itself.
        patience_s: how long a batch may take before the model counts as hung, of every model or by its name; None = 10
            objectives, at least 5 s.
        load_s: how long loading the model may take.
        load_retries: how often a version that could not be loaded is loaded again, before it is given up.
        load_retry_us: the time between.
        allow_pickle: load a pickled model whose digest is the deployed one.
        code: modules and packages that a package may name as a function or an architecture; none = any.
        packages: the folder that packages lie in; empty = any.
        unload_first: unload a version before the next one is loaded, where the two do not fit into memory together.
        warm_up_rows: of the last ones that a new version is tried on, at least 1.
        drain_us: how long a new version waits for the present one to answer the rows read so far.
        memory_bytes: that a model may take, by its name; a bounded model runs in a process of its own.
        allowed_batch_sizes: rows of the batches that a model is given, by its name, rising; others may be of any size.
        references: places from which inputs may be read by their address; none = nothing is read.
        reference_bytes: of one such input.
        trusted: digest of the one version of a model that may run in this process, by the model's name. Any other
            version of it runs in a process of its own. A model that is not named may run here in all its versions.
        is_inside: whether models run inside selection, which has no time for rows much longer than their samples.
        keys: folder of public keys by one of which a package has to be signed; empty = it need not be.
        notes: folder in which it is kept what became of loading packages; None = versions are loaded without care.
    """

    partitions: int = 4
    controller: str = "aimd"
    parameters: Mapping[str, float] | None = None
    objective_us: int | None = None
    queue_rows: int = 4_096
    queue_bytes: int = 256 << 20
    threads: int = 1
    processes: int | Mapping[str, int] = 0
    patience_s: float | Mapping[str, float] | None = None
    load_s: float = 120.0
    load_retries: int = LOAD_RETRIES
    load_retry_us: int = LOAD_RETRY_US
    allow_pickle: bool = False
    code: tuple[str, ...] = ()
    unload_first: bool = False
    warm_up_rows: int = WARM_UP_ROWS
    drain_us: int = DRAIN_US
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    allowed_batch_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    references: tuple[str, ...] = ()
    reference_bytes: int = 16 << 20
    trusted: Mapping[str, str] = field(default_factory=dict)
    is_inside: bool = False
    notes: str | None = None
    packages: str = ""
    keys: str = ""

    def processes_of(self, model: str, digest: str = "") -> int:
        """Return how many processes of its own a version runs in, 0 = none.

        It is at least one if the model's memory is bounded, or another version of it is trusted.
        """
        given = self.processes.get(model, 0) if isinstance(self.processes, Mapping) else self.processes
        is_strange = self.trusted.get(model, digest) != digest
        return max(given, int(model in self.memory_bytes or is_strange))

    def patience_of(self, model: str) -> float | None:
        """Return how long a batch of this model may take (s); None if the settings do not say."""
        given = self.patience_s
        return given.get(model) if isinstance(given, Mapping) else given
