"""What a version is tried on before it answers: rows that were answered and, where they are few, what was asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from schemas.codec import Codec
from schemas.records import ModelQueries, Outcome, Tensor
from streams.operators.contract import Record
from tests.virtual import run
from workers.errors import HungError, PackageError
from workers.executors.thread import Timed
from workers.inputs.rows import Predicted
from workers.rollout.warm_up import Recent, Trial, asked_in, prepare
from workers.settings import WARM_UP_ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Input

CODEC = Codec()
OK, FAILED, INVALID = Outcome.OK, Outcome.FAILED, Outcome.INVALID
ROWS = [Tensor.of(np.array([n], dtype=np.float32)) for n in range(2 * WARM_UP_ROWS)]
ASKED, ANSWERED = tuple(ROWS[:5]), tuple(ROWS[5:8])


def asked(offset: int, *inputs: Tensor | str) -> Record:
    """Make the record of a few model queries."""
    numbers = [one.numpy() for one in inputs if isinstance(one, Tensor)]
    column = Tensor.of(np.stack(numbers)) if numbers else tuple(one for one in inputs if isinstance(one, str))
    queries = ModelQueries(tuple(f"q{offset}.{n}" for n in range(len(inputs))), 0, (0,) * len(inputs), column)
    return Record("models.digits.queries", 0, offset, 0, None, CODEC.encode(queries))


class Tried:
    """Remembers what it is given; some rows fail, hang, or end the process that the model runs in."""

    def __init__(
        self, failing: Sequence[Input] = (), hanging: Sequence[Input] = (), ending: Sequence[Input] = ()
    ) -> None:
        self.ready = self.stopped = False
        self.loads = 0
        self.batches: list[tuple[Input, ...]] = []
        self._failing, self._hanging, self._ending = failing, hanging, ending

    async def start(self) -> None:
        """Load, unless it is."""
        self.loads += not self.ready
        self.ready = True

    def run_quick(self, inputs: Sequence[Input], patience_s: float, *, more: bool) -> Timed | None:
        """Leave it to `run`."""
        return None

    async def run(self, inputs: Sequence[Input], patience_s: float) -> Timed:
        """Answer 0, or not."""
        assert self.ready
        self.batches.append(tuple(inputs))
        if any(row in self._hanging for row in inputs):
            raise HungError("hung")
        self.ready = not any(row in self._ending for row in inputs)
        outcomes = tuple(FAILED if row in self._failing or not self.ready else OK for row in inputs)
        return Timed(Predicted(outcomes, np.zeros(len(inputs), dtype=np.int64)), 1)

    async def stop(self) -> None:
        """Remember."""
        self.stopped = True


class Topic:
    """What a model was asked last; counts who wants to know."""

    def __init__(self) -> None:
        self.reads = 0

    async def __call__(self) -> Sequence[Input]:
        """Read it."""
        self.reads += 1
        return ASKED


def test_rows_that_failed_are_no_test_of_another_version() -> None:
    """Of each batch those are kept that were answered, the last of them all."""
    recent = Recent()
    recent.note(ROWS, (FAILED, *(OK,) * WARM_UP_ROWS, *(INVALID,) * (WARM_UP_ROWS - 1)))
    assert run(recent.trial("2")) == Trial((*ROWS[1 : WARM_UP_ROWS + 1],))
    recent.note(ROWS[:2], (OK, FAILED))
    assert run(recent.trial("2")) == Trial((*ROWS[2 : WARM_UP_ROWS + 1], ROWS[0]))


def test_as_many_rows_are_kept_as_a_version_is_to_be_tried_on() -> None:
    """Of what was answered, and of what the topic ends with."""
    recent = Recent(rows=3)
    for row in ROWS[:8]:
        recent.note([row], (OK,))
    assert run(recent.trial("2")) == Trial((*ROWS[5:8],))
    recent.note(ROWS[:5], (OK,) * 5)
    assert run(recent.trial("2")) == Trial((*ROWS[2:5],))
    assert asked_in([asked(0, *ROWS[:2]), asked(1, *ROWS[2:4])], CODEC, 3) == (*ROWS[1:4],)


def test_the_topic_is_read_where_a_worker_has_answered_few_rows() -> None:
    """Those it has answered count nevertheless; with all of them there is nothing to ask for."""
    topic = Topic()
    recent = Recent(topic)
    assert run(recent.trial("2")) == Trial((), ASKED)
    recent.note(ANSWERED, (OK,) * 3)
    assert run(recent.trial("3")) == Trial(ANSWERED, ASKED)
    recent.note(ROWS[:WARM_UP_ROWS], (OK,) * WARM_UP_ROWS)
    assert run(recent.trial("4")) == Trial((*ROWS[:WARM_UP_ROWS],))
    assert topic.reads == 2


def test_a_version_is_tried_again_without_what_nobody_has_answered() -> None:
    """It may have hung on that; when another version has taken over, it is another attempt."""
    recent = Recent(Topic())
    assert run(recent.trial("2")).asked == ASKED
    assert run(recent.trial("2")).asked == ()
    recent.clear()
    assert run(recent.trial("2")).asked == ASKED


def test_the_last_rows_of_records_are_found_in_order() -> None:
    """As many as are replayed, whatever the size of the records; what cannot be read is passed over."""
    records = [asked(n, *ROWS[3 * n : 3 * n + 3]) for n in range(40)]
    garbage = records[0]._replace(offset=40, value=b"garbage")
    assert asked_in([*records, garbage, garbage._replace(value=None)], CODEC) == (*ROWS[120 - WARM_UP_ROWS : 120],)
    assert asked_in([*records[:2], asked(2, "a", "b")], CODEC) == (*ROWS[:6], "a", "b")
    assert asked_in([garbage], CODEC) == ()


def test_a_version_is_warmed_up_by_what_was_asked_and_held_to_what_was_answered() -> None:
    """Two batches: what was answered comes last."""
    tried = Tried()
    run(prepare(tried, Trial(ANSWERED, ASKED)))
    assert tried.batches == [ASKED, ANSWERED]
    assert not tried.stopped


def test_failing_on_all_that_nobody_has_answered_proves_nothing() -> None:
    """The present version may fail on these rows, too; on those that it has answered it does not."""
    tried = Tried(failing=ASKED)
    run(prepare(tried, Trial(ANSWERED, ASKED)))
    assert not tried.stopped
    tried = Tried(failing=ANSWERED)
    with pytest.raises(PackageError, match="answers none of 3 rows"):
        run(prepare(tried, Trial(ANSWERED, ASKED)))
    assert tried.stopped


def test_a_process_that_ends_over_what_was_asked_is_started_again() -> None:
    """The version is loaded when it is offered, and no query waits for it."""
    tried = Tried(ending=ASKED[:1])
    run(prepare(tried, Trial((), ASKED)))
    assert (tried.loads, tried.ready) == (2, True)


def test_a_version_that_hangs_is_let_go() -> None:
    """Its thread is stuck with the row: the next attempt makes another one."""
    tried = Tried(hanging=ASKED[:1])
    with pytest.raises(HungError):
        run(prepare(tried, Trial(ANSWERED, ASKED)))
    assert tried.stopped
