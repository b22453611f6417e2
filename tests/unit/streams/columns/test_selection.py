"""Queries in C: drawn as `policies.draw` draws, read as the codec reads, and cut from what it writes."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.draw import uniform
from schemas import topics
from schemas.codec import Codec
from schemas.records import Decision, Feedback, Query, Tensor
from schemas.wire import write_long
from streams.columns.pieces import ArmPieces, Uncut, answer_form, cut, joined, query_form, text
from streams.operators.contract import Batch
from tests.batches import batch

batches = pytest.importorskip("streams.columns.batches", reason="Skysail is not compiled here")
columns = pytest.importorskip("streams.columns.selection", reason="Skysail has been installed without a compiler")

CODEC = Codec()
NOW = 1_700_000_000_000_000
FORM = "float32", (2,)


def lane(*shares: float) -> columns.Lane:
    """Return the lane of an application that draws its arms with these shares."""
    made = columns.Lane(b"digits", tuple(query_form(CODEC, "digits", *FORM)), 100_000, 1_000_000, -1, (10, 5_000))
    made.decide_by((columns.State(tuple(accumulate(shares))),))
    return made


def asked(ids: list[str]) -> Batch:
    """Return queries under these ids, each with a row of its number."""
    rows = [Tensor.of(np.array([number, 0], np.float32)) for number in range(len(ids))]
    said = [CODEC.encode(Query(name, "digits", row, sent_us=NOW)) for name, row in zip(ids, rows, strict=True)]
    return Batch(topics.QUERIES, 0, 0, len(ids), batch(0, [(None, value, []) for value in said]))


def drawn(given_lane: columns.Lane, ids: list[str]) -> dict[int, list[int]]:
    """Return which queries ask each arm, by their numbers."""
    poll = columns.Poll([asked(ids)], (given_lane,), NOW)
    found = poll.ask(0, poll.count, 0)
    return {
        arm: np.frombuffer(rows, np.float32).reshape(count, 2)[:, 0].astype(int).tolist() for arm, count, rows in found
    }


def expected(shares: tuple[float, ...], ids: list[str]) -> dict[int, list[int]]:
    """Return the same as the policies' draw says it."""
    sums = [*accumulate(shares)]
    found: dict[int, list[int]] = {}
    for number, name in enumerate(ids):
        arm = min(bisect_right(sums, uniform(name) * sums[-1]), len(sums) - 1)
        found.setdefault(arm, []).append(number)
    return dict(sorted(found.items()))


def test_thousands_of_ids_draw_the_arms_that_python_draws() -> None:
    """Ids of all lengths up to a block of the hash, and arms without any share."""
    ids = [f"{number}{'x' * (number % 120)}" for number in range(3_000)]
    shares = 0.2, 0.0, 0.5, 0.1 + 1e-9, 0.2
    assert drawn(lane(*shares), ids) == expected(shares, ids)


@given(
    st.lists(st.text(min_size=1, max_size=30), min_size=1, max_size=20),
    st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda shares: sum(shares) > 0),
)
def test_any_id_draws_the_arm_that_python_draws(ids: list[str], shares: list[float]) -> None:
    """Whatever its characters are."""
    assert drawn(lane(*shares), ids) == expected(tuple(shares), ids)


def test_what_is_no_record_batch_is_refused() -> None:
    """A flipped bit, a cut, another format: nothing is answered."""
    data = asked(["a", "b"]).data
    for spoilt in (data[:-1], data[:40], b"", data[:70] + bytes([data[70] ^ 1]) + data[71:], data + b"\0"):
        with pytest.raises(ValueError, match="record batch"):
            columns.Poll([Batch(topics.QUERIES, 0, 0, 2, spoilt)], (lane(1.0),), NOW)


def test_answers_that_are_not_one_a_row_are_refused() -> None:
    """Fewer bytes than rows, or no such arm."""
    form = (b"", b"", b"", b"", b"")
    for arm, rows, kind, answers in ((0, 2, 0, b"12345678"), (1, 1, 0, b"12345678"), (0, 2, 2, [b"a"]), (0, 1, 3, b"")):
        with pytest.raises(ValueError, match=r"arm|answer"):
            lane(1.0).say(arm, rows, kind, answers, form)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint64"])
def test_queries_are_cut_for_any_type_of_input(dtype: str) -> None:
    """The pieces around the marks are what the codec writes around any others."""
    form = query_form(CODEC, "digits", dtype, (3, 4))
    row = Tensor.of(np.arange(12).reshape(3, 4).astype(dtype))
    value = CODEC.encode(Query("an id", "digits", row, sent_us=NOW))
    assert value.startswith(form.head + text("an id") + text("digits") + form.given + row.data)
    assert form.width == len(row.data)


def test_inputs_too_short_to_be_told_have_no_form() -> None:
    """Two bytes may stand anywhere."""
    with pytest.raises(Uncut):
        query_form(CODEC, "digits", "int8", (2,))


def test_answers_are_cut_for_each_kind() -> None:
    """The kinds differ in what stands before the answer."""
    decision = Decision((0,), 3, "digits", "single", ("model",), (1.0,))
    asked = ArmPieces(decision, "model", "7")
    forms = {answer_form(CODEC, "digits", asked, kind) for kind in (int, float, str)}
    assert len(forms) == 3
    timed = {answer_form(CODEC, "digits", asked, kind, is_timed=True) for kind in (int, float, str)}
    # Without times stand three zeros in their place, of a byte each.
    assert {form._replace(closed=form.closed + bytes(3) + form.ended, ended=b"") for form in timed} == forms


def test_what_is_not_there_is_not_cut() -> None:
    """Each mark has to stand behind the last one."""
    assert cut(b"a1b2c", (b"1", b"2")) == [b"a", b"b", b"c"]
    assert joined([b"a", b"b", b"c"], (b"3", b"4")) == b"a3b4c"
    with pytest.raises(Uncut):
        cut(b"a2b1c", (b"1", b"2"))
    assert CODEC.encode(Feedback("q", sent_us=-3)).endswith(
        write_long(-3) + b"\0\0\0\0"
    )  # no weight, nobody's, no places


def test_a_batch_in_slices_is_gone_on_with_in_the_next_poll() -> None:
    """Or read anew, where a slice begins before the last one's end."""
    whole, slices, found = asked([f"q{number}" for number in range(8)]), batches.Slices(), []
    for begin, end in ((0, 3), (3, 8), (2, 4)):
        poll = columns.Poll([whole._replace(offset=begin, end=end)], (lane(1.0),), NOW, slices)
        poll.leave(0, 0, "state")
        found.append([offset for _, offset in poll.hand_over(poll.count)])
    assert found == [[0, 1, 2], [3, 4, 5, 6, 7], [2, 3]]
