"""Laws of coded inference: what is decoded, how much of it, and how long a group holds its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from streams.operators.selection.coded.code import Code, CodedRow, decoded, parity_id
from streams.operators.selection.coded.groups import FILL_SHARE, CodedSource, Groups

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from streams.operators.selection.coded.code import ParityRow, Reconstructed

MODEL, PARITY = "model", "parity"
SHAPE: Final = (3,)
CLASSES = 4
# Of the largest number that is added: double precision keeps 53 bits, single precision 24.
CLOSE: Final = {"float64": 1e-12, "float32": 1e-5}
numbers = st.floats(-1e3, 1e3, width=32)


def code(k: int = 2, dtype: str = "float64") -> Code:
    """Return how rows of the model are coded."""
    return Code(MODEL, "1", PARITY, "1", k, dtype, SHAPE, 8)


def coded_row(number: int, asked_us: int, until_us: int) -> CodedRow:
    """Return a row of partition 0."""
    return CodedRow(0, f"q{number}", asked_us, until_us, until_us)


@st.composite
def affine_models(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Draw weights, intercept and 2 to 4 rows."""
    seed = draw(st.integers(0, 2**32 - 1))
    scale = draw(st.sampled_from([1e-3, 1.0, 1e3]))
    random = np.random.default_rng(seed)
    k = draw(st.integers(2, 4))
    return (
        random.normal(size=(*SHAPE, CLASSES)) * scale,
        random.normal(size=CLASSES),
        random.normal(size=(k, *SHAPE)) * draw(st.sampled_from([1e-3, 1.0, 1e3])),
    )


@given(affine_models(), st.sampled_from([*CLOSE]), st.data())
def test_of_an_affine_model_any_missing_output_is_decoded_exactly(
    model: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]], dtype: str, data: st.DataObject
) -> None:
    """The parity model has the same weights and k times the intercept; what is left is rounding."""
    weights, intercept, rows = (part.astype(dtype) for part in model)
    outputs = rows @ weights + intercept
    parity = rows.sum(axis=0) @ weights + len(rows) * intercept
    missing = data.draw(st.integers(0, len(rows) - 1))
    found = decoded(parity, [output for place, output in enumerate(outputs) if place != missing])
    size = np.abs(rows).sum() * np.abs(weights).max() + np.abs(intercept).max() * len(rows)
    assert found.dtype == outputs.dtype
    assert np.abs(found - outputs[missing]).max() <= CLOSE[dtype] * size


class Circle:
    """Groups, the rows that were asked, and what was decoded of each group."""

    def __init__(self, k: int, bound_bytes: int = 1 << 20) -> None:
        self.groups = Groups(bound_bytes)
        self.code = code(k)
        self.rows: list[CodedRow] = []
        self.asked: list[ParityRow] = []
        self.found: list[Reconstructed] = []

    def ask(self, now_us: int, time_us: int) -> None:
        """Ask a row that has so much time."""
        row = coded_row(len(self.rows), now_us, now_us + time_us)
        if self.groups.takes(MODEL, row.partition, row.row_id):
            self.rows.append(row)
            full = self.groups.join(self.code, row, np.ones(SHAPE))
            self.asked += [] if full is None else [full]

    def answer(self, place: int, now_us: int, *, ok: bool) -> None:
        """Let a row's output come, or a failure."""
        if self.rows:
            row = self.rows[place % len(self.rows)]
            output = np.ones(CLASSES) if ok else None
            self._take(self.groups.on_output(CodedSource(MODEL, "1", 0), row.row_id, output, now_us))

    def answer_parity(self, place: int, now_us: int) -> None:
        """Let a parity model's output come."""
        if self.asked:
            row = self.asked[place % len(self.asked)]
            self._take(self.groups.on_parity(CodedSource(PARITY, "1", 0), row.row_id, np.ones(CLASSES), now_us))

    def pass_to(self, now_us: int) -> None:
        """Let time pass, with the wakes that were asked for."""
        while (due_us := self.groups.next_due()) is not None and due_us <= now_us:
            self.found += self.groups.on_timer(due_us)

    def _take(self, one: Reconstructed | None) -> None:
        self.found += [] if one is None else [one]


