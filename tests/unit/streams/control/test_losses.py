"""Losses that rise: seen in seconds where all is lost, in minutes where some is, and not seen in noise."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from policies.estimators.two_windows import LossSum
from streams.control.figures import Figures
from streams.control.history import STEP_US
from streams.control.losses import JUDGED_A_CALL, MOST_FOLLOWED, USUAL_AFTER_US, LossTrail, LossWatch
from streams.control.page.worse import worse

if TYPE_CHECKING:
    from _collections_abc import dict_items
    from collections.abc import Iterator

SECOND, HOUR = 1_000_000, 3_600_000_000
BEGIN = 1_790_000_000 * SECOND


class Answers:
    """An application whose losses come in steps, in virtual time."""

    def __init__(self, seed: int) -> None:
        self.draws = np.random.default_rng(seed)
        self.trail = LossTrail()
        self.now_us = BEGIN

    def go_on(self, seconds: float, rate: float, mean: float, *, until_risen: bool = False) -> float:
        """Let so many losses a second come; returns after how many seconds a rise was told, or how many passed."""
        begin_us, end_us = self.now_us, self.now_us + int(seconds * SECOND)
        while self.now_us < end_us and not (until_risen and self.trail.before):
            most = rate * STEP_US / SECOND
            if most < 1.0:  # the steps without any are left out
                self.now_us += STEP_US * int(self.draws.geometric(most) - 1)
            count = int(self.draws.poisson(most)) if most >= 1.0 else 1
            self.trail.add(LossSum(float(self.draws.binomial(count, mean)), count), self.now_us)
            self.now_us += STEP_US
            self.trail.judge(self.now_us)
        return (self.now_us - begin_us) / SECOND


@pytest.mark.parametrize(
    ("rate", "before", "after", "within_s"),
    [(10.0, 0.05, 0.99, 10), (1.0, 0.05, 0.99, 30), (10.0, 0.05, 0.15, 180), (100.0, 0.3, 0.4, 60)],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_rise_is_told_in_seconds_where_it_is_large_and_in_minutes_where_it_is_not(
    rate: float, before: float, after: float, within_s: float, seed: int
) -> None:
    """After half an hour as it was; the time that is told is when it began, about."""
    answers = Answers(seed)
    answers.go_on(1_800, rate, before)
    assert not answers.trail.before, "nothing has risen yet"
    rose_us = answers.now_us
    assert answers.go_on(3_600, rate, after, until_risen=True) <= within_s
    assert abs(answers.trail.blocks[0].start_us - rose_us) <= 60 * SECOND


@pytest.mark.parametrize(("rate", "days"), [(0.001, 30), (0.01, 3), (2.0, 0.1)])
@pytest.mark.parametrize("mean", [0.02, 0.3, 0.9])
def test_noise_is_never_a_rise(rate: float, days: float, mean: float) -> None:
    """A few losses an hour, or two a second, for days: the module promises one false alarm in a hundred years."""
    answers = Answers(1)
    assert answers.go_on(days * 86_400, rate, mean, until_risen=True) >= days * 86_400


def test_losses_that_come_in_runs_are_no_rise() -> None:
    """Minutes of one kind of query after another say less than as many independent losses."""
    answers = Answers(2)
    for _ in range(300):
        answers.go_on(60, 3.0, float(answers.draws.choice([0.02, 0.3])), until_risen=True)
    assert not answers.trail.before


def test_what_has_risen_is_told_until_it_falls_again() -> None:
    """It does not flicker meanwhile, and is told a second time when it rises again."""
    answers = Answers(3)
    answers.go_on(1_800, 5.0, 0.05)
    for _ in range(2):
        answers.go_on(600, 5.0, 0.2, until_risen=True)
        for _ in range(10):
            answers.go_on(60, 5.0, 0.2)
            assert answers.trail.before, "it is as high as before"
        answers.go_on(300, 5.0, 0.05)
        assert not answers.trail.before, "it has fallen again"


def test_after_half_a_day_a_loss_is_what_it_is() -> None:
    """Nobody needs to be told for ever."""
    answers = Answers(4)
    answers.go_on(1_800, 2.0, 0.05)
    answers.go_on(600, 2.0, 0.9, until_risen=True)
    answers.go_on(USUAL_AFTER_US / SECOND + 600, 0.05, 0.9)
    assert not answers.trail.before
    answers.go_on(1_800, 2.0, 0.9)
    assert not answers.trail.before


def test_a_day_takes_few_blocks() -> None:
    """However many losses come."""
    trail = LossTrail()
    for step in range(30 * HOUR // STEP_US):
        trail.add(LossSum(0.5, 5.0), BEGIN + step * STEP_US)
    assert len(trail.blocks) <= 240


def figures(moment: int, **losses: tuple[float, float]) -> Figures:
    """Return a learner's figures: of each model, or of `served`, the sum of losses and their number."""
    counters = {}
    for model, (total, count) in losses.items():
        kind, labels = ("", "") if model == "served" else ("model_", f",model={model}")
        counters[f"{kind}loss_total{{application=fraud{labels}}}"] = total
        counters[f"{kind}losses_total{{application=fraud{labels}}}"] = count
    return Figures(
        instance="learner@1", role="learner", time_us=moment, counters=counters, gauges={}, rates={}, restarts=0,
        back_us=0, away_us=0,
    )  # fmt: skip


