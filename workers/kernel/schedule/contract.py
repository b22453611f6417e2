"""What a schedule is told of the models of a host, and what it answers.

    changed ─▶ refused ─▶ the host drops those rows, and says `changed`
                 │
               next ─▶ Start ─▶ the host takes the rows, says `changed`, and runs them ─▶ done

`refused` comes before `next`: a row that cannot make it would otherwise make the batch smaller. A model that was
started is not started again before it is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.kernel.schedule.profiles import Profiles


class Queue(NamedTuple):
    """The rows of one model that wait.

    Attributes:
        model: whose.
        dues_us: when each is due, rising.
        since_us: when the oldest of them came.
        is_resident: whether the model can run now.
        load_us: what is left of loading it, if it starts now or has started; 0 if it is resident.
        bytes: of the model in memory.
        cap: rows that a batch may hold, at least 1.
        trunk: digest of the one that it shares with other models; "" = none.
    """

    model: str
    dues_us: Sequence[int]
    since_us: int
    is_resident: bool
    load_us: int
    bytes: int
    cap: int
    trunk: str = ""


class Start(NamedTuple):
    """A batch that starts now.

    Attributes:
        model: that predicts it.
        rows: how many, from the front of its queue.
        earliest_us: when it may start.
        latest_us: when it has to start, so that its most urgent row is in time by the estimate.
        parts: the models of a joint batch, each with its rows; `model` is then what they share. () = it is of one.
    """

    model: str
    rows: int
    earliest_us: int
    latest_us: int
    parts: tuple[tuple[str, int], ...] = ()


class Refusal(NamedTuple):
    """Rows at the front of a model's queue that cannot be in time, and why, for whoever asked."""

    model: str
    rows: int
    reason: str


class Schedule(Protocol):
    """Chooses the next batch of a host. Every time is an argument (us); each call costs O(log n) of n models.

    Attributes:
        profiles: what executions take; `done` adds to them.
    """

    name: ClassVar[str]
    profiles: Profiles

    def changed(self, queue: Queue, now_us: int) -> None:
        """Take what now waits for one model, whose queue, cap or residency has changed."""
        ...

    def forget(self, model: str, now_us: int) -> None:
        """Forget a model that comes no more; a batch of it that runs is done as ever."""
        ...

    def refused(self, now_us: int) -> Sequence[Refusal]:
        """Return what is to be dropped, each once; the host answers with `changed`."""
        ...

    def next(self, now_us: int) -> Start | None:
        """Return the batch to start now; None = no lane is free, or nothing can run."""
        ...

    def due_us(self) -> int | None:
        """Return when `refused` may have something new if nothing changes before; None = never."""
        ...

    def demand(self, model: str, now_us: int) -> int:
        """Return how much a model is worth having in memory, for `Residency`; 0 = nothing asks for it."""
        ...

    def done(self, model: str, rows: int, took_us: int, now_us: int) -> None:
        """Take that a batch is over, and how long it took."""
        ...
