"""Expressions over a row: what they say, and that nothing else can be said."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.mapping.errors import MappingError
from streams.mapping.expressions import MOST_NESTED, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

ROW = {"status": "new", "amount": 120, "order": {"is_test": False, "user": {"age": 41}}, "coupon": None, "a.b": 7}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("status = 'new'", True),
        ('status == "old"', False),
        ("amount * 1.5 - 20 > 100 and not order.is_test", True),
        ("coupon is null", True),
        ("nobody is not null", False),
        ("status in ('old', 'new')", True),
        ("amount not in (1, 2)", True),
        ("order.user.age >= 40", True),
        ("a.b", 7),
        ("`a.b` + 1", 8),
        ("0 if status = 'new' else 1", 0),
        ("1 if coupon is not null else 2 if amount > 1000 else 3", 3),
        ("-amount", -120),
        ("2 - -3", 5),
        ("7 % 4 + 6 / 4", 4.5),
        ("'it\\'s'", "it's"),
        ("coupon = 'x'", None),
        ("coupon + 1", None),
        ("coupon = 'x' and 1 = 2", False),
        ("coupon = 'x' or 1 = 1", True),
        ("not coupon = 'x'", None),
        ("true", True),
    ],
)
def test_an_expression_has_the_value_that_it_reads_as(text: str, value: object) -> None:
    """Compared, counted with, chosen from; what is not there is null."""
    assert parse(text).value(ROW) == value


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "a value is expected here: at its end"),
        ("amount >", "a value is expected here: at its end"),
        ("amount > > 3", "a value is expected here: at '>', character 10"),
        ("status = 'new", "cannot be read, character 9"),
        ("__import__('os')", "nothing is expected here: at '(', character 11"),
        ("amount is 3", "'null' is expected here: at '3', character 11"),
        ("1 if amount > 3", "'else' is expected here: at its end"),
        ("amount in 3", "'(' is expected here: at '3', character 11"),
        ("a; b", "cannot be read, character 2"),
        ("(" * (MOST_NESTED + 2) + "1" + ")" * (MOST_NESTED + 2), "too deeply nested"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_place(text: str, what: str) -> None:
    """People find what they mistyped."""
    with pytest.raises(MappingError, match=r".") as refused:
        parse(text)
    assert what in str(refused.value)


@pytest.mark.parametrize("text", ["status + 1", "amount < 'x'", "amount / 0", "status and true", "1 if amount else 2"])
def test_values_that_do_not_go_together_are_an_error_of_the_row(text: str) -> None:
    """The expression is named with it."""
    with pytest.raises(MappingError) as refused:
        parse(text).value(ROW)
    assert refused.value.where == text


def test_a_condition_holds_where_it_is_true() -> None:
    """Neither null nor a number will do."""
    assert parse("amount > 100").holds(ROW)
    assert not parse("coupon = 'x'").holds(ROW)
    with pytest.raises(MappingError, match="true or false, not 120"):
        parse("amount").holds(ROW)


def test_paths_that_it_reads_are_known() -> None:
    """Each once, in order."""
    assert parse("a.b + c * a.b > order.user").paths == ("a.b", "c", "order.user")


NAMES = ("a", "b", "c")
NUMBERS = st.integers(-9, 9).map(str) | st.sampled_from([*NAMES, "null"])
SUMS = st.recursive(
    NUMBERS, lambda inner: st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner), max_leaves=6
)
CONDITIONS = st.recursive(
    st.builds("{} {} {}".format, SUMS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), SUMS)
    | st.builds("{} is {}null".format, SUMS, st.sampled_from(["", "not "]))
    | st.builds("{} {}in ({}, {})".format, SUMS, st.sampled_from(["", "not "]), SUMS, SUMS),
    lambda inner: (
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner)
        | st.builds("(not ({}))".format, inner)
    ),
    max_leaves=8,
)


@settings(max_examples=200, deadline=None)
@given(CONDITIONS, st.fixed_dictionaries({name: st.none() | st.integers(-9, 9) for name in NAMES}))
def test_conditions_hold_where_they_hold_in_sql(text: str, row: Mapping[str, Any]) -> None:
    """Null is null there, too: SQLite is the oracle."""
    with sqlite3.connect(":memory:") as database:
        found = database.execute(
            f"SELECT {text} FROM (SELECT ? a, ? b, ? c)", [row[name] for name in NAMES]
        ).fetchone()[0]
    value = parse(text).value(row)
    assert (None if value is None else int(value)) == found
