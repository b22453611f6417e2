"""What models' batches take, as it stands in topic `profiles`: read from the beginning, and written when it changes.

measured ─▶ at most every 10 s ─▶ differs from the topic by a tenth ─▶ topic `profiles` ─▶ restored when it is wanted

So estimates survive a restart, go along with a model that another host takes over, and are what the planner reckons by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Profile
from streams.operators.contract import Emit, LogMessage
from workers.kernel.schedule.profiles import class_of

if TYPE_CHECKING:
    from schemas.codec import Codec
    from streams.operators.contract import Effects, Record
    from workers.kernel.schedule.profiles import Profiles

# A model's profile is written at most this often (us). The first one is written sooner, for the planner.
WRITTEN_US: Final = 10_000_000
FIRST_US: Final = 1_000_000
# By which part a time or a size must have changed. The largest of ten samples moves by as much all the time.
CHANGED: Final = 0.1
# Models whose profiles are remembered, of some 300 bytes each; of more, those that were written longest ago are not.
MOST: Final = 16_384


class ProfileLog:
    """The profiles of the versions that serve, as topic `profiles` has them.

    Attributes:
        due_us: when `write` has something to write; None = nothing was measured.
    """

    def __init__(self, codec: Codec, profiles: Profiles) -> None:
        """Know nothing; `profiles` are those that are measured."""
        self._codec = codec
        self._profiles = profiles
        # As the topic has them, and when they were written (us); those that were written last at the end.
        self._known: dict[str, tuple[Profile, int]] = {}
        self._measured: dict[str, int] = {}  # models that have been measured since, and when they may be written (us)
        self.due_us: int | None = None

    def on_record(self, record: Record) -> Effects:
        """Take a record of the topic; one that is no profile is skipped."""
        name = (record.key or b"").decode(errors="replace")
        if record.value is None:
            self._known.pop(name, None)
            return []
        try:
            profile = self._codec.decode(Profile, record.value)
        except DecodeError as fault:
            return [LogMessage(f"skipped a record about the times of model {name}: {fault}", is_fault=True)]
        if profile.model != name or not _is_sound(profile):
            return [
                LogMessage(f"skipped a record about the times of model {name}: it is no profile of it", is_fault=True)
            ]
        self._note(profile, record.timestamp_us)
        return []

    def restore(self, model: str, version: str) -> None:
        """Take what the topic has of a version, unless it has been measured here."""
        known = self._known.get(model)
        if known is not None and known[0].version == version:
            self._profiles.restore(known[0])

    def written_us(self, model: str) -> int:
        """Return when what a model's batches take was written last (us); 0 = none has run, so it was not asked."""
        profile, time_us = self._known.get(model, (None, 0))
        return time_us if profile is not None and profile.sizes else 0

    def measured(self, model: str, now_us: int) -> None:
        """Note that the version that serves was run or loaded."""
        if model in self._measured:
            return
        known = self._known.get(model)
        due_us = now_us + FIRST_US if known is None else max(now_us + FIRST_US, known[1] + WRITTEN_US)
        self._measured[model] = due_us
        self.due_us = due_us if self.due_us is None else min(self.due_us, due_us)

    def write(self, now_us: int) -> Effects:
        """Write what is due and has changed since it was written last."""
        due = [model for model, due_us in self._measured.items() if due_us <= now_us]
        effects = self._write(due, now_us)
        self.due_us = min(self._measured.values(), default=None)
        return effects

    def write_all(self, now_us: int) -> Effects:
        """Write all that has changed since it was written last."""
        self.due_us = None
        return self._write([*self._measured], now_us)

    def _write(self, models: list[str], now_us: int) -> Effects:
        for model in models:
            del self._measured[model]
        found = [self._profiles.kept(model) for model in models]
        return [self._written(profile, now_us) for profile in found if profile.version and self._has_changed(profile)]

    def _written(self, profile: Profile, now_us: int) -> Emit:
        self._note(profile, now_us)
        return Emit(topics.PROFILES, 0, profile.model.encode(), self._codec.encode(profile))

    def _note(self, profile: Profile, time_us: int) -> None:
        self._known.pop(profile.model, None)
        self._known[profile.model] = profile, time_us
        if len(self._known) > MOST:
            del self._known[next(iter(self._known))]

    def _has_changed(self, profile: Profile) -> bool:
        known, _ = self._known.get(profile.model, (None, 0))
        if known is None or known.version != profile.version or _classes(known) != _classes(profile):
            return True
        before, after = ((*each.sizes, *each.p99_us, each.load_us, each.bytes) for each in (known, profile))
        return any(abs(new - old) > CHANGED * old for old, new in zip(before, after, strict=True))


def _classes(profile: Profile) -> list[int]:
    return [class_of(rows) for rows in profile.sizes]


def _is_sound(profile: Profile) -> bool:
    """Tell whether the numbers of a record can be times and sizes."""
    numbers = (*profile.p99_us, profile.load_us, profile.bytes)
    return len(profile.sizes) == len(profile.p99_us) and min(profile.sizes, default=1) > 0 and min(numbers) >= 0
