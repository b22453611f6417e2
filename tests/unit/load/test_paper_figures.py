"""What the scenarios of Clipper's figures 7, 9 and 10 compute, without Kafka."""

from pathlib import Path

import numpy as np
import pytest

from load.errors import MissingDataError
from load.models.training import digits
from load.research.batching import straggler
from load.research.learning import agreement, personal
from load.research.learning.agreement import Answered
from load.research.models import recorded as replayed
from load.results import targets
from load.results.results import Result
from schemas.records import ModelOutput, Outcome, Prediction, Status
from workers.entry_point import resolve


def answered(query_id: str, application: str, answer: int | None, outputs: tuple[int | None, ...] = ()) -> Prediction:
    """Return an answer made of these outputs, None = missing."""
    made = tuple(
        ModelOutput(f"m{k}", "1", Outcome.MISSING if said is None else Outcome.OK, said)
        for k, said in enumerate(outputs)
    )
    return Prediction(
        query_id,
        application,
        None,
        None,
        Status.COMPLETE,
        None,
        answer,
        1.0,
        made,
        0,
        0,
        deadline_us=100,
        answered_us=90,
    )


def test_a_replayed_model_says_its_column() -> None:
    """The dotted path names the column, with and without dawdling."""
    rows = np.array([[1, 2, 0, 0], [3, 4, 0, 0]], dtype=np.uint8)
    assert resolve("load.research.models.recorded:c1.prompt")(rows).tolist() == [2, 4]
    assert resolve("load.research.models.recorded:c1.late")(rows).tolist() == [2, 4]
    assert replayed.c15.column == replayed.MOST - 1


def test_each_application_is_asked_each_row_in_each_run() -> None:
    """A state a user and run, but one for all users of a run where no users are known."""
    rows, users = np.zeros((2, 6), np.uint8), np.array(["ann", "bob"])
    replay = personal.PersonalReplay(rows, np.array([0, 0], np.uint8), users, runs=2, seed=1)
    asked = [replay(index, 5).query for index in range(2 * 2 * 3)]
    assert {(query.application, query.context) for query in asked} == {
        ("global", "run0"),
        ("global", "run1"),
        *((lane, f"run{run}-{user}") for lane in ("bandit", "full") for run in (0, 1) for user in users),
    }
    assert len({query.query_id for query in asked}) == len(asked)


def test_what_is_not_answered_counts_as_wrong() -> None:
    """An application that answers nothing errs always; right answers are counted for theirs alone."""
    rows = np.zeros((2, 6), np.uint8)
    replay = personal.PersonalReplay(rows, np.array([0, 1], np.uint8), np.array(["ann", "ann"]), runs=1, seed=1)
    asked = [replay(index, 0).query for index in range(6)]
    replay.judge([answered(query.query_id, "", 0) for query in asked if query.application == "full"])
    errors = replay.errors()
    assert (errors["global_error"], errors["bandit_error"], errors["full_error"]) == (1.0, 1.0, 0.5)


def test_queries_are_numbered_by_user() -> None:
    """From 1, each user's for themselves."""
    assert personal.nth_of_user(np.array(["a", "b", "a", "a", "b"])).tolist() == [1, 1, 2, 3, 2]


def test_hindsight_knows_the_best_model_for_all_and_for_each() -> None:
    """Two models, each right for one of two users."""
    rows = np.array([[1, 0], [1, 0], [0, 1], [0, 1]], dtype=np.uint8)
    found = personal.hindsight(rows, np.ones(4, np.uint8), np.array(["a", "a", "b", "b"]))
    assert found == {"best_single_error": 0.5, "best_per_user_error": 0.0}


def test_without_the_data_it_says_where_to_point(tmp_path: Path) -> None:
    """A fresh clone has no recordings."""
    with pytest.raises(MissingDataError, match="SKYSAIL_DATA"):
        personal.load_rows(tmp_path / "nothing.npz")


def test_the_vote_goes_to_the_most_and_of_equals_to_the_first() -> None:
    """As the combiner votes when all weigh the same."""
    rows = np.array([[1, 2, 2], [3, 4, 5], [7, 8, 8]], dtype=np.uint8)
    assert agreement.vote(rows).tolist() == [2, 3, 8]


def test_answers_are_sorted_by_how_many_agree() -> None:
    """Each number that occurs has its share and its error, and a rising error is counted."""
    labels = np.array([1] * 200, dtype=np.uint8)
    given = {t: Answered(1 if t >= 10 else 2, 1.0, 2) for t in range(100)}
    given |= {t: Answered(1 if t >= 120 else 2, 1.0, 3) for t in range(100, 200)}
    rows = np.ones((200, 3), np.uint8)
    bins = agreement.by_agreement(given, labels, 3)
    assert [(row["agreeing"], row["share"], row["error"]) for row in bins] == [(2, 0.5, 0.1), (3, 0.5, 0.2)]
    found = agreement.figures("all", given, rows, labels)
    assert found["all_error"] == pytest.approx(0.15)
    assert (found["all_error_rises"], found["all_off_reference"]) == (1, 30)


def test_agreement_counts_outputs_like_the_answer() -> None:
    """And a default answer agrees with nobody."""
    replay = agreement.Replay(np.zeros((2, 3), np.uint8), seed=1)
    first, _, second, _ = (replay(index, 0).query for index in range(4))
    replay.judge([answered(first.query_id, "all", 4, (4, 4, 9)), answered(second.query_id, "all", None, (None,) * 3)])
    assert replay.answered["all"] == {0: Answered(4, 1.0, 2), 1: Answered(-1, 1.0, 0)}


def test_a_twentieth_of_the_rows_is_late_for_each_model_by_itself() -> None:
    """And the trees differ, so that more of them are right more often than one."""
    rows, labels = straggler.make_rows(digits(), 16)
    said, late = rows[:, :16], rows[:, 16:] > 0
    assert set(np.unique(rows[:, 16:])) == {0, straggler.DAWDLES_MS}
    assert late.mean(axis=0) == pytest.approx(straggler.DAWDLES, abs=0.025)
    alone, together = (said[:, 0] != labels).mean(), (agreement.vote(said) != labels).mean()
    assert together < 0.5 * alone


def test_arrived_counts_usable_outputs() -> None:
    """Of what was asked, and answers that left before their deadline."""
    arrived = straggler.Arrived()
    arrived([answered("q", "deadline-4", 4, (4, 4, 9, None))])
    assert (arrived.share, arrived.by_deadline) == (0.75, 1)


def test_every_ensemble_size_is_judged_and_in_the_short_form_those_that_it_has() -> None:
    """Silence does not pass, and what was not asked is not judged."""
    judged = [target for target in straggler.FIGURES.targets if target.figure.endswith("_in_time")]
    assert [target.figure for target in judged] == [f"models_{size}_in_time" for size in straggler.SIZES]
    always = [target.figure for target in judged if target.only_with is None]
    assert always == [f"models_{size}_in_time" for size in straggler.FEW]
    assert {target.only_with for target in judged} == {None, ("form", "full")}
    assert not any(verdict.reached for verdict in targets.verdicts(Result("straggler", {}), straggler.FIGURES))
