"""What a version is tried on before it answers: rows that were answered and, where they are few, what was asked."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from schemas.codec import Codec
from schemas.records import ModelQueries, Outcome, Tensor
from streams.operators.contract import Load, Predict, Predicted, Record, Unload
from tests.workers import model
from workers.inputs.columns import Column
from workers.kernel.model.loading import Loader
from workers.kernel.model.warm_up import RecentRows, Trial, asked_in
from workers.settings import WARM_UP_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input

CODEC = Codec()
VERSION = model("digits")
OK, FAILED, INVALID = Outcome.OK, Outcome.FAILED, Outcome.INVALID
ROWS = [Tensor.of(np.array([n], dtype=np.float32)) for n in range(2 * WARM_UP_ROWS)]
ASKED, ANSWERED = tuple(ROWS[:5]), tuple(ROWS[5:8])


def asked(offset: int, *inputs: Tensor | str) -> Record:
    """Make the record of a few model queries."""
    numbers = [one.numpy() for one in inputs if isinstance(one, Tensor)]
    column = Tensor.of(np.stack(numbers)) if numbers else tuple(one for one in inputs if isinstance(one, str))
    queries = ModelQueries(tuple(f"q{offset}.{n}" for n in range(len(inputs))), 0, (0,) * len(inputs), column)
    return Record("models.digits.queries", 0, offset, 0, None, CODEC.encode(queries))


class Rehearsal:
    """Gets a version ready, with a model that fails, hangs or ends over some rows.

    Attributes:
        batches: what it was tried on.
        loads: how often it was loaded.
        is_held: whether it is there at the end.
        fault: why it cannot be had; empty = it can.
    """

    def __init__(
        self,
        trial: Trial,
        failing: Sequence[Input] = (),
        hanging: Sequence[Input] = (),
        ending: Sequence[Input] = (),
    ) -> None:
        self.batches: list[tuple[Input, ...]] = []
        self.loads = 0
        self.is_held = False
        self.fault = "unfinished"
        self._failing, self._hanging, self._ending = failing, hanging, ending
        self._loader = Loader(count().__next__)
        plan = self._loader.prepare(VERSION, trial)
        try:
            while True:
                pause = next(plan)
                while not pause.is_over():
                    self._perform()
        except StopIteration as end:
            _, self.fault = end.value
        self._perform()

    def _perform(self) -> None:
        effects, self._loader.effects = self._loader.effects, []
        for effect in effects:
            match effect:
                case Load():
                    self._load(effect.copy)
                case Predict():
                    self._predict(effect)
                case Unload():
                    self.is_held = False

    def _load(self, copy: int) -> None:
        self.loads += 1
        self.is_held = True
        self._loader.on_loaded(copy, None)

    def _predict(self, batch: Predict) -> None:
        self.batches.append(tuple(batch.rows))
        is_hung = any(row in self._hanging for row in batch.rows)
        is_lost = is_hung or any(row in self._ending for row in batch.rows)
        outcomes = tuple(FAILED if row in self._failing or is_lost else OK for row in batch.rows)
        results = Predicted(outcomes, np.zeros(len(batch.rows), dtype=np.int64))
        self._loader.on_predicted(batch.batch_id, results, is_lost=is_lost)
        if is_hung:
            self.is_held = False
            self._loader.on_loaded(batch.copy, "it hung")
        elif is_lost:
            self._load(batch.copy)


def test_rows_that_failed_are_no_test_of_another_version() -> None:
    """Of each batch those are kept that were answered, the last of them all."""
    recent = RecentRows()
    recent.note(ROWS, (FAILED, *(OK,) * WARM_UP_ROWS, *(INVALID,) * (WARM_UP_ROWS - 1)))
    assert recent.trial("2") == Trial((*ROWS[1 : WARM_UP_ROWS + 1],))
    recent.note(ROWS[:2], (OK, FAILED))
    assert recent.trial("2") == Trial((*ROWS[2 : WARM_UP_ROWS + 1], ROWS[0]))


def test_as_many_rows_are_kept_as_a_version_is_to_be_tried_on() -> None:
    """Of what was answered, and of what the topic ends with."""
    recent = RecentRows(3)
    for row in ROWS[:8]:
        recent.note([row], (OK,))
    assert recent.trial("2") == Trial((*ROWS[5:8],))
    recent.note(ROWS[:5], (OK,) * 5)
    assert recent.trial("2") == Trial((*ROWS[2:5],))
    assert asked_in([asked(0, *ROWS[:2]), asked(1, *ROWS[2:4])], CODEC, 3) == (*ROWS[1:4],)


def test_what_was_asked_before_counts_where_a_worker_has_answered_few_rows() -> None:
    """Those it has answered count nevertheless; with all of them nothing else is needed."""
    recent = RecentRows()
    recent.recall(ASKED)
    assert recent.trial("2") == Trial((), ASKED)
    recent.note(ANSWERED, (OK,) * 3)
    assert recent.trial("3") == Trial(ANSWERED, ASKED)
    recent.note(ROWS[:WARM_UP_ROWS], (OK,) * WARM_UP_ROWS)
    assert recent.trial("4") == Trial((*ROWS[:WARM_UP_ROWS],))


def test_a_version_is_tried_again_without_what_nobody_has_answered() -> None:
    """It may have hung on that; when another version has taken over, it is another attempt."""
    recent = RecentRows()
    recent.recall(ASKED)
    assert recent.trial("2").asked == ASKED
    assert recent.trial("2").asked == ()
    recent.clear()
    assert recent.trial("2").asked == ASKED


def test_what_is_asked_of_late_is_looked_at_with_what_was_asked_before() -> None:
    """Whoever asks for something else than is answered is seen by it."""
    recent = RecentRows()
    recent.recall(ASKED)
    recent.ask(Column(("a", "b")), 2)
    recent.note(ANSWERED, (OK,) * 3)
    assert recent.rows() == (*ASKED, "a", "b", *ANSWERED)


def test_the_last_rows_of_records_are_found_in_order() -> None:
    """As many as are replayed, whatever the size of the records; what cannot be read is passed over."""
    records = [asked(n, *ROWS[3 * n : 3 * n + 3]) for n in range(40)]
    garbage = records[0]._replace(offset=40, value=b"garbage")
    assert asked_in([*records, garbage, garbage._replace(value=None)], CODEC) == (*ROWS[120 - WARM_UP_ROWS : 120],)
    assert asked_in([*records[:2], asked(2, "a", "b")], CODEC) == (*ROWS[:6], "a", "b")
    assert asked_in([garbage], CODEC) == ()


def test_a_version_is_warmed_up_by_what_was_asked_and_held_to_what_was_answered() -> None:
    """Two batches: what was answered comes last."""
    tried = Rehearsal(Trial(ANSWERED, ASKED))
    assert tried.batches == [ASKED, ANSWERED]
    assert (tried.is_held, tried.fault) == (True, "")


def test_failing_on_all_that_nobody_has_answered_proves_nothing() -> None:
    """The present version may fail on these rows, too; on those that it has answered it does not."""
    assert Rehearsal(Trial(ANSWERED, ASKED), failing=ASKED).fault == ""
    tried = Rehearsal(Trial(ANSWERED, ASKED), failing=ANSWERED)
    assert "answers none of 3 rows" in tried.fault
    assert not tried.is_held


def test_a_process_that_ends_over_what_was_asked_is_started_again() -> None:
    """The version is loaded when it is offered, and no query waits for it."""
    tried = Rehearsal(Trial((), ASKED), ending=ASKED[:1])
    assert (tried.loads, tried.is_held, tried.fault) == (2, True, "")


def test_a_version_that_hangs_is_let_go() -> None:
    """Its thread is stuck with the row: the next attempt makes another one."""
    tried = Rehearsal(Trial(ANSWERED, ASKED), hanging=ASKED[:1])
    assert (tried.batches, tried.is_held, tried.fault) == ([ASKED], False, "it hung")
