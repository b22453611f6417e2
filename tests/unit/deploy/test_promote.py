"""What `skysail model promote` and `skysail app promote` say, and how a policy is written into an application."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
from click.testing import CliRunner

from deploy.cli import skysail
from deploy.cli.promote import anew, leave_to_control, refusal, steps_table
from deploy.config.settings import Settings
from deploy.state import candidates, catalog, evidence, read_log
from deploy.state.candidates import policy_of, with_policy
from deploy.state.priced import priced
from policies.errors import PolicyError
from schemas.codec import Codec
from schemas.records import Application, MetricEvidence, Model, Observations, Stage
from streams.operators.contract import Record
from streams.promotion.evidence import Evidence
from streams.promotion.guardrails import Guardrails
from streams.promotion.hindrance import hindrance
from streams.promotion.lifecycle import POLICY, step
from streams.promotion.verdict import SPENT, Action, Verdict
from tests.comparisons import plan, seen

UNDECIDED = Evidence(412, 412.0, 0.01, -0.02, 0.04, 0.1, 0.11, 0.0, 900)


def test_a_refusal_says_what_is_missing() -> None:
    """How much is known, how much more it takes, and the way round it."""
    assert refusal(plan(), UNDECIDED) == (
        "forest 2 is not shown to be better than 1: 412 comparisons, about 900 more needed; difference 0.010 [-0.020,"
        " 0.040]. To let it take over all the same: --yes-without-evidence"
    )


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (Evidence(), "nothing is known about forest 2 beside 1: no observation compares them; let it see the queries"),
        (Evidence(500, 500.0, -0.1, -0.2, -0.01), "forest 2 is worse than 1: 500 comparisons"),
        (Evidence(500, 500.0, -0.01, -0.1, 0.1), "no number of such comparisons would be enough"),
    ],
)
def test_a_refusal_tells_its_kind(known: Evidence, said: str) -> None:
    """Nothing known, known to be worse, or nothing speaks for it."""
    assert said in refusal(plan(), known)


def test_a_difference_is_told_in_the_unit_of_costs() -> None:
    """Of one application, or several with one unit; by right or wrong, or with weights, there is none."""
    fraud = Application("cards", ("a",), loss='{"cost":{"fraud":{"ok":40},"ok":{"fraud":1}},"unit":"EUR"}')
    assert priced([fraud], UNDECIDED) == " (it costs 0.4 [-0.8, 1.6] EUR less a query)"
    assert priced([fraud, replace(fraud, name="loans")], UNDECIDED) == priced([fraud], UNDECIDED)
    for others in ([Application("digits", ("a",))], [fraud, Application("digits", ("a",))], []):
        assert priced(others, UNDECIDED) == ""
    assert priced([replace(fraud, max_weight=5.0)], UNDECIDED) == ""


def test_a_refusal_names_the_guardrail_and_each_metric() -> None:
    """Better by its loss, and not let through: which metric, by how much, in its unit, and what it may be."""
    better = Evidence(900, 900.0, 0.05, 0.01, 0.09)
    slow = MetricEvidence("digits", "latency", 450, -4.0, -9.0, 1.0, "ms", 5.0)
    sold = MetricEvidence("digits", "sold", 450, 0.25, -0.5, 1.0, "EUR")
    assert refusal(plan(), better, beside=Guardrails((slow, sold))) == (
        "forest 2 is better than 1 by its loss: difference 0.050 [0.010, 0.090]; but latency is not shown to hold its"
        " guardrail yet: 4 ms worse [-9, +1], 450 comparisons; at most 5 ms worse; digits latency: 4 ms worse [-9, +1],"
        " 450 comparisons; at most 5 ms worse; digits sold: 0.25 EUR better [-0.5, +1], 450 comparisons. To let it take"
        " over all the same: --yes-without-evidence"
    )


def test_a_refusal_counts_the_queries_that_tell_nothing() -> None:
    """A shadow may be silent on just those that it would get wrong."""
    assert "412 comparisons, beside 1,300 queries that tell nothing, about 900 more needed" in refusal(
        plan(), replace(UNDECIDED, left_out=1300)
    )


def test_a_refusal_says_why_nothing_compares_the_two() -> None:
    """A shadow helps where the version only does not run; where an application names a version it does not."""
    named, lacks = "digits names forest@stable", "no answer that could compare them has had feedback"
    said = refusal(plan(), Evidence(), "", lacks)
    assert f"no observation compares them: {lacks}; let it see the queries: skysail model promote forest@2" in said
    assert refusal(plan(), Evidence(), named, lacks).startswith(
        f"nothing is known about forest 2 beside 1: no observation compares them: {named}. To let it take over"
    )


def test_a_refusal_says_that_people_wait_for_their_hour() -> None:
    """And where to look until then, instead of advising a shadow."""
    said = refusal(plan(), Evidence(waiting=1_200))
    assert said.startswith(
        "nothing is known yet about forest 2 beside 1: what somebody costs counts an hour after their first feedback,"
        " and 1,200 wait for that; how it stands so far: skysail model compare forest@2"
    )
    assert "--shadow" not in said


def test_a_refusal_says_that_waiting_does_not_help() -> None:
    """Where everybody who asks has been counted."""
    assert f"; {SPENT}. To let it" in refusal(plan(), replace(UNDECIDED, is_spent=True))


@pytest.mark.parametrize(
    ("changes", "of_version", "of_policy"),
    [
        ({"assign": "context"}, True, True),
        ({"assign": "context", "per_context": True}, True, False),
        ({"assign": "context", "sticky_s": 604_800.0}, False, False),
        ({"assign": "episode"}, False, False),
        ({}, False, False),
    ],
)
def test_a_wish_is_told_that_each_person_counts_once(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    *,
    of_version: bool,
    of_policy: bool,
) -> None:
    """Where draws stand for ever; of a policy, where its application's do and arms are drawn by them."""
    application = replace(Application("digits", ("forest", "net")), **changes)  # type: ignore[arg-type]
    forest = Model("forest", "1", "function", "", "", "label", None, (), shares={"2": 0.1})
    known = {Application: {"digits": application}, Model: {"forest": forest}}
    monkeypatch.setattr(catalog, "read", lambda *given: known[given[2]])
    monkeypatch.setattr(candidates, "want", lambda *_: None)
    monkeypatch.setattr(candidates, "let_learn", lambda *_: None)
    policy = plan(kind=POLICY, name="digits", candidate="exp3", incumbent="single()")
    for wish, is_told in ((plan(), of_version), (policy, of_policy)):
        leave_to_control(Settings(), Codec(), wish, as_json=False)
        assert ("a draw of digits stands for ever" in capsys.readouterr().err) is is_told
        leave_to_control(Settings(), Codec(), wish, as_json=True)
        assert bool(json.loads(capsys.readouterr().out)["counted_once"]) is is_told


