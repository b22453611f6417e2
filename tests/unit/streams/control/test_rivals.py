"""Versions beside those that serve are told of where one looks: on the page's banner and by `skysail doctor`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from deploy.diagnose.doctor import Level
from deploy.diagnose.health import check_evidence
from schemas import topics
from schemas.records import Application, Decision, Model, Report, Service
from streams.control.figures import Figures, fold
from streams.control.history import History
from streams.control.page import rivals
from streams.control.page.overview import overview
from streams.control.page.promotion_rows import promotion_rows
from tests.comparisons import SECOND_US, canary, plan, seen, shadow
from tests.unit.streams.control.test_promoting import KEY, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from schemas.records import Observation
    from streams.control.page.page_types import Alert

FOREST = Model("forest", "1", "function", "", "", "label", None, ())
DIGITS = Application("digits", ("forest",))


class Watched(Place):
    """A deployment without a candidate, whose model forest serves version 1 and has others beside it."""

    def __init__(self, **shares: float) -> None:
        super().__init__()
        self.log.records.clear()
        self.history = History()
        self.known: Figures | None = None
        self.share_of_2 = 0.0
        self.model = FOREST
        self.put(replace(FOREST, shares={name.lstrip("v"): share for name, share in shares.items()}))
        self.put(DIGITS)

    def put(self, record: Model | Application) -> None:
        """Publish a model or an application."""
        topic = topics.APPLICATIONS if isinstance(record, Application) else topics.MODELS
        if isinstance(record, Model):
            self.model, self.share_of_2 = record, record.shares.get("2", 0.0)
        self.log.write(topic, record.name.encode(), record, self.now_us)

    def observations(self) -> Iterator[Observation]:
        """Return what is observed from now on."""
        if "2" in self.model.shares and not self.share_of_2:
            return shadow(self.now_us, *self.rates)
        return canary(self.now_us, self.share_of_2, *self.rates, first=self.now_us)

    def alerts(self) -> list[Alert]:
        """Return what the page's banner says; the doctor says the same."""
        found = rivals.alerts(self.promoting, self.history, self.now_us)
        shown = overview([], self.history, self.now_us, more=found)
        assert shown["alerts"] == sorted(found, key=lambda alert: alert["level"])
        assert shown["level"] == min((alert["level"] for alert in found), default="well")
        gauges = rivals.figures(self.promoting, self.history, self.now_us)
        checks = [*check_evidence([Report("control@1", "control", 0, {}, gauges)], {"forest": self.model}, {})]
        assert [check.advice for check in checks] == [alert["command"] for alert in sorted(found, key=_text)]
        levels = {"bad": Level.DOWN, "warn": Level.WARN}
        assert [check.level for check in checks] == [levels[alert["level"]] for alert in sorted(found, key=_text)]
        return found


def _text(alert: Alert) -> str:
    return alert["text"]


async def test_a_canary_that_is_worse_is_told_in_red_though_nobody_wants_it_to_take_over() -> None:
    """With what it costs at least, and the command that ends it; nothing is done."""
    place = Watched(v2=0.3)
    place.rates = 0.9, 0.05
    assert await place.run(10) == []
    (alert,) = place.alerts()
    (rival,) = place.promoting.rivals
    assert alert["level"] == "bad"
    assert alert["text"] == (
        f"forest 2 (canary, 30%) is worse than 1, which serves, by {-rival.evidence.upper:.3f} errors a query at least,"
        " at confidence 95%"
    )
    assert 0.5 < -rival.evidence.upper < 0.85
    assert alert["command"] == "skysail model canary forest 2 --share 0"
    place.put(FOREST)
    await place.run(1)
    assert place.alerts() == []


async def test_a_shadow_that_is_worse_is_told_too() -> None:
    """It has answered nobody, and is not to be let to."""
    place = Watched(v2=0.0)
    place.rates = 0.6, 0.1
    await place.run(5)
    (alert,) = place.alerts()
    assert (alert["level"], alert["command"]) == ("bad", "skysail model shadow forest 2 --end")
    assert alert["text"].startswith("forest 2 (shadow) is worse than 1")


async def test_a_canary_that_is_as_good_is_not_told_of() -> None:
    """Nor one that is better."""
    for rates in ((0.1, 0.1), (0.05, 0.3)):
        place = Watched(v2=0.3)
        place.rates = rates
        await place.run(30)
        assert place.alerts() == []


async def test_a_canary_that_has_become_worse_is_told_though_it_was_better() -> None:
    """Its good past is forgotten as soon as it is shown."""
    place = Watched(v2=0.5)
    place.rates = 0.05, 0.3
    await place.run(60)
    place.rates = 0.9, 0.05
    await place.run(6)
    assert [alert["level"] for alert in place.alerts()] == ["bad"]


async def test_what_served_before_is_held_back_and_what_is_worse_than_that_is_told() -> None:
    """Of a holdback that is worse a note is enough; where it is better, the version that serves is to go."""
    place = Watched()
    served = (Service("2"),)
    place.put(replace(FOREST, shares={"2": 0.5}, served=served))
    place.rates = 0.9, 0.05
    await place.run(10)
    assert [alert["level"] for alert in place.alerts()] == ["warn"]
    place = Watched()
    place.put(replace(FOREST, shares={"2": 0.5}, served=served))
    place.rates = 0.05, 0.4
    await place.run(10)
    (alert,) = place.alerts()
    assert (alert["level"], alert["command"]) == ("bad", "skysail model use forest 2")
    assert alert["text"].startswith("forest 1, which serves, is worse than 2 (canary, 50%), which served before, by")


