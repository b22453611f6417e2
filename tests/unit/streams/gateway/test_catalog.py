"""What a gateway knows of applications and models, as their topics say."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Source
from streams.gateway.catalog import Catalog
from streams.gateway.protocol.personalizer import RankingLoop
from streams.gateway.protocol.values import InputForm, RequestRefusedError
from streams.operators.contract import Record
from tests.unit.streams.gateway.requests import IRIS, NOW_US, TEXTS

if TYPE_CHECKING:
    from schemas.records import Model

CODEC = Codec()


def said(*records: Application | Model) -> list[Record]:
    """Return the records of topics."""
    found = []
    for at, one in enumerate(records):
        topic = topics.APPLICATIONS if isinstance(one, Application) else topics.MODELS
        found.append(Record(topic, 0, at, NOW_US, one.name.encode(), CODEC.encode(one)))
    return found


def known(*records: Application | Model) -> Catalog:
    """Return a catalog that has taken these."""
    catalog = Catalog(CODEC)
    catalog.take(said(*records))
    return catalog


def test_an_application_takes_what_its_models_take() -> None:
    """Where they differ, nothing is known, and the models judge each row."""
    wide = replace(IRIS, name="wide", shape=(1, 4), dtype="float64")
    assert known(IRIS, Application("a", ("forest",))).takes("a") == InputForm("float32", (4,))
    assert known(IRIS, wide, Application("a", ("wide", "forest"))).takes("a") == InputForm("float64", (1, 4))
    assert known(IRIS, TEXTS, Application("a", ("words",))).takes("a") == InputForm(None, ())
    assert known(IRIS, TEXTS, Application("a", ("words", "forest"))).takes("a") is None
    assert known(Application("a", ("forest",))).takes("a") is None


def test_changes_count_at_once() -> None:
    """Another model, a version that does not serve, an application that is gone, bytes that are none."""
    catalog = known(IRIS, Application("a", ("forest",)))
    assert catalog.takes("a") == InputForm("float32", (4,))
    (other,) = said(replace(IRIS, shape=(9,)))
    catalog.take([other._replace(key=b"forest@4")])
    assert catalog.takes("a") == InputForm("float32", (4,))
    catalog.take([other])
    assert catalog.takes("a") == InputForm("float32", (9,))
    catalog.take([Record(topics.APPLICATIONS, 0, 9, NOW_US, b"a", b"none")])
    assert catalog.takes("a") == InputForm("float32", (9,))
    catalog.take([Record(topics.APPLICATIONS, 0, 9, NOW_US, b"a", None)])
    with pytest.raises(RequestRefusedError, match="there is no application 'a'"):
        catalog.takes("a")


@pytest.mark.parametrize(
    ("application", "loop"),
    [
        (Application("a", ("x", "y"), "thompson"), RankingLoop(("x", "y"), 0)),
        (Application("a", ("x", "y"), "linucb", {"features": 5.0}), RankingLoop(("x", "y"), 5)),
        (Application("a", ("x", "y"), "linucb"), RankingLoop(("x", "y"), 8)),
        (
            Application("a", ("x",), "linucb", {"features": 5.0}, sources=(Source("users", 2),)),
            RankingLoop(("x",), 3),
        ),
        (Application("a", ("x",), "ridge", {"features": 4.0}), RankingLoop(("x",), 4, "rows", is_regression=True)),
        (
            Application("a", ("x",), "ridge", {"features": 4.0}, sources=(Source("items", 4, "candidate"),)),
            RankingLoop(("x",), 4, "ids", is_regression=True),
        ),
        (Application("a", ("x",), "two_speed", {"features": 4.0}), RankingLoop(("x",), 4, "ids")),
        (Application("a", ("x",), "my_pkg.mine:Policy"), RankingLoop(("x",), 0)),
    ],
)
def test_what_an_application_ranks_follows_from_its_policy(application: Application, loop: RankingLoop) -> None:
    """Its models, candidates by id, or by features: of these as many as are the query's own."""
    assert known(application).loop("a") == loop