def test_a_wish_that_can_never_be_carried_out_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As soon as it is published; the application has to drop the version."""
    application = Application("digits", ("forest", "net"), versions={"forest": "stable"})
    forest = Model("forest", "1", "function", "", "", "label", None, (), shares={"2": 0.1})
    monkeypatch.setattr(
        catalog, "read", lambda *given: {"a": application} if given[2] is Application else {"forest": forest}
    )
    monkeypatch.setattr(candidates, "want", lambda *_: None)
    leave_to_control(Settings(), Codec(), plan(), as_json=False)
    said = capsys.readouterr()
    assert said.err == (
        "it stays where it begins, as it cannot be compared: digits names forest@stable and no draw decides which"
        " version answers it: take the version out of its models with skysail app set\n"
    )
    leave_to_control(Settings(), Codec(), plan(), as_json=True)
    assert "digits names forest@stable" in json.loads(capsys.readouterr().out)["cannot_be_compared"]


@pytest.mark.parametrize(
    ("applications", "share", "why"),
    [
        ([Application("digits", ("forest",))], 0.1, ""),
        ([Application("digits", ("forest",), versions={"forest": "1"}), Application("other", ("forest",))], 0.1, ""),
        ([Application("digits", ("forest",), loss="given")], 0.0, "does not judge a shadow"),
        ([Application("digits", ("forest",), loss='{"given":12}')], 0.0, "does not judge a shadow"),
        ([Application("digits", ("forest",), loss="given")], 0.1, ""),
        ([Application("digits", ("net", "forest"), "single", {"arm": 1})], 0.1, ""),
        ([Application("digits", ("net", "forest"), "ucb1")], 0.1, ""),
        (
            [Application("digits", ("net",), stages=(Stage("find", "forest"), Stage("say", "", "find")))],
            0.1,
            "in a stage",
        ),
        ([], 0.1, "no application asks forest"),
    ],
)
def test_it_is_known_beforehand_whose_answers_compare_nothing(
    applications: list[Application], share: float, why: str
) -> None:
    """One application whose answers do is enough."""
    found = hindrance(plan(), applications, share)
    assert why in found if why else found == ""


def test_a_policy_that_has_not_learnt_along_is_said_to_start_anew() -> None:
    """With the option that lets it keep what it learns."""
    said = anew(plan(kind=POLICY, name="digits", candidate="thompson(gamma=0.01)"))
    assert said.startswith("thompson(gamma=0.01) of digits starts anew")
    assert "--apprentice" in said


class Noted:
    """Notes what is told of a progress."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def waits(self, what: str, still: str = "") -> None:
        """Note what is waited for."""
        self.told.append(f"{what} {still}".rstrip())

    def done(self, what: str) -> None:
        """Note what is reached."""
        self.told.append(what)


