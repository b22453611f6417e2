"""What the scenario `topics` asks and judges."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import joblib
import orjson
import pytest

from load.research.topics import orders, scenario
from load.research.topics.work import TopicWork
from load.results.results import Result

if TYPE_CHECKING:
    from pathlib import Path


def test_orders_have_ids_of_their_own_and_the_same_seed_makes_the_same() -> None:
    """A backlog goes on where the warm-up has ended."""
    first, more = [*orders.orders(3, 7)], [*orders.orders(2, 7, 3)]
    assert [order["order_id"] for order in (*first, *more)] == [f"o-{number}" for number in range(5)]
    assert [*orders.orders(3, 7)] == first
    assert [json.loads(value) for _, value in orders.encoded(3, 7)] == first


def test_both_classes_are_answered() -> None:
    """A model that says one thing to all would prove nothing."""
    assert {*orders.fitted(1).predict(orders.rows([*orders.orders(200, 1)])).tolist()} == {0, 1}


def test_what_is_wrong_doubled_or_missing_counts() -> None:
    """Each once."""
    given = {order["order_id"]: order for order in orders.orders(4, 1)}
    scores = dict.fromkeys(given, 1)
    right = [orjson.dumps({**order, "score": 1}) for order in given.values()]
    assert orders.faults(right, given, scores) == 0
    assert orders.faults(right[1:], given, scores) == 1
    assert orders.faults([*right, right[0]], given, scores) == 1
    wrong = orjson.dumps({**given["o-0"], "score": 0})
    assert orders.faults([wrong, *right[1:]], given, scores) == 1
    assert orders.faults([orjson.dumps({"order_id": "o-0", "score": 1}), *right[1:]], given, scores) == 1


def test_the_peers_work_gives_what_is_judged_right(tmp_path: Path) -> None:
    """All fields, and the model's answer."""
    model, given = orders.fitted(1), [*orders.orders(20, 3)]
    joblib.dump(model, tmp_path / "model.joblib")
    values = TopicWork(str(tmp_path / "model.joblib")).answer([value for _, value in orders.encoded(20, 3)])
    by_id = {order["order_id"]: order for order in given}
    scores = dict(zip(by_id, model.predict(orders.rows(given)).tolist(), strict=True))
    assert orders.faults(values, by_id, scores) == 0


def test_the_table_names_who_did_not_run() -> None:
    """And why."""
    figures = {
        f"{name}_{figure}": value
        for name in ("skysail", "hand")
        for figure, value in (("per_s_a_core", 40_000.0), ("per_s", 35_000.0), ("faults", 0.0))
    }
    failed = {"failed": [{"name": "quix", "why": "no"}]}
    result = Result("topics", {**figures, "skysail_share_of_floor": 0.5}, {}, failed)
    (table,) = scenario.tables(result)
    assert [row[:3] for row in table.rows] == [
        ("Skysail", "40,000", "0.50"),
        ("hand-written loop", "40,000", "1.00"),
        ("Quix Streams", "no", ""),
        ("FastStream", "did not run", ""),
    ]


@pytest.mark.parametrize("name", scenario.LABELS)
def test_every_contender_has_its_figures_declared(name: str) -> None:
    """Else a result could not be judged."""
    declared = {figure.name for figure in scenario.FIGURES}
    assert {f"{name}_per_s_a_core", f"{name}_per_s", f"{name}_faults"} <= declared
