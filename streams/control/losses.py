"""Losses that rise well above what they were: of each application, and of each model that it asks. Pure, and bounded.

report ──▶ add ──▶ blocks of 5 s, later of minutes ──▶ judge, in slices ──▶ worse: since when, from what to what

A window at the end is compared with all before it, for some lengths of window (`policies.estimators.two_windows`). All
comparisons of a year together bring a false alarm with probability `A_YEAR` at most, for each application and each
model: of losses whose mean stays as it is. What has risen stays told until it is likelier that it fell again.

Each call judges `JUDGED_A_CALL` trails at most, so that the page answers meanwhile. A round over all trails begins once
a step at most and judges each trail once. So no trail has more looks than there are steps, as the probability demands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log
from typing import TYPE_CHECKING, Final, NamedTuple

from policies.estimators.two_windows import LossSum, rise, runs, surprise
from streams.control.figures import parse
from streams.control.history import STEP_US

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streams.control.figures import Figures

A_YEAR: Final = 0.01
_MINUTE_US: Final = 60_000_000
_DAY_US: Final = 1_440 * _MINUTE_US
# How long blocks are, by their age: a day has at most 36 of 5 s, 58 of a minute and 138 of ten.
_LENGTHS: Final = ((2 * _MINUTE_US, STEP_US), (60 * _MINUTE_US, _MINUTE_US), (_DAY_US, 10 * _MINUTE_US))
# Windows are so many blocks. Those of 24 and less end within two minutes; then each is a minute, then ten.
_WINDOWS: Final = frozenset(
    (1, 2, 3, 4, 6, 9, 13, 19, 24, 26, 28, 31, 35, 40, 46, 55, 67, 81, 85, 90, 96, 104, 115, 130, 150, 175)
)
_LATELY: Final = 19  # blocks
_FEW_BLOCKS: Final = 6  # before the window: how much they vary says little else
_LOOKS: Final = 365 * _DAY_US / STEP_US * len(_WINDOWS)
SURE: Final = log(_LOOKS / A_YEAR)
# It is likelier that it fell again: of a thousand looks at what stays high some are wrong, and say so for a moment.
_LIKELY: Final = 10.0
# A rise of less wakes nobody, however sure it is: of the loss, and as a share of what it was.
LEAST, LEAST_SHARE = 0.02, 0.2
# After so long what has risen is how it is.
USUAL_AFTER_US: Final = 43_200_000_000
# Applications and models that are followed.
MOST_FOLLOWED: Final = 4_096
# Trails that one call judges: some 25 ms if all are full.
JUDGED_A_CALL: Final = 128
_COUNTS: Final = ("losses_total{", "model_losses_total{")
_NONE: Final = LossSum()


class LossBlock(NamedTuple):
    """The losses of a step, or of a minute."""

    start_us: int
    losses: LossSum


class WorseLoss(NamedTuple):
    """A loss that has risen.

    Attributes:
        application: whose answers they are.
        model: of which model; empty = of what was served.
        since_us: when it rose.
        before: what it was in the mean.
        now: what it is.
    """

    application: str
    model: str
    since_us: int
    before: float
    now: float


@dataclass(slots=True)
class LossTrail:
    """The losses of one application or model.

    Attributes:
        blocks: the latest, the oldest first; since the rise where there is one.
        before: blocks before the rise; empty = none has risen.
        at_us: when the rise was noticed.
    """

    blocks: list[LossBlock] = field(default_factory=list)
    before: list[LossBlock] = field(default_factory=list)
    at_us: int = 0
    is_fresh: bool = False  # there is something to judge

    def add(self, losses: LossSum, now_us: int) -> None:
        """Take losses of now."""
        start_us = now_us // STEP_US * STEP_US
        self.is_fresh = True
        if self.blocks and self.blocks[-1].start_us == start_us:
            self.blocks[-1] = LossBlock(start_us, self.blocks[-1].losses.plus(losses))
            return
        if self.blocks and self.blocks[-1].start_us // _MINUTE_US != start_us // _MINUTE_US:
            self.blocks = _merged(self.blocks, now_us)
        self.blocks.append(LossBlock(start_us, losses))

    def judge(self, now_us: int) -> None:
        """Look whether the loss has risen, or fallen again."""
        is_fresh, self.is_fresh = self.is_fresh, False
        if self.before and now_us - self.blocks[0].start_us > USUAL_AFTER_US:
            self.before = []
        elif is_fresh and self.before:
            self._look_for_fall()
        elif is_fresh:
            self._look_for_rise(now_us)

    @property
    def levels(self) -> tuple[float, float]:
        """What the loss was before the rise, and what it is lately."""
        return _sum(self.before).mean, _sum(self.blocks[-_LATELY:]).mean

    def _look_for_rise(self, now_us: int) -> None:
        if len(self.blocks) <= _FEW_BLOCKS:
            return
        whole, total, count = _sum(self.blocks), 0.0, 0.0  # plain numbers: a thousand applications take a second else
        for length, block in enumerate(reversed(self.blocks[_FEW_BLOCKS:]), start=1):
            total += block.losses.total
            count += block.losses.number
            if length in _WINDOWS and self._has_risen(whole, LossSum(total, count), length):
                self._split(self._onset(whole), now_us)
                return

    def _has_risen(self, whole: LossSum, window: LossSum, length: int) -> bool:
        """Tell whether the last blocks are surely above those before them, also if losses come in runs."""
        before = _less(whole, window)
        if not _is_much(before, window) or surprise(found := rise(before, window)) < SURE:
            return False
        losses = [block.losses for block in self.blocks]
        return surprise(found / runs(losses[:-length], losses[-length:])) >= SURE

    def _onset(self, whole: LossSum) -> int:
        """Return the block at which a rise is likeliest."""
        best, at, window = 0.0, len(self.blocks) - 1, _NONE
        for place in range(len(self.blocks) - 1, _FEW_BLOCKS - 1, -1):
            window = window.plus(self.blocks[place].losses)
            found = rise(_less(whole, window), window)
            best, at = max((best, at), (found, place))
        return at

    def _split(self, at: int, now_us: int) -> None:
        self.before, self.blocks, self.at_us = self.blocks[:at], self.blocks[at:], now_us

    def _look_for_fall(self) -> None:
        high = _sum([block for block in self.blocks if block.start_us <= self.at_us])
        later = [block for block in self.blocks if block.start_us > self.at_us]
        half = (_sum(self.before).mean + high.mean) / 2.0
        window = _NONE
        for length, block in enumerate(reversed(later), start=1):
            window = window.plus(block.losses)
            is_low = length in _WINDOWS and window.mean <= half
            if is_low and surprise(rise(high.flipped(), window.flipped())) >= _LIKELY:
                self.blocks, self.before = [*self.before, *later[-length:]], []
                return


class LossWatch:
    """The losses of all applications, and of the models that each asks."""

    __slots__ = ("_looked_us", "_may_forget", "_trails", "_waiting")

    def __init__(self) -> None:
        self._trails: dict[tuple[str, str], LossTrail] = {}
        self._waiting: list[LossTrail] = []  # to be judged in this round
        self._may_forget = True  # nobody has looked for old ones in this round
        self._looked_us = 0  # when the round began

    def add(self, before: Figures | None, after: Figures, now_us: int) -> None:
        """Take a process's figures, and what they were before."""
        self.judge(now_us)
        if before is None or before is after:
            return
        for name, count in after["counters"].items():
            if name.startswith(_COUNTS) and (more := _risen(before, name, count)) > 0.0:
                total = name.replace("losses_total", "loss_total", 1)
                loss = min(more, _risen(before, total, after["counters"].get(total, 0.0)))
                labels = parse(name)[1]
                if trail := self._trail((labels.get("application", ""), labels.get("model", ""))):
                    trail.add(LossSum(loss, more), now_us)

    def judge(self, now_us: int) -> None:
        """Look at some of what has come or has risen; all of it makes a round, of which a step begins one at most."""
        if not self._waiting and now_us // STEP_US != self._looked_us // STEP_US:
            self._looked_us, self._may_forget = now_us, True
            self._waiting = [trail for trail in self._trails.values() if trail.is_fresh or trail.before]
        for trail in self._waiting[-JUDGED_A_CALL:]:
            trail.judge(now_us)
        del self._waiting[-JUDGED_A_CALL:]

    def worse(self) -> list[WorseLoss]:
        """Return what has risen, by application and model; the application itself is first."""
        return [
            WorseLoss(*key, trail.blocks[0].start_us, *trail.levels)
            for key, trail in sorted(self._trails.items())
            if trail.before and _is_much(_sum(trail.before), LossSum(trail.levels[1], 1.0))
        ]

    def _trail(self, key: tuple[str, str]) -> LossTrail | None:
        if key not in self._trails and len(self._trails) >= MOST_FOLLOWED:
            self._forget()
            if len(self._trails) >= MOST_FOLLOWED:
                return None
        return self._trails.setdefault(key, LossTrail())

    def _forget(self) -> None:
        """Forget what had no losses for a day: its blocks say nothing any more. All at once, once a round."""
        if self._may_forget:
            self._may_forget, day_us = False, self._looked_us - _DAY_US
            self._trails = {key: trail for key, trail in self._trails.items() if trail.blocks[-1].start_us > day_us}


def _risen(before: Figures, name: str, value: float) -> float:
    last = before["counters"].get(name, 0.0)
    return value - last if value >= last else value


def _merged(blocks: Sequence[LossBlock], now_us: int) -> list[LossBlock]:
    """Make longer blocks of what is older, and forget what is older than a day."""
    found: list[LossBlock] = []
    place = -1
    for block in blocks:
        length_us = next((length for age_us, length in _LENGTHS if now_us - block.start_us <= age_us), 0)
        if not length_us:
            continue
        before, place = place, block.start_us // length_us * length_us
        if found and length_us > STEP_US and place == before:
            found[-1] = LossBlock(found[-1].start_us, found[-1].losses.plus(block.losses))
        else:
            found.append(block)
    return found


def _is_much(before: LossSum, window: LossSum) -> bool:
    return window.mean - before.mean >= max(LEAST, LEAST_SHARE * before.mean)


def _sum(blocks: Sequence[LossBlock]) -> LossSum:
    return LossSum(sum(each.losses.total for each in blocks), sum(each.losses.number for each in blocks))


def _less(whole: LossSum, part: LossSum) -> LossSum:
    return LossSum(max(0.0, whole.total - part.total), max(0.0, whole.number - part.number))
