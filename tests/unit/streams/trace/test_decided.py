"""Logs of other systems that say what was chosen, how likely that was, and what it cost, are judged as our own are."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from deploy.evaluation.reading import recorded
from policies.estimators.estimate import Estimate
from schemas.codec import Codec
from schemas.records import JoinStatus, Observation, Observations
from streams.evaluation.candidate import candidate
from streams.evaluation.evaluation import evaluate
from streams.trace.importing import imported
from streams.trace.manifest import TraceError, TraceManifest
from streams.trace.mapping import TraceMapping
from streams.trace.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path

CODEC = Codec()
ARMS = ("a", "b", "c")
TABLE = {
    "application": "ads",
    "time": {"column": "at"},
    "chosen": {"column": "chosen"},
    "propensity": {"column": "p"},
    "arms": {"value": list(ARMS)},
    "loss": {"column": "loss"},
}
# A line of VW's daemon, as its documentation prints it, but for the context.
DSJSON = {
    "_label_cost": -0.75,
    "_label_probability": 0.8,
    "_label_Action": 2,
    "_labelIndex": 1,
    "Timestamp": "2021-02-04T16:31:29.2460000Z",
    "Version": "1",
    "EventId": "13118d9b4c114f8485d9dec417e3aefe",
    "a": [2, 1, 3],
    "c": {"FromUrl": [{"timeofday": "Afternoon", "age": 41}], "user": {"age": 41}, "_multi": [{}, {}, {}]},
    "p": [0.8, 0.1, 0.1],
}
PERSONALIZER = {
    "application": "ads",
    "time": {"column": "Timestamp"},
    "id": {"column": "EventId"},
    "features": {"columns": ["c.user.age"]},
    "arms": {"column": "a"},
    "chosen": {"column": "_label_Action"},
    "propensity": {"column": "p"},
    "cost": {"column": "_label_cost", "low": -1, "high": 0},
}


def observed(file: Path, mapping: dict[str, Any]) -> list[Observation]:
    """Import a file; return what was observed."""
    folder = file.parent / "trace"
    imported(file, TraceMapping.parse(mapping), folder, TraceManifest("imported", "0", source=file.name), CODEC)
    records = Trace.open(folder).records("observations")
    return [seen for record in records for seen in CODEC.decode(Observations, record.value).items]


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    """Write a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=[*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
    return path


def test_a_log_is_judged_by_the_probabilities_and_costs_that_it_names(tmp_path: Path) -> None:
    """Each arm's loss is known here, so what each would have cost is; weights are worked out by hand beside it."""
    random, count = np.random.default_rng(7), 4_000
    shares = np.array([0.6, 0.3, 0.1])
    chosen = random.choice(3, count, p=shares)
    truth = (random.random((count, 3)) < [0.5, 0.2, 0.4]).astype(float)
    losses = truth[np.arange(count), chosen]
    rows = [
        {"at": n, "chosen": ARMS[arm], "p": shares[arm], "loss": losses[n]} for n, arm in enumerate(chosen.tolist())
    ]
    file = table(tmp_path / "log.csv", rows)
    observed(file, {**TABLE, "time": {"column": "at", "unit": "s"}})

    past = recorded(tmp_path / "trace", CODEC, None)
    for number, arm in enumerate(ARMS):
        assert past.window_s is not None
        found = evaluate(past, candidate(f"always:{arm}"), past.window_s)
        by_hand = float(np.sum(losses[chosen == number] / shares[number])) / count
        ipw = found.estimates["ipw"]
        assert isinstance(ipw, Estimate)
        assert (found.decisions, ipw.value) == (count, pytest.approx(by_hand, abs=1e-12))
        assert found.served.mean == pytest.approx(losses.mean(), abs=1e-12)
        assert found.candidate.low <= truth[:, number].mean() <= found.candidate.high
        assert found.served_by == ("logged",)
        assert found.unsupported == 0.0


def test_a_personalizers_log_is_taken_as_it_is(tmp_path: Path) -> None:
    """Places, probabilities and a cost between -1 and 0; what was chosen is the arm that `_label_Action` names."""
    other = {**DSJSON, "EventId": "other", "a": [3, 2, 1], "p": [0.5, 0.3, 0.2], "_label_Action": 3, "_label_cost": 0}
    (tmp_path / "vw.dsjson").write_text(f"{json.dumps(DSJSON)}\n{json.dumps(other)}\n")
    one, two = observed(tmp_path / "vw.dsjson", PERSONALIZER)

    assert (one.query_id, one.application, one.decision.features) == (DSJSON["EventId"], "ads", (41.0,))
    assert (one.decision.arms, one.decision.propensities) == (("1", "2", "3"), (0.1, 0.8, 0.1))
    assert (one.decision.chosen, one.losses, one.loss) == ((1,), (None, 0.25, None), 0.25)
    assert one.predicted_us == 1_612_456_289_246_000
    assert (two.decision.arms, two.decision.propensities) == (("1", "2", "3"), (0.2, 0.3, 0.5))
    assert (two.decision.chosen, two.loss, two.status) == ((2,), 1.0, JoinStatus.JOINED)


def test_what_was_chosen_may_be_a_place_and_arms_may_be_numbered(tmp_path: Path) -> None:
    """`_labelIndex` counts from 0; a reward is the other end of a cost, and comes after a while."""
    (tmp_path / "vw.jsonl").write_text(json.dumps({**DSJSON, "p": [0.1, 0.8, 0.1], "reward": 3}) + "\n")
    mapping = {key: value for key, value in PERSONALIZER.items() if key not in ("arms", "cost")}
    mapping |= {"chosen": {"column": "_labelIndex", "by": "place"}, "delay": 30}
    mapping |= {"reward": {"column": "reward", "low": 0, "high": 4}}
    (seen,) = observed(tmp_path / "vw.jsonl", mapping)

    assert (seen.decision.arms, seen.decision.chosen, seen.loss) == (("1", "2", "3"), (1,), 0.25)
    assert seen.observed_us - seen.predicted_us == 30_000_000


def test_lists_may_be_written_as_text_or_be_arrays(tmp_path: Path) -> None:
    """As CSV and npz hold them."""
    row = {"at": 1, "chosen": 20, "p": "[0.25, 0.75]", "loss": 0, "arms": "[3, 20]"}
    mapping = {**TABLE, "time": {"column": "at", "unit": "s"}, "arms": {"column": "arms"}}
    (tmp_path / "csv").mkdir()
    (first,) = observed(table(tmp_path / "csv" / "log.csv", [row]), mapping)
    np.savez(tmp_path / "log.npz", at=[1], chosen=[20], p=[[0.25, 0.75]], loss=[0.0], arms=[[3, 20]])
    (second,) = observed(tmp_path / "log.npz", mapping)

    assert first == second
    assert (first.decision.arms, first.decision.propensities) == (("3", "20"), (0.25, 0.75))


def test_queries_may_be_made_beside_decisions_and_a_row_without_a_loss_is_one_that_nobody_told_about(
    tmp_path: Path,
) -> None:
    """They can be asked again; contexts have states of their own."""
    rows = [
        {"at": 1, "chosen": "b", "p": 0.5, "loss": "", "user": "ann"},
        {"at": 2, "chosen": "a", "p": 0.25, "loss": 1, "user": "bob"},
    ]
    file = table(tmp_path / "log.csv", rows)
    more = {"input": {"column": "user"}, "context": {"column": "user"}, "time": {"column": "at", "unit": "s"}}
    first, second = observed(file, {**TABLE, **more})
    trace = Trace.open(tmp_path / "trace")

    assert [len([*trace.records(topic)]) for topic in ("queries", "feedback", "observations")] == [2, 1, 2]
    assert (first.loss, first.losses, first.status) == (None, (None, None, None), JoinStatus.DEFAULT)
    assert first.decision.propensities == (0.25, 0.5, 0.25)
    assert (second.decision.state, second.loss) == ("ads/bob", 1.0)
    assert second.decision.propensities == (0.25, 0.375, 0.375)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"chosen": "d"}, "'d' was chosen, which is none of the arms a, b, c"),
        ({"p": 0}, "had the probability 0"),
        ({"p": 1.5}, "had the probability 1.5"),
        ({"loss": 3}, "3 is not between 0 and 1: name the bounds with `low` and `high`"),
        ({"loss": "x"}, "could not convert"),
        ({"loss": "nan"}, "nan is not between"),
        ({"p": "[0.5, 0.5]"}, "are not 3 that sum to 1"),
        ({"p": "[0.5, 0.4, 0.4]"}, "are not 3 that sum to 1"),
    ],
)
def test_a_row_that_cannot_be_is_refused_by_its_number(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    """What is weighed by a wrong probability is worse than nothing."""
    row = {"at": 1, "chosen": "a", "p": 0.5, "loss": 0.5}
    file = table(tmp_path / "log.csv", [row, {**row, **change}])
    with pytest.raises(TraceError, match="row 2 does not fit") as told:
        observed(file, {**TABLE, "time": {"column": "at", "unit": "s"}})
    assert message in str(told.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"propensity": None}, "lacks propensity"),
        ({"loss": None}, "lacks loss, cost or reward"),
        ({"cost": {"column": "x"}}, "loss and cost: one says"),
        ({"count": 2}, "leave out `count`"),
        ({"loss": {"column": "x", "low": 1, "high": 0}}, "make low the smaller one"),
        ({"chosen": {"column": "x", "by": "index"}}, "there are: name, place"),
    ],
)
def test_a_mapping_of_decisions_that_lacks_something_is_refused(change: dict[str, Any], message: str) -> None:
    """Before any row is read."""
    mapping = {key: value for key, value in {**TABLE, **change}.items() if value is not None}
    with pytest.raises(TraceError) as told:
        TraceMapping.parse(mapping)
    assert message in str(told.value)