async def test_a_process_that_starts_later_reads_what_was_observed_since_the_canary_began() -> None:
    """As far back as an hour."""
    place = Watched(v2=0.3)
    place.rates = 0.9, 0.05
    place.log.write(topics.OBSERVATIONS, b"digits", seen("before", {"1": 0.0, "2": 1.0}), 0)
    await place.run(400)
    (before,) = place.promoting.rivals
    place.promoting = place.started()
    await place.promoting.tick(place.now_us, dict)
    (after,) = place.promoting.rivals
    assert after == before
    assert after.evidence.pairs > 5_000


async def test_a_canary_that_answers_nothing_is_told_without_any_feedback() -> None:
    """While the version that serves answers its part; a canary that has just come may still be loading."""
    place = Watched(v2=0.3)
    ok, its = "rows_total{model=forest,outcome=ok}", "rows_total{model=forest,version=2,outcome=ok}"
    await place.promoting.tick(place.now_us, dict)
    assert await told_later(place, 0, {ok: 0.0}) == []
    assert await told_later(place, 5, {ok: 100.0}) == []  # five seconds after it was added
    (alert,) = await told_later(place, 40, {ok: 300.0, its: 0.0})
    assert alert["text"] == "forest 2 (canary, 30%) has answered none of its queries in the last minute"
    assert (alert["level"], alert["command"]) == ("bad", "skysail model canary forest 2 --share 0")
    assert await told_later(place, 1, {ok: 300.0, its: 1.0}) == []


async def told_later(place: Watched, seconds: int, counters: dict[str, float]) -> list[Alert]:
    """Return what the banner says after a further report of the model's worker."""
    place.now_us += seconds * SECOND_US
    before, place.known = (
        place.known,
        fold(None, Report("worker.forest@1", "worker.forest", place.now_us, counters, {})),
    )
    place.history.add(before, place.known, place.now_us)
    return place.alerts()


async def test_an_apprentice_that_is_worse_is_told_until_it_has_gone_back() -> None:
    """The control role takes it back at once, if it can; here Kafka takes no step."""
    place, policy = Watched(), "single(arm=1)"
    wish = plan(kind="policy", name="digits", candidate=policy, incumbent="exp3", steps=(0.0, 1.0))
    place.log.write(topics.CANDIDATES, b"policy/digits", wish, 0)
    await place.promoting.tick(0, dict)
    place.wanted.away = True
    for number in range(300):
        arm, losses = (0, (0.0, None)) if number % 2 else (1, (None, 1.0))
        decision = Decision((arm,), 0, "digits", "exp3", ("good", "bad"), (0.5, 0.5), apprentice=policy)
        told = seen(f"q{number}", {})._replace(decision=decision, losses=losses, loss=losses[arm])
        place.log.write(topics.OBSERVATIONS, b"digits", told, number)
    await place.promoting.tick(SECOND_US, dict)
    await place.promoting.tick(SECOND_US, dict)
    (alert,) = rivals.alerts(place.promoting, place.history, place.now_us)
    assert (alert["level"], alert["command"]) == ("bad", "skysail app promote digits --end")
    assert alert["text"].startswith(f"digits: the apprentice {policy} is worse than the policy that decides, by 0.")
    gauges = rivals.figures(place.promoting, place.history, place.now_us)
    assert rivals.from_gauges(gauges, {}, {"digits": policy}) == [alert]
    assert rivals.from_gauges(gauges, {}, {"digits": ""}) == []
    place.wanted.away = False
    await place.promoting.tick(SECOND_US, dict)
    assert rivals.alerts(place.promoting, place.history, place.now_us) == []


@pytest.mark.parametrize(
    ("application", "why"),
    [
        (Application("other", ("bayes",)), "no application asks forest"),
        (Application("digits", ("forest", "net"), versions={"forest": "stable"}), "digits names forest@stable"),
        (Application("digits", ("net", "forest"), "single"), "the policy of digits never asks forest"),
    ],
)
async def test_a_candidate_that_can_never_be_compared_is_told(
    application: Application, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On the page, in the log once, and by the doctor."""
    place = Watched(v2=0.1)
    place.log.records = place.log.records[:1]
    place.put(application)
    place.log.write(topics.CANDIDATES, KEY, plan(), 0)
    for _ in range(3):
        await place.promoting.tick(place.now_us, dict)
        place.now_us += SECOND_US
    (alert,) = place.alerts()
    assert alert["level"] == "warn"
    assert alert["text"].startswith(f"forest 2 is to take over on evidence and cannot be compared: {why}")
    assert alert["command"] == "skysail model show forest"
    assert [why in record.message for record in caplog.records if "cannot be compared" in record.message] == [True]
    (row,) = promotion_rows(place.promoting)["candidates"]
    assert row["reason"].startswith(f"it cannot be compared: {why}")


async def test_a_candidate_without_feedback_is_told_after_a_minute_and_no_longer_when_it_comes() -> None:
    """Answers that the version is not asked for tell nothing either."""
    place = Watched(v2=0.1)
    place.log.write(topics.CANDIDATES, KEY, plan(), 0)
    for _ in range(3):
        await place.promoting.tick(place.now_us, dict)
        place.now_us += 29 * SECOND_US
    assert place.alerts() == []
    place.now_us += 10 * SECOND_US
    await place.promoting.tick(place.now_us, dict)
    (alert,) = place.alerts()
    assert alert["text"].endswith("no answer that could compare them has had feedback")
    for number, losses in enumerate([{}, {"1": 0.0}, {"2": 0.0}]):
        place.log.write(topics.OBSERVATIONS, b"digits", seen(f"q{number}", losses), place.now_us)
        await place.promoting.tick(place.now_us, dict)
        if number == 1:
            (alert,) = place.alerts()
            assert alert["text"].endswith("no answer that had feedback is of 2, nor tells what it would have cost")
    assert place.alerts() == []
