"""A model that was fitted on a data frame scores JSON records as they are, with the answers that the frame has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from deploy.state.packages import model_record
from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Input, NamedTensors, Outcome, Prediction, Query, Status, Tensor
from streams.mapping.errors import MappingError
from streams.mapping.kernel import TopicMapper
from streams.mapping.outgoing import row_of
from streams.mapping.spec import TopicMapping
from streams.operators.contract import DeadLetter, Emit, Record
from workers.inputs.rows import predict_rows
from workers.packages.loading import load_package
from workers.packages.packaging import package_sklearn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CODEC = Codec()
ORDERS: list[dict[str, Any]] = [
    {"id": "o-1", "amount": 12.1, "items": 3, "country": "ch", "is_gift": True, "age": 41, "lines": [{"x": 1}]},
    {"id": "o-2", "amount": 700.3, "items": 1, "country": "fr", "is_gift": False, "age": None, "lines": []},
    {"id": "o-3", "amount": 55.7, "items": 16_777_217, "country": "xx", "is_gift": False, "age": 23},
    {"id": "o-4", "amount": 0.1, "items": 2, "country": "ch", "is_gift": True},
]


def mapper(given: dict[str, Any], *folders: Path) -> TopicMapper:
    """Return a mapper of orders, for models in these packages."""
    records = [model_record(folder) for folder in folders]
    models = tuple(record.name for record in records)
    mapping = json.dumps({"from": {"topic": "orders", "id": "id", **given}})
    kernel = TopicMapper(CODEC, 4, {})
    application = CODEC.encode(Application("fraud", models, mapping=mapping))
    kernel.on_records([Record(topics.APPLICATIONS, 0, 0, 0, b"fraud", application)], 0)
    for each in records:
        assert not kernel.on_records([Record(topics.MODELS, 0, 0, 0, each.name.encode(), CODEC.encode(each))], 0)
    return kernel


def asked(kernel: TopicMapper, orders: Sequence[dict[str, Any]]) -> list[Input | str]:
    """Return what models are asked about orders, or why one cannot be mapped."""
    given = [Record("/orders", 0, number, 0, None, json.dumps(order).encode()) for number, order in enumerate(orders)]
    found: list[Input | str] = []
    for effect in kernel.on_records(given, 0):
        assert isinstance(effect, Emit | DeadLetter)
        is_letter = isinstance(effect, DeadLetter)
        found.append(effect.message if is_letter else CODEC.decode(Query, effect.value).input)  # type: ignore[union-attr]
    return found


@pytest.fixture
def churn(tmp_path: Path) -> tuple[Any, Any, Path]:
    """Return the usual pipeline of tabular data, the frame that it was fitted on, and its package."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    random, rows = np.random.default_rng(1), 200
    frame = pandas.DataFrame(
        {
            "age": np.where(random.random(rows) < 0.2, np.nan, random.integers(18, 80, rows)),
            "amount": random.random(rows) * 800,
            "items": random.integers(1, 9, rows),
            "is_gift": random.random(rows) < 0.5,
            "country": random.choice(["ch", "fr", "de"], rows),
        }
    )
    columns = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), ["country"]),
        (SimpleImputer(), ["age"]),
        ("passthrough", ["amount", "items", "is_gift"]),
    )
    label = (frame.amount + 300 * (frame.country == "fr") > 500).astype(int)
    fitted = make_pipeline(columns, LogisticRegression(max_iter=2_000)).fit(frame, label)
    package_sklearn(fitted, tmp_path / "churn", "churn", "1", frame.head(50), output="scores", allow_nan=True)
    return fitted, frame, tmp_path / "churn"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"input": {"columns": ["items", "country", "amount", "is_gift", "age"], "optional": ["age"]}},
        {"input": {"columns": {n: n for n in ("age", "amount", "items", "is_gift", "country")}, "optional": ["age"]}},
    ],
)
def test_mixed_types_texts_and_missing_values_score_as_in_the_frame(
    churn: tuple[Any, Any, Path], given: dict[str, Any]
) -> None:
    """The whole record, or columns in any order; what is null or not there is missing, as in the frame."""
    fitted, frame, folder = churn
    orders = ORDERS if given else [{"age": None, **order} for order in ORDERS]
    model = load_package(folder)
    predicted = predict_rows(model.runtime, model.manifest, asked(mapper(given, folder), orders))
    assert predicted.outcomes == (Outcome.OK,) * len(orders), predicted.messages
    same = type(frame)(orders)[[*frame.columns]].astype({"age": "float64"})
    np.testing.assert_array_equal(np.asarray(predicted.scores), fitted.predict_proba(same))