def watched(served: float, forest: float, svc: float) -> list[str]:
    """Return what is told of an application whose losses, 0.05 before, become these."""
    watch, before, count, sums = LossWatch(), None, 0.0, {"served": 0.0, "forest": 0.0, "svc": 0.0}
    for second in range(600):
        now_us = BEGIN + second * SECOND
        count += 20.0
        for name, mean in (("served", served), ("forest", forest), ("svc", svc)):
            sums[name] += 20.0 * (mean if second >= 480 else 0.05)
        after = figures(now_us, **{name: (total, count) for name, total in sums.items()})
        watch.add(before, after, now_us)
        before = after
    return [f"{each['level']}: {each['text']} $ {each['command']}" for each in worse(watch.worse())]


def test_the_alert_names_the_application_the_time_and_the_model_that_became_worse() -> None:
    """Of two models one has: it alone is named."""
    [text] = watched(0.6, 0.99, 0.05)
    assert text.startswith("bad: answers of fraud have become worse: loss 0.05 → 0.60, since ")
    assert "UTC; of its models forest 0.05 → 0.99. " in text
    assert text.endswith("$ skysail app show fraud")


def test_a_model_alone_is_a_warning() -> None:
    """The policy has left it: what is served is as good as before."""
    [text] = watched(0.05, 0.99, 0.05)
    assert text.startswith("warn: fraud: a model has become worse, what is served has not: loss of forest 0.05 → 0.99")


def test_where_nothing_rises_nothing_is_told() -> None:
    """Nor where losses fall."""
    assert watched(0.05, 0.05, 0.01) == []


def test_what_has_risen_and_gets_no_more_feedback_is_told_for_half_a_day() -> None:
    """So is an application that nobody asks any more: nothing new comes that would end it."""
    watch, before = LossWatch(), None
    for second in range(600):
        total = second + 19.0 * max(0, second - 480)
        after = figures(BEGIN + second * SECOND, served=(total, 20.0 * second))
        watch.add(before, after, after["time_us"])
        before = after
    end_us = BEGIN + 600 * SECOND
    watch.judge(end_us + USUAL_AFTER_US - HOUR)
    assert len(watch.worse()) == 1
    watch.judge(end_us + USUAL_AFTER_US)
    assert watch.worse() == []


class CountedTrails(dict[tuple[str, str], LossTrail]):
    """Trails that count how often somebody goes through them all."""

    passes = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.passes += 1
        return super().__iter__()

    def items(self) -> dict_items[tuple[str, str], LossTrail]:
        """Return them all, and count it."""
        self.passes += 1
        return super().items()


def of_many(now_us: int, names: range) -> Figures:
    """Return a learner's figures: of so many applications, a loss of 0.5 each."""
    found = figures(now_us)
    for name in names:
        found["counters"] |= {f"loss_total{{application=a{name}}}": 0.5, f"losses_total{{application=a{name}}}": 1.0}
    return found


def test_what_is_one_too_many_costs_a_look_at_the_others_once_a_step() -> None:
    """A report of thousands that are not followed, again and again: nothing is free before the next step."""
    watch, none = LossWatch(), figures(BEGIN)
    watch.add(none, of_many(BEGIN, range(MOST_FOLLOWED)), BEGIN)
    watch._trails = trails = CountedTrails(watch._trails)
    others = of_many(BEGIN, range(MOST_FOLLOWED, MOST_FOLLOWED + 1_000))
    for _ in range(3):
        watch.add(none, others, BEGIN)
    assert trails.passes <= 1
    assert len(watch._trails) == MOST_FOLLOWED


def test_those_without_losses_for_a_day_make_room_all_at_once() -> None:
    """Thousands of new ones after a day take one look at the old ones, too."""
    watch, none = LossWatch(), figures(BEGIN)
    watch.add(none, of_many(BEGIN, range(MOST_FOLLOWED)), BEGIN)
    watch._trails = trails = CountedTrails(watch._trails)
    later_us = BEGIN + 25 * HOUR
    watch.add(none, of_many(later_us, range(MOST_FOLLOWED, MOST_FOLLOWED + 1_000)), later_us)
    assert trails.passes <= 1
    assert {key[0] for key in watch._trails} == {f"a{MOST_FOLLOWED + name}" for name in range(1_000)}


def test_a_call_judges_a_slice_and_a_step_judges_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page answers between calls. Looks are at most as many as steps, as the bound of false alarms demands."""
    judged: list[LossTrail] = []
    monkeypatch.setattr(LossTrail, "judge", lambda trail, _now_us: judged.append(trail))
    watch, none = LossWatch(), figures(BEGIN)
    watch.add(none, of_many(BEGIN, range(1_000)), BEGIN)
    for _ in range(20):
        before = len(judged)
        watch.judge(BEGIN + STEP_US)
        assert len(judged) - before <= JUDGED_A_CALL
    assert Counter(map(id, judged)) == {id(trail): 1 for trail in watch._trails.values()}


@pytest.mark.parametrize("calls", [1, 3, 20])
def test_a_round_may_take_several_steps_and_leaves_nobody_out(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """Where few calls come in a step, a trail waits for its turn; where many come, it is judged once a step."""
    judged: list[LossTrail] = []
    monkeypatch.setattr(LossTrail, "judge", lambda trail, _now_us: judged.append(trail))
    watch, none, steps = LossWatch(), figures(BEGIN), 40
    watch.add(none, of_many(BEGIN, range(1_000)), BEGIN)
    for step in range(1, steps + 1):
        for _ in range(calls):
            watch.judge(BEGIN + step * STEP_US)
    looks = Counter(map(id, judged))
    assert looks.keys() == set(map(id, watch._trails.values()))
    assert steps * min(1.0, calls * JUDGED_A_CALL / 1_000) * 0.8 <= min(looks.values())
    assert max(looks.values()) <= steps
