"""Decoded outputs computed again from the log: the same to the bit, or known not to be."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from schemas.records import ModelOutput, Outcome, Tensor
from streams.operators.selection.coded.code import CodedRow, decoded, members_of, parity_id
from streams.replay.sums import Sums

ROWS = [CodedRow(0, 'a"b', 0, 1, 2), CodedRow(3, "c", 0, 1, 2), CodedRow(0, "@7", 0, 1, 2)]
SUM = parity_id(ROWS)
SCORES = {row.row_id: np.float32([row.partition + 0.1, 0.7]) for row in ROWS}
TOTAL = np.float32([3.4, 2.0])


def output(model: str, scores: np.ndarray[tuple[int, ...], np.dtype[np.float32]], version: str = "1") -> ModelOutput:
    """Return what a model has answered."""
    return ModelOutput(model, version, Outcome.OK, int(scores.argmax()), Tensor.of(scores))


@dataclass
class Log:
    """Outputs by id, with their partition, and the groups."""

    rows: dict[str, list[tuple[int, ModelOutput]]] = field(default_factory=dict)
    sums: Sums = field(default_factory=Sums)

    def write(self, partition: int, row_id: str, found: ModelOutput) -> None:
        """Note what a worker has written."""
        self.rows.setdefault(row_id, []).append((partition, found))
        self.sums.take(partition, [row_id])

    def again(self, row: CodedRow) -> list[bytes]:
        """Return what a row's output can be decoded as."""
        missing = ModelOutput("net", "1", Outcome.MISSING, 0, None, reconstructed=True)
        return [*self.sums.decoded([row.row_id], row.partition, missing, lambda name: self.rows.get(name, ()))]


def log(*left_out: str, version: str = "1") -> Log:
    """Return a log of a group without some of its rows."""
    found = Log()
    for row in ROWS:
        if row.row_id not in left_out:
            found.write(row.partition, row.row_id, output("net", SCORES[row.row_id], version))
    if SUM not in left_out:
        found.write(0, SUM, output("net-parity", TOTAL))
    return found


def test_a_decoded_output_follows_from_the_log_to_the_bit() -> None:
    """In the order of the group, as selection subtracts."""
    for row in ROWS:
        others = [SCORES[one.row_id] for one in ROWS if one is not row]
        assert log(row.row_id).again(row) == [decoded(TOTAL, others).tobytes()]


@pytest.mark.parametrize("left_out", [SUM, ROWS[1].row_id])
def test_without_the_sum_or_another_output_nothing_is_known(left_out: str) -> None:
    """It is not called a difference."""
    assert log(ROWS[0].row_id, left_out).again(ROWS[0]) == []


def test_another_versions_outputs_do_not_count() -> None:
    """They are none of the group's."""
    assert log(ROWS[0].row_id, version="2").again(ROWS[0]) == []


@pytest.mark.parametrize("row_id", ["q", "parity", "parity{", "parity[1]", 'parity[["x","y"]]', "parity[[1]]"])
def test_a_client_may_call_its_queries_anything(row_id: str) -> None:
    """What is no parity row's id has no members."""
    assert members_of(row_id) == ()
    assert members_of(SUM) == ((0, 'a"b'), (3, "c"), (0, "@7"))
