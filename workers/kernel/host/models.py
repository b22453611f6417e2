"""One model of a host: what topic `models` says of it, and its worker, which is made when it is loaded first.

A model that is not loaded and that nobody asks costs its records alone: about 2 KiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from workers.kernel.model.offers import NOTHING

if TYPE_CHECKING:
    from schemas.records import Model
    from streams.operators.contract import Load, Record
    from workers.kernel.model.offers import CopyOffer, Offers
    from workers.kernel.model.worker import ModelWorker

# A version that ended the process of the models is loaded again after this long (us), four times as long each time.
# After the longest of these times without another end it counts as mended.
OUT_US: Final = 10_000_000
MOST_OUT_US: Final = 640_000_000


@dataclass(slots=True)
class Copy:
    """A copy of a version that a worker wants in memory.

    Attributes:
        load: what the worker asked for.
        unit: its name among all copies of the host.
        is_told: whether the worker has heard that it was loaded. It hears of that once: it does not notice when a copy
            leaves memory and comes back.
        loading_us: since when it was loaded last.
    """

    load: Load
    unit: str
    is_told: bool = False
    loading_us: int = 0


class Out(NamedTuple):
    """A version that is taken out: how often in a row, until when (us), and why."""

    times: int
    until_us: int
    fault: str


@dataclass(slots=True)
class Hosted:
    """One model of a host.

    Attributes:
        model: its version that serves, as published last.
        records: the last ones of topic `models` about it, by key.
        worker: its kernel; None = it was never loaded nor asked.
        offers: what the worker offered after its last call.
        copies: that the worker wants, by number.
        out: packages that were taken out, by version and digest.
        sizes: what versions took in memory (bytes), the least of all times: what else was done meanwhile counts, too.
        due_us: when the worker's timer is due.
        held: rows that wait.
    """

    model: Model
    records: dict[bytes, Record] = field(default_factory=dict)
    worker: ModelWorker | None = None
    offers: Offers = NOTHING
    copies: dict[int, Copy] = field(default_factory=dict)
    out: dict[tuple[str, str], Out] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    due_us: int | None = None
    held: int = 0

    @property
    def is_asked(self) -> bool:
        """Whether it was asked since this host began."""
        return self.offers.asked > 0

    def offer_of(self, copy: Copy) -> CopyOffer | None:
        """Return what waits for a copy; None = it does not answer (yet)."""
        return self.offers.by_copy.get(copy.load.copy)

    def serves(self, copy: Copy) -> bool:
        """Tell whether the version that serves is asked by this copy."""
        offer = self.offer_of(copy)
        return offer is not None and offer.is_serving

    def size_of(self, model: Model) -> int:
        """Return what a version takes in memory (bytes), as far as that is known; 0 = it is not."""
        return self.sizes.get(model.version, model.bytes)

    def measured(self, model: Model, size_bytes: int) -> int:
        """Note what a version took when it was loaded; returns what it is reckoned to take."""
        if size_bytes:
            self.sizes[model.version] = min(size_bytes, self.sizes.get(model.version, size_bytes))
        return self.size_of(model)

    def out_until(self, model: Model) -> int:
        """Return until when a version is taken out (us); 0 = it is not."""
        out = self.out.get((model.version, model.digest))
        return 0 if out is None else out.until_us

    def why_out(self, model: Model) -> str:
        """Return why a version was taken out last."""
        out = self.out.get((model.version, model.digest))
        return "" if out is None else f"it is taken out: {out.fault}"

    def take_out(self, model: Model, fault: str, now_us: int) -> int:
        """Take a version out; returns until when. What it did long ago is forgotten."""
        package = model.version, model.digest
        before = self.out.get(package, Out(0, 0, ""))
        times = before.times + 1 if now_us < before.until_us + MOST_OUT_US else 1
        until_us: int = now_us + min(OUT_US << 2 * (times - 1), MOST_OUT_US)
        self.out[package] = Out(times, until_us, fault)
        return until_us
