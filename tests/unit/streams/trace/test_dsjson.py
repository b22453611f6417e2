"""Logs of Vowpal Wabbit and Azure Personalizer are judged as our own are, and what cannot be judged is named."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

from deploy.cli.trace import import_
from deploy.errors import UsageError
from deploy.evaluation.reading import recorded
from policies.estimators.estimate import Estimate
from schemas.codec import Codec
from schemas.records import JoinStatus, Observation, Observations
from streams.evaluation.candidate import candidate
from streams.evaluation.evaluation import Evaluation, evaluate
from streams.trace.dsjson import DsjsonForm
from streams.trace.importing import LinesLeftOut, imported_log
from streams.trace.manifest import TraceError, TraceManifest
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CODEC = Codec()
EVENT: dict[str, Any] = {
    "_label_cost": -0.75,
    "_label_probability": 0.8,
    "_label_Action": 2,
    "_labelIndex": 1,
    "o": [{"v": 0.75, "EventId": "e", "ActionTaken": False}],
    "Timestamp": "2021-02-04T16:31:29.2460000Z",
    "Version": "1",
    "EventId": "e",
    "a": [2, 1, 3],
    "c": {"user": {"age": 41, "time": "morning"}, "_multi": [{}, {}, {}]},
    "p": [0.8, 0.1, 0.1],
}


def log_of(folder: Path, lines: Sequence[dict[str, Any] | str | bytes]) -> Path:
    """Write a log."""
    told = [each if isinstance(each, str | bytes) else json.dumps(each) for each in lines]
    (folder / "log.dsjson").write_bytes(
        b"".join((one.encode() if isinstance(one, str) else one) + b"\n" for one in told)
    )
    return folder / "log.dsjson"


def taken(file: Path, *features: str, low: float = -1.0, high: float = 0.0) -> tuple[list[Observation], LinesLeftOut]:
    """Import a log; return what was observed, and what was left out."""
    form, about = DsjsonForm("ads", low, high, features), TraceManifest("imported", "0", source=file.name)
    _, left = imported_log(file, form, file.parent / "trace", about, CODEC)
    records = Trace.open(file.parent / "trace").records("observations")
    return [seen for one in records for seen in CODEC.decode(Observations, one.value).items], left


def judged(file: Path, policy: str) -> Evaluation:
    """Return what came of a policy, however few decisions there are."""
    return evaluate(recorded(file.parent / "trace", CODEC, None), candidate(policy), 0.0, least=0.0)


def value(found: Evaluation, name: str) -> float:
    """Return what an estimator says."""
    each = found.estimates[name]
    assert isinstance(each, Estimate), each
    return each.value


def test_an_event_is_a_decision_with_its_probabilities_and_its_cost(tmp_path: Path) -> None:
    """Worked out by hand; arms are in one order, whatever was shown first."""
    (seen,), left = taken(log_of(tmp_path, [EVENT]), "c.user.age", "c.user.time=morning", "c.user.time=noon")
    decision = seen.decision
    assert (seen.query_id, seen.application, seen.predicted_us) == ("e", "ads", 1_612_456_289_246_000)
    assert (decision.arms, decision.propensities, decision.chosen) == (("1", "2", "3"), (0.1, 0.8, 0.1), (1,))
    assert (decision.features, seen.losses, seen.loss, seen.weight) == (
        (41.0, 1.0, 0.0),
        (None, 0.25, None),
        0.25,
        None,
    )
    assert not left.counts


def test_actions_with_ids_are_arms_of_that_name(tmp_path: Path) -> None:
    """Places change from event to event; ids do not."""
    multi = [{"_tag": "sport"}, {"_tag": "arts"}, {"_tag": "news"}]
    (seen,), _ = taken(log_of(tmp_path, [{**EVENT, "c": {"_multi": multi}}]))
    assert (seen.decision.arms, seen.decision.propensities) == (("arts", "news", "sport"), (0.8, 0.1, 0.1))


def test_what_the_label_does_not_say_is_said_by_the_outcomes(tmp_path: Path) -> None:
    """A reward of `o` is a cost with its sign changed; without either nobody has told."""
    plain = {key: told for key, told in EVENT.items() if not key.startswith("_label")}
    lines = [plain, {**plain, "EventId": "f", "o": []}, {**plain, "EventId": "g", "_labelIndex": 0, "Timestamp": None}]
    del lines[2]["Timestamp"]
    (first, second, third), _ = taken(log_of(tmp_path, lines))
    assert (first.loss, second.loss, second.status) == (0.25, None, JoinStatus.DEFAULT)
    assert (third.decision.chosen, third.predicted_us - second.predicted_us) == ((0,), 1)


def test_an_event_stands_for_those_that_were_dropped(tmp_path: Path) -> None:
    """One of two and three of four were dropped, so the kept ones count 1, 2 and 4: of the heaviest 1/4, 1/2 and 1."""
    lines = [{**EVENT, "EventId": str(n), "pdrop": share} for n, share in enumerate((0.0, 0.5, 0.75))]
    found, _ = taken(log_of(tmp_path, lines))
    assert [seen.weight for seen in found] == [0.25, 0.5, None]


BAD: dict[str, list[dict[str, Any] | str | bytes]] = {
    "does not fit": [
        "no json", "[1]", b'{"a": "\xff"}', {**EVENT, "p": [0.8, 0.1]}, {**EVENT, "p": [0.8, 0.3, 0.1]},
        {**EVENT, "_label_Action": 4}, {**EVENT, "_label_cost": 1}, {**EVENT, "_label_cost": float("nan")},
        {**EVENT, "_label_probability": 0.5}, {**EVENT, "p": [0.0, 0.5, 0.5], "_label_probability": 0.0},
        {**EVENT, "Timestamp": "soon"}, {**EVENT, "pdrop": 1.0}, {**EVENT, "a": [2, 2, 3]}, {**EVENT, "a": [2, 1, 9]},
        {"_label_cost": 0, "EventId": "x"}, '{"EventId": "\\ud800", "a": [1], "p": [1]}', "[" * 100_000,
        {**EVENT, "a": 3}, {**EVENT, "p": ["x", 0, 1]},
        {**EVENT, "pdrop": float("nan")}, {**EVENT, "pdrop": -1}, {**EVENT, "Timestamp": 1e17},
        {**EVENT, "Timestamp": -1e17}, {**EVENT, "c": {"_multi": [{"_tag": tag} for tag in ("\ud800", "x", "y")]}},
    ],
    "has several slots, each a decision of its own": [
        {**EVENT, "_outcomes": []}, {**EVENT, "c": {"_multi": [], "_slots": [{}]}},
    ],
    "is marked _skipLearn": [{**EVENT, "_skipLearn": True}],
    "was never activated (DeferredAction)": [{**EVENT, "DeferredAction": True}],
    "chooses a number, and no action": [{**EVENT, "pdf": []}, {**EVENT, "_label_ca": {}}],
    "is an outcome without its decision": [{"EventId": "e", "RewardValue": 1.0}],
    "its EventId was there before": [EVENT],
}  # fmt: skip


@pytest.mark.parametrize("reason", BAD)
def test_a_line_that_is_no_decision_is_left_out_by_its_number(tmp_path: Path, reason: str) -> None:
    """The others are taken; nothing is silent."""
    lines = BAD[reason]
    found, left = taken(log_of(tmp_path, [EVENT, *lines, {**EVENT, "EventId": "last"}]))
    assert [seen.query_id for seen in found] == ["e", "last"]
    assert dict(left.counts) == {reason: len(lines)}
    numbers = [told.split(":")[0] for told in left.first[reason]]
    assert numbers == [f"line {number}" for number in range(2, 2 + min(5, len(lines)))]


def test_an_activated_event_is_taken(tmp_path: Path) -> None:
    """Its outcome says so."""
    ((seen,), _) = taken(log_of(tmp_path, [{**EVENT, "DeferredAction": True, "o": [{"ActionTaken": True}]}]))
    assert seen.loss == 0.25


def test_a_log_without_any_decision_is_refused_with_the_reason(tmp_path: Path) -> None:
    """A trace of nothing would look like a log that was read."""
    with pytest.raises(TraceError, match=r"no event that can be judged \(does not fit: line 1"):
        taken(log_of(tmp_path, ["nothing"]))


def test_the_command_prints_what_was_left_out(tmp_path: Path) -> None:
    """In words and as JSON."""
    file = log_of(tmp_path, [EVENT, {**EVENT, "EventId": "s", "_skipLearn": True}, "x"])
    told = CliRunner().invoke(import_, [str(file), "--app", "ads", str(tmp_path / "a")], catch_exceptions=False).output
    assert "left out: 1 whose event is marked _skipLearn; line 2" in told
    assert "left out: 1 whose event does not fit; line 3: Expecting value" in told
    words = [str(file), "--format", "dsjson", "--app", "ads", "--costs", "-1", "0", str(tmp_path / "b"), "--json"]
    found = json.loads(CliRunner().invoke(import_, words, catch_exceptions=False).output)
    assert found["left_out"]["is marked _skipLearn"] == {"lines": 1, "first": ["line 2"]}


@pytest.mark.parametrize("words", [[], ["--app", "ads", "--mapping", "."], ["--app", "ads", "--costs", "1", "0"]])
def test_a_log_is_not_imported_by_half(tmp_path: Path, words: list[str]) -> None:
    """Without an application, by two ways at once, or with bounds the wrong way round."""
    with pytest.raises(UsageError):
        CliRunner().invoke(
            import_, [str(log_of(tmp_path, [EVENT])), *words, str(tmp_path / "t")], catch_exceptions=False
        )


def _world(rows: int, seed: int, *, dropped: Sequence[float] = (0.0,)) -> list[dict[str, Any]]:
    """Return events of a policy that prefers one action by its context; costs lie in [0, 1]."""
    random, lines = np.random.default_rng(seed), []
    for number in range(rows):
        context = int(random.integers(2))
        shares = [[0.6, 0.3, 0.1], [0.2, 0.2, 0.6]][context]
        shown = int(random.choice(3, p=shares))
        order = [shown, *[arm for arm in range(3) if arm != shown]]
        cost = float(random.random() < [[0.2, 0.5, 0.9], [0.7, 0.4, 0.1]][context][shown])
        lines.append({
            "_label_cost": cost, "_label_probability": shares[shown], "_label_Action": shown + 1, "_labelIndex": shown,
            "EventId": str(number), "a": [arm + 1 for arm in order], "p": [shares[arm] for arm in order],
            "c": {"u": {"c": context}, "_multi": [{"a": {"n": str(arm)}} for arm in range(3)]},
            "pdrop": dropped[number % len(dropped)],
        })  # fmt: skip
    return lines


def test_a_log_that_holds_each_case_as_often_as_it_comes_gives_the_exact_cost(tmp_path: Path) -> None:
    """By enumeration: two contexts, three actions, probabilities in tenths, costs that follow from both."""
    lines: list[dict[str, Any]] = []
    costs = [[0.2, 0.5, 0.9], [0.7, 0.4, 0.1]]
    for context, tenths in enumerate(([6, 3, 1], [2, 2, 6])):
        for arm, times in enumerate(tenths):
            for _ in range(times):
                shares, order = [each / 10 for each in tenths], [arm, *[other for other in range(3) if other != arm]]
                lines.append({
                    "EventId": str(len(lines)), "a": [1 + one for one in order], "p": [shares[one] for one in order],
                    "_label_cost": costs[context][arm], "c": {"u": {"c": context}},
                })  # fmt: skip
    file = log_of(tmp_path, lines)
    taken(file, "c.u.c", low=0.0, high=1.0)
    for arm in range(3):
        found, true = judged(file, f"always:{arm + 1}"), (costs[0][arm] + costs[1][arm]) / 2
        assert value(found, "ipw") == pytest.approx(true, abs=1e-12)
        assert value(found, "snipw") == pytest.approx(true, abs=1e-12)
    uniform = sum(map(sum, costs)) / 6
    assert value(judged(file, "epsilon_greedy(epsilon=1.0)"), "ipw") == pytest.approx(uniform, abs=1e-12)


def average_loss(model: Any) -> float:
    """End Vowpal Wabbit; return the cost of its policy that it prints."""
    model.finish()
    (told,) = [line for line in model.get_log() if line.startswith("average loss")]
    return float(told.split("=")[1])


@pytest.mark.parametrize("dropped", [(0.0,), (0.0, 0.5, 0.75)])
@pytest.mark.parametrize(("policy", "epsilon"), [("always:1", 0.0), ("epsilon_greedy(epsilon=1.0)", 1.0)])
def test_vowpal_wabbit_gives_the_same_cost(
    tmp_path: Path, policy: str, epsilon: float, dropped: tuple[float, ...]
) -> None:
    """Its average loss of a policy that does not learn is the one by inverse propensities, weighed by `pdrop`."""
    wabbit = pytest.importorskip("vowpalwabbit", reason="Vowpal Wabbit is not installed")
    (tmp_path / "lesson").mkdir()
    lesson = log_of(tmp_path / "lesson", [{**one, "_label_cost": one["_labelIndex"]} for one in _world(200, 1)])
    kept = f"{tmp_path / 'model'}"
    words = f"--cb_explore_adf --dsjson --epsilon {epsilon} --cb_type ips"
    average_loss(wabbit.Workspace(f"{words} -d {lesson} -f {kept}", enable_logging=True))  # the first action is best
    file = log_of(tmp_path, _world(2_000, 3, dropped=dropped))
    taken(file, low=0.0, high=1.0)

    told = average_loss(wabbit.Workspace(f"--dsjson -d {file} -t -i {kept}", enable_logging=True))
    assert value(judged(file, policy), "ipw") == pytest.approx(told, abs=2e-6)
