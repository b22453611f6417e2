"""Questions: there is one way to ask a model, and what is refused leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from schemas.records import Outcome
from streams.operators import selection
from streams.operators.selection.pending import Pending
from tests.graphs import CARS, DETECT, loop, picture, traffic
from tests.loops import Slow


def test_models_are_asked_in_one_place() -> None:
    """Rows are gathered by questions, and by the room that codes them: a rule for one question is a rule for all."""
    (folder,) = map(Path, selection.__path__)
    files = {path for path in folder.rglob("*.py") if "dispatcher.add(" in path.read_text(encoding="utf-8")}
    assert {str(path.relative_to(folder)) for path in files} == {"questions.py", "coded/reconstruction.py"}


def test_a_row_that_is_refused_is_not_waited_for() -> None:
    """It has been given an id, so that the cache and admission could look at it."""
    its = loop({"car-net": lambda _: Slow("seen", 30_000)}, traffic((DETECT, CARS)), has_workers=True, admission=True)
    for queries in (3, 3, 150, 150):
        for _ in range(queries):
            its.query(input=picture(2, 4))
        its.driver.run(0.25)
    its.driver.run(2.0)
    rows = [row for answer in its.predictions() for row in answer.stages if row.stage == "cars"]
    assert any(row.outcome is Outcome.OVERLOADED for row in rows)
    assert its.driver.operator("selection").statistics()["pending"] == 0


def test_a_query_in_hand_has_few_places_for_what_only_some_ask() -> None:
    """What only an asker needs lies in its own value: a query is made for everybody."""
    assert len(Pending.__slots__) <= 28