def test_numbers_alone_travel_by_name_too_where_the_model_knows_names(tmp_path: Path) -> None:
    """In the order of the mapping they would be other columns, and float32 would round them."""
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"amount": [1.0, 2.0, 4.0], "items": [5, 3, 1]})
    fitted = LinearRegression().fit(frame, [1.0, 7.0, 3.0])
    package_sklearn(fitted, tmp_path / "m", "named", "1", frame, output="value")
    orders = [{"id": "a", "amount": 0.1, "items": 16_777_217}]
    (row,) = asked(mapper({"input": ["items", "amount"]}, tmp_path / "m"), orders)
    model = load_package(tmp_path / "m")
    (answer,) = predict_rows(model.runtime, model.manifest, [row]).answers
    assert answer == fitted.predict(type(frame)(orders)[["amount", "items"]])[0]


def test_rows_are_arrays_as_soon_as_one_model_takes_no_names(churn: tuple[Any, Any, Path], tmp_path: Path) -> None:
    """All models of an application are asked about the same row."""
    _, _, folder = churn
    rows = np.ones((4, 2), np.float32)
    package_sklearn(LinearRegression().fit(rows, rows[:, 0]), tmp_path / "plain", "plain", "1", rows, output="value")
    given, order = {"input": ["amount", "items"]}, [ORDERS[0]]
    kernel = mapper(given, folder)
    assert asked(kernel, order) == ['{"amount": 12.1, "items": 3}']
    assert isinstance(asked(mapper(given, folder, tmp_path / "plain"), order)[0], Tensor)
    shadow = model_record(tmp_path / "plain")
    kernel.on_records([Record(topics.MODELS, 0, 0, 0, b"churn@2", CODEC.encode(shadow))], 0)
    assert isinstance(asked(kernel, order)[0], str)
    kernel.on_records([Record(topics.MODELS, 0, 0, 0, b"churn", CODEC.encode(shadow))], 0)
    assert isinstance(asked(kernel, order)[0], Tensor)


def test_whole_records_are_refused_where_a_model_takes_arrays(tmp_path: Path) -> None:
    """Nobody could say which field is which number."""
    rows = np.ones((4, 2), np.float32)
    package_sklearn(LinearRegression().fit(rows, rows[:, 0]), tmp_path / "plain", "plain", "1", rows, output="value")
    (message,) = asked(mapper({}, tmp_path / "plain"), ORDERS[:1])
    assert message == "from.input: is needed: model plain takes no rows by name"


def test_a_column_that_is_not_there_is_told_with_its_path_unless_it_is_optional(churn: tuple[Any, Any, Path]) -> None:
    """A slip of the pen must not become a missing value."""
    columns = {"columns": ["amount", "age"]}
    (message,) = asked(mapper({"input": columns}, churn[2]), [ORDERS[3]])
    assert isinstance(message, str)
    assert message.startswith("age: there is no such field; there are: id, amount")
    with pytest.raises(MappingError, match="optional: agee: unknown key: did you mean 'age'"):
        TopicMapping.of({"from": {"topic": "orders", "input": columns | {"optional": ["agee"]}}})


@pytest.mark.parametrize("given", ["features", ["left", "right"], {"columns": {"left": "l.left", "right": "right"}}])
def test_lists_by_name_are_named_tensors(given: Any) -> None:
    """A field that is an object of lists, or several fields of which one is a list."""
    tensors = {"left": [1.5, 2.0], "right": 3}
    order = {"id": "o-1", "features": tensors, "l": tensors, **tensors}
    (found,) = asked(mapper({"input": given}), [order])
    assert isinstance(found, NamedTensors)
    assert found.lists() == tensors


def test_an_answer_of_several_tensors_is_an_object() -> None:
    """Of lists, of which a field of what is written may be one."""
    answer = NamedTensors.named({"boxes": np.ones((1, 2)), "kind": np.array(3)})
    made = Prediction("q", "a", None, None, Status.COMPLETE, None, answer, 1.0, (), 0, 0, 0, 0)
    assert row_of(made)["answer"] == {"boxes": [[1, 1]], "kind": 3}