@st.composite
def histories(draw: st.DrawFn) -> tuple[int, list[tuple[str, int, int]]]:
    """Draw a size of groups, and what happens after how many microseconds to which row."""
    event = st.tuples(
        st.sampled_from(["ask", "ask", "answer", "parity", "fail", "drop", "wait"]),
        st.integers(0, 30_000),
        st.integers(0, 30),
    )
    return draw(st.integers(2, 4)), draw(st.lists(event, max_size=60))


def played(k: int, events: list[tuple[str, int, int]], bound_bytes: int = 1 << 20) -> Iterator[tuple[int, Circle]]:
    """Play a history; yields the time and the circle after each event."""
    circle, now_us = Circle(k, bound_bytes), 1_000_000
    for kind, after_us, place in events:
        now_us += after_us
        circle.pass_to(now_us)
        if kind == "ask":
            circle.ask(now_us, 10_000 + 2_000 * place)
        elif kind == "answer":
            circle.answer(place, now_us, ok=True)
        elif kind == "fail":
            circle.answer(place, now_us, ok=False)
        elif kind == "parity":
            circle.answer_parity(place, now_us)
        elif kind == "drop" and place == 0:
            circle.groups.drop([0])
        yield now_us, circle


def ended(history: tuple[int, list[tuple[str, int, int]]]) -> Circle:
    """Return the circle at the end of a history."""
    return [Circle(history[0]), *(circle for _, circle in played(*history))][-1]


@given(histories())
def test_at_most_one_output_of_a_group_is_decoded(history: tuple[int, list[tuple[str, int, int]]]) -> None:
    """There is one equation a group; and no row is decoded twice."""
    circle = ended(history)
    decoded_ids = [one.row_id for one in circle.found]
    assert len({*decoded_ids}) == len(decoded_ids)
    for asked in circle.asked:
        members = [row.row_id for row in circle.rows if f'"{row.row_id}"' in asked.row_id]
        assert len({*members}.intersection(decoded_ids)) <= 1


@given(histories())
def test_no_group_holds_a_row_beyond_its_deadline(history: tuple[int, list[tuple[str, int, int]]]) -> None:
    """A row without an output is held until its deadline at most, and a group that does not fill not that long."""
    for now_us, circle in played(*history):
        assert all(row.until_us > now_us for row in circle.groups.held())


@given(histories())
def test_nothing_is_kept_of_groups_that_are_over(history: tuple[int, list[tuple[str, int, int]]]) -> None:
    """When all deadlines are over there are no groups, no bytes and nothing to wake for."""
    circle = ended(history)
    circle.pass_to(10**12)
    groups = circle.groups
    assert (len(groups), groups.bytes, groups.next_due()) == (0, 0, None)


@given(histories(), st.integers(0, 20_000))
def test_groups_take_no_more_than_their_bound_and_one_row(
    history: tuple[int, list[tuple[str, int, int]]], bound_bytes: int
) -> None:
    """Beyond the bound no row joins; what comes for the rows that have is their outputs."""
    for _, circle in played(*history, bound_bytes):
        outputs = (circle.code.k + 1) * CLASSES * 8 * len(circle.groups)
        assert circle.groups.bytes <= bound_bytes + 4_096 + outputs


@given(st.integers(2, 4), st.integers(8_000, 10**6))
def test_a_group_that_does_not_fill_in_time_is_skipped(k: int, time_us: int) -> None:
    """Its sum is never asked, and the row that comes later begins another group."""
    circle = Circle(k)
    circle.ask(0, time_us)
    circle.pass_to(int(FILL_SHARE * time_us))
    for _ in range(k - 1):
        circle.ask(int(FILL_SHARE * time_us) + 1, time_us)
    assert (circle.asked, circle.groups.unfilled) == ([], 1)


@given(st.lists(st.tuples(st.integers(0, 3), st.text(max_size=8)), min_size=2, max_size=4, unique=True))
def test_a_parity_rows_id_follows_from_its_rows_and_tells_them(rows: list[tuple[int, str]]) -> None:
    """Rows that are read again and meet again ask the same question."""
    members = [CodedRow(partition, row_id, 0, 1, 2) for partition, row_id in rows]
    others = [row._replace(asked_us=7, due_us=8, until_us=9) for row in members]
    assert parity_id(members) == parity_id(others)
    assert parity_id(members) != parity_id(members[::-1])