def test_reading_the_observations_is_told_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thousand, and how many there were: a day of them takes seconds."""
    codec, losses = Codec(), {"1": 0.0, "2": 1.0}
    values = [codec.encode(Observations((seen(f"q{number}", losses),))) for number in range(2_500)]
    read = [Record("observations", 0, number, number, None, value) for number, value in enumerate(values)]
    monkeypatch.setattr(read_log, "answering", lambda _: nullcontext())
    monkeypatch.setattr(read_log, "records", lambda *_: iter(read))
    noted = Noted()
    found = evidence.compared(Settings(), codec, plan(), learns_along=False, progress=noted)
    assert found.evidence(0.05).pairs == 2_500
    assert noted.told == [
        "the observations",
        "the observations 1,000 read",
        "the observations 2,000 read",
        "2,500 observations read",
    ]


@pytest.mark.parametrize(("ago_s", "pairs"), [(1_800, 0), (7_200, 1)])
def test_people_are_counted_an_hour_later_although_nobody_asks_any_more(
    monkeypatch: pytest.MonkeyPatch, ago_s: int, pairs: int
) -> None:
    """A test that has ended is judged by all who took part."""
    codec, at_us = Codec(), time.time_ns() // 1000 - ago_s * 1_000_000
    several = [seen(who, {version: 0.5})._replace(context=who, drawn="/0") for who, version in (("a", "1"), ("b", "2"))]
    read = Record("observations", 0, 0, at_us, None, codec.encode(Observations(tuple(several))))
    monkeypatch.setattr(read_log, "answering", lambda _: nullcontext())
    monkeypatch.setattr(read_log, "records", lambda *_: iter([read]))
    found = evidence.compared(Settings(), codec, plan(), learns_along=False)
    assert found.evidence(0.05).pairs == pairs


def test_steps_are_shown_with_their_evidence() -> None:
    """One line each."""
    taken = step(plan(), Verdict(Action.STEP, 0.25, "it may"), UNDECIDED, 1_766_000_000_000_000)
    heads, (row,) = steps_table([taken])
    assert dict(zip(heads, row, strict=True)) | {"time": ""} == {
        "time": "",
        "candidate": "2",
        "action": "step",
        "share": "0.25",
        "comparisons": "412",
        "difference": "0.010 [-0.020, 0.040]",
        "reason": "it may",
    }


def test_a_policy_is_written_with_its_parameters() -> None:
    """Decisions name it alike, whether parameters were given or left at their defaults."""
    application = Application("digits", ("a", "b"), "exp3", {"eta": 0.1})
    changed = with_policy(application, "thompson")
    assert changed.policy == "thompson"
    assert policy_of(changed) == policy_of(Application("digits", ("a", "b"), "thompson"))
    assert policy_of(with_policy(application, "exp3(eta=0.1)")) == policy_of(application)
    with pytest.raises(PolicyError):
        with_policy(application, "thomson")


@pytest.mark.parametrize("verb", [("model", "promote"), ("app", "promote")])
def test_the_commands_explain_themselves(verb: tuple[str, str]) -> None:
    """With every option and examples."""
    said = CliRunner().invoke(skysail, [*verb, "--help"]).output
    assert "--yes-without-evidence" in said
    assert "skysail " + " ".join(verb) in said
