"""How a worker batches and runs its model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How a worker batches and runs its model.

    Attributes:
        partitions: of `model-predictions`.
        controller: name of the batch controller.
        parameters: of the controller.
        objective_us: how long a batch may take; None = half of what the deadlines leave.
        queue_rows: unfinished queries from which on no more are read.
        threads: for the arithmetic of one batch.
        process: run the model in a process of its own, which can be killed when it hangs.
        patience_s: how long a batch may take before the model counts as hung, of every model or by its name; None = 10
            objectives, at least 5 s.
        load_s: how long loading the model may take.
        allow_pickle: load a pickled model whose digest is the deployed one.
        unload_first: unload a version before the next one is loaded, where the two do not fit into memory together.
        memory_bytes: that a model may take, by its name: such a one runs in a process of its own.
        allowed_batch_sizes: rows of the batches that a model is given, by its name, rising; others may be of any size.
    """

    partitions: int = 4
    controller: str = "aimd"
    parameters: Mapping[str, float] | None = None
    objective_us: int | None = None
    queue_rows: int = 4_096
    threads: int = 1
    process: bool = False
    patience_s: float | Mapping[str, float] | None = None
    load_s: float = 120.0
    allow_pickle: bool = False
    unload_first: bool = False
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    allowed_batch_sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def patience_of(self, model: str) -> float | None:
        """Return how long a batch of this model may take (s); None where nothing is said of it."""
        given = self.patience_s
        return given.get(model) if isinstance(given, Mapping) else given
