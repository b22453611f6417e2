"""TensorFlow Serving, MLflow, Personalizer and feedback: what a request asks, and how answers are written."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.records import Feedback, MetricFeedback, NamedTensors, Query, Status, Tensor
from streams.gateway.protocol import mlflow, personalizer, teaching, tensorflow
from streams.gateway.protocol.personalizer import RankingLoop
from streams.gateway.protocol.values import HttpRequest, InputForm, RequestRefusedError
from tests.unit.streams.gateway.requests import NOW_US, predicted, row

NUMBERS, TABLE = InputForm("float32", (2,)), InputForm(None)


def request(body: object, takes: InputForm | None = NUMBERS, kind: str = "application/json") -> HttpRequest:
    """Return a request."""
    return HttpRequest("iris", body if isinstance(body, bytes) else orjson.dumps(body), kind=kind, takes=takes)


def rows(ask: Any) -> list[Any]:
    """Return what is asked: numbers of a tensor, a mapping of a table's row, or a text."""
    return [
        row(one) if isinstance(one, Tensor) else orjson.loads(one) if str(one).startswith("{") else one
        for one in ask.rows
    ]


def answered(asked: Any, *answers: object) -> Any:
    """Return the reply's JSON."""
    made = [predicted(Query(f"q{at}", "iris", "x"), answer) for at, answer in enumerate(answers)]
    return orjson.loads(asked.render(made).body)


@pytest.mark.parametrize(
    ("body", "takes", "found"),
    [
        ({"instances": [[1, 2], [3, 4]]}, NUMBERS, [[1, 2], [3, 4]]),
        ({"instances": [{"x": [1, 2]}, {"x": [3, 4]}]}, NUMBERS, [[1, 2], [3, 4]]),
        ({"instances": [{"a": 1, "b": 2}]}, NUMBERS, [[1, 2]]),
        ({"instances": [{"a": 1, "b": "x"}]}, TABLE, [{"a": 1, "b": "x"}]),
        ({"instances": ["one", "two"]}, TABLE, ["one", "two"]),
        ({"instances": [{"b64": "AP8="}]}, TABLE, [b"\x00\xff"]),
        ({"inputs": [[1, 2], [3, 4]]}, NUMBERS, [[1, 2], [3, 4]]),
        ({"inputs": {"x": [[1, 2], [3, 4]]}}, NUMBERS, [[1, 2], [3, 4]]),
        ({"inputs": {"a": [1, 3], "b": ["x", "y"]}}, TABLE, [{"a": 1, "b": "x"}, {"a": 3, "b": "y"}]),
        ({"inputs": {"a": [1, 3], "b": [2, 4]}}, NUMBERS, [[1, 2], [3, 4]]),
    ],
)
def test_tensorflow_serving_takes_rows_and_columns(body: object, takes: InputForm, found: list[Any]) -> None:
    """`instances` has a row a query, `inputs` a column a name; answers stand under the name that fits."""
    asked = tensorflow.parse(request(body, takes))
    assert rows(asked.ask) == found
    told = answered(asked, *range(len(found)))
    assert told["predictions" if "instances" in body else "outputs"] == [*range(len(found))]  # type: ignore[operator]
    assert told["details"][0] == {
        "query_id": "q0", "status": "complete", "reason": None, "confidence": 0.5, "decision": ["forest"],
        "probability": 0.75,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "takes", "found"),
    [
        ({"dataframe_split": {"columns": ["a", "b"], "data": [[1, 2], [3, 4]]}}, NUMBERS, [[1, 2], [3, 4]]),
        ({"dataframe_split": {"columns": ["a", "b"], "data": [[1, None]]}}, TABLE, [{"a": 1, "b": None}]),
        ({"dataframe_split": {"data": [[1, 2]]}}, NUMBERS, [[1, 2]]),
        ({"dataframe_records": [{"a": 1, "b": 2}, {"b": 4, "a": 3}]}, NUMBERS, [[1, 2], [3, 4]]),
        ({"dataframe_records": [{"a": 1}, {"b": "x"}]}, TABLE, [{"a": 1}, {"b": "x"}]),
        ({"instances": [[1, 2]]}, NUMBERS, [[1, 2]]),
        ({"inputs": {"a": [1], "b": [2]}}, NUMBERS, [[1, 2]]),
    ],
)
def test_mlflow_takes_its_four_forms(body: object, takes: InputForm, found: list[Any]) -> None:
    """By the order of the columns for a model of numbers, by their names for one of a table."""
    asked = mlflow.parse(request(body, takes))
    assert rows(asked.ask) == found
    assert answered(asked, *range(len(found)))["predictions"] == [*range(len(found))]


def test_a_column_of_a_table_has_single_values() -> None:
    """A list in a cell is refused, and no warning is kept of its name."""
    with pytest.raises(RequestRefusedError, match="a column has a number, a text"):
        mlflow.parse(request({"dataframe_records": [{"a": [1], "b": 2}]}, TABLE))


def test_mlflow_takes_csv() -> None:
    """A line of names, then rows; an empty cell is missing."""
    given = request(b"age,job\r\n41,nurse\r\n7.5,\r\n-1e2,1_000\r\n", TABLE, "text/csv")
    assert rows(mlflow.parse(given).ask) == [
        {"age": 41, "job": "nurse"}, {"age": 7.5, "job": None}, {"age": -100.0, "job": "1_000"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("parse", "body", "why"),
    [
        (tensorflow.parse, {}, "either instances"),
        (tensorflow.parse, {"instances": [], "inputs": []}, "either instances"),
        (tensorflow.parse, {"instances": []}, "0 rows"),
        (tensorflow.parse, {"instances": 3}, "a list with a row"),
        (tensorflow.parse, {"instances": [[1, 2], [3]]}, "FP32.*is taken"),
        (tensorflow.parse, {"instances": [None]}, "null"),
        (tensorflow.parse, {"instances": [{"b64": "?"}]}, "base64"),
        (tensorflow.parse, {"inputs": {"a": [1], "b": [1, 2]}}, "same number of rows"),
        (mlflow.parse, {"instances": [[1]], "inputs": [[1]]}, "exactly one of"),
        (mlflow.parse, {"dataframe_split": {"columns": ["a"], "data": [[1, 2]]}}, "a value for each"),
        (mlflow.parse, {"dataframe_records": [{"a": 1}, {"b": 1}]}, "same columns"),
        (mlflow.parse, {"dataframe_records": [[1]]}, "list of objects"),
    ],
)
def test_what_is_no_such_request_is_refused(parse: Any, body: object, why: str) -> None:
    """With its cause."""
    with pytest.raises(RequestRefusedError, match=why) as caught:
        parse(request(body))
    assert caught.value.status == 400


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner, max_size=4),
    max_leaves=12,
)


@given(_JSON, st.sampled_from([*mlflow.FORMS, "actions", "value", "id"]), st.sampled_from([NUMBERS, TABLE, None]))
def test_any_json_is_a_request_or_refused(value: object, name: str, takes: InputForm | None) -> None:
    """Nothing else is ever raised."""
    body = orjson.dumps({name: value})
    for parse in (
        lambda: tensorflow.parse(request(body, takes)),
        lambda: mlflow.parse(request(body, takes)),
        lambda: personalizer.parse(request(body), RankingLoop(("a",), 4), "new"),
        lambda: personalizer.parse(request(body), RankingLoop(("a",), 4, "rows"), "new"),
        lambda: personalizer.reward("e", body, NOW_US),
        lambda: teaching.parse(body, NOW_US),
    ):
        try:
            parse()
        except RequestRefusedError as fault:
            assert fault.status == 400  # noqa: PT017


RANK = {
    "contextFeatures": [{"timeOfDay": "morning"}, {"user": {"age": 0.5, "premium": True}}],
    "actions": [{"id": "net", "features": [{"kind": "a"}]}, {"id": "forest", "features": [{"kind": "b"}]}],
    "eventId": "e7",
    "deferActivation": False,
}


def test_personalizer_ranks_the_models_of_an_application() -> None:
    """The chosen action stands first with its probability; the event's id is the query's."""
    asked = personalizer.parse(request(RANK), RankingLoop(("forest", "net"), 8), "new")
    assert (asked.ask.id, asked.ask.candidates) == ("e7", None)
    assert rows(asked.ask) == [[0.0, 0.0]]  # what the models take
    assert sorted(number for number in asked.ask.features[0] if number) == [0.5, 1.0, 1.0]
    reply = asked.render([predicted(Query("e7", "iris", "x"), None, status=Status.DEFAULT, reason="deadline")])
    assert reply.status == 201
    assert orjson.loads(reply.body) == {
        "ranking": [{"id": "forest", "probability": 0.75}, {"id": "net", "probability": 0.25}],
        "eventId": "e7",
        "rewardActionId": "forest",
    }


def test_personalizer_ranks_candidates_and_leaves_excluded_ones_in_place() -> None:
    """By ids; what stands first has the probability that it does."""
    actions = [{"id": name} for name in ("a", "b", "c")]
    asked = personalizer.parse(
        request({"actions": actions, "excludedActions": ["b"]}), RankingLoop(("m",), 0, "ids"), "new"
    )
    assert (asked.ask.candidates, asked.ask.top, asked.ask.id) == (("a", "c"), 2, "new")
    places = Tensor.of(np.array([1, 0]))
    told = asked.render([predicted(Query("new", "iris", "x"), places, first=(0.1, 0.9))])
    assert orjson.loads(told.body)["ranking"] == [
        {"id": "c", "probability": 0.9}, {"id": "b", "probability": 0.0}, {"id": "a", "probability": 0.1},
    ]  # fmt: skip


def ranked_rows(context: object, actions: list[dict[str, Any]], width: int = 64) -> Any:
    """Return the rows of features by which actions are ranked."""
    body = {"contextFeatures": context, "actions": actions}
    asked = personalizer.parse(request(body), RankingLoop(("m",), width, "rows"), "new")
    assert isinstance(asked.ask.candidates, Tensor)
    return asked.ask.candidates.numpy()


def test_features_of_actions_are_rows_that_are_ranked() -> None:
    """Of the context, of each action and its id, and of both together: 2, 2 and 4 here."""
    rows = ranked_rows([{"day": "monday", "sun": 1}], [{"id": "a", "features": [{"x": 1}]}, {"id": "b"}])
    assert rows.shape == (2, 64)
    assert rows.sum(axis=1).tolist() == [2 + 2 + 4, 2 + 1 + 2]


def test_what_is_liked_in_the_morning_may_not_be_in_the_evening() -> None:
    """A regression on the rows tells which action suits which context: what Personalizer is for."""
    times, actions = ("morning", "evening"), [{"id": "coffee"}, {"id": "wine"}]
    rows = np.concatenate([ranked_rows([{"time": time}], actions) for time in times])
    liked = np.array([1.0, 0.0, 0.0, 1.0])
    found = rows @ np.linalg.lstsq(rows, liked, rcond=None)[0]
    assert np.abs(found - liked).max() < 0.01


def test_so_many_pairs_of_features_as_nobody_has_are_refused() -> None:
    """Each of the context stands with each of every action."""
    many = {f"a{number}": number for number in range(4_000)}
    with pytest.raises(RequestRefusedError, match="131,072 pairs"):
        ranked_rows(many, [{"id": "a", "features": many}])


@pytest.mark.parametrize(
    "features",
    [[{}] * 5_000, {f"a{number}": number for number in range(5_000)}, [[1] * 3_000, [2] * 3_000], [{"n" * 2_000: 1}]],
)
def test_more_features_than_anybody_has_are_refused(features: object) -> None:
    """Empty ones count, too."""
    with pytest.raises(RequestRefusedError, match="more than 4,096 features"):
        personalizer.parse(request(RANK | {"contextFeatures": features}), RankingLoop(("forest", "net"), 8), "new")


def test_other_actions_than_the_models_are_refused() -> None:
    """With the names that are known, and what to do for actions that change."""
    with pytest.raises(RequestRefusedError, match=r"forest, other.*ranks candidates"):
        personalizer.parse(request(RANK), RankingLoop(("forest", "other")), "new")


def test_a_reward_is_a_loss_turned_round() -> None:
    """From 0 to 1."""
    told = personalizer.reward("e7", b'{"value": 0.75}', NOW_US)
    ((feedback, context),) = told.items
    assert (feedback.query_id, feedback.loss, feedback.label, context) == ("e7", 0.25, None, None)
    assert told.reply.status == 204
    ((both, _),) = personalizer.reward("e7", b'{"value": 0.75}', NOW_US, is_label=True).items
    assert (both.loss, both.label) == (0.25, 0.75)  # a regression learns the label, all else the loss
    for value in (b"-1", b"1.5", b"null", b'"1"', b"true"):
        with pytest.raises(RequestRefusedError, match=r"from 0 to 1|is a number"):
            personalizer.reward("e7", b'{"value": %s}' % value, NOW_US)


def test_a_label_may_be_an_object() -> None:
    """With a text in it what is true of a JSON answer, of numbers alone tensors by name."""
    labels = [{"total": 12.5, "seller": {"name": "Ann"}}, {"boxes": [1.5, 2.5]}]
    told = teaching.parse(orjson.dumps({"feedback": [{"id": "a", "label": one} for one in labels]}), NOW_US)
    (said, _), (numbers, _) = told.items
    assert isinstance(said, Feedback)
    assert isinstance(numbers, Feedback)
    assert said.label == '{"total": 12.5, "seller": {"name": "Ann"}}'
    assert isinstance(numbers.label, NamedTensors)
    assert numbers.label.arrays()["boxes"].tolist() == [1.5, 2.5]
    with pytest.raises(RequestRefusedError):
        teaching.parse(b'{"id": "a", "label": {"boxes": [[1], [1, 2]]}}', NOW_US)


def test_feedback_is_a_label_or_a_loss() -> None:
    """One, or several at once."""
    told = teaching.parse(
        orjson.dumps({"feedback": [{"id": "a", "label": 3, "weight": 2.5}, {"id": "b", "loss": 0.5, "context": "c"}]}),
        1,
    )
    assert [*told.items] == [
        (Feedback("a", 3, None, 1, 2.5), None), (Feedback("b", None, 0.5, 1), "c"),
    ]  # fmt: skip
    for wrong in (
        {},
        {"id": "a", "label": 1, "weight": 0},
        {"id": "a", "label": 1, "weight": "2"},
        {"id": "a"},
        {"id": "a", "label": 1, "loss": 0},
        {"id": "a", "loss": 2},
        {"id": "a", "label": {}},
    ):
        with pytest.raises(RequestRefusedError):
            teaching.parse(orjson.dumps(wrong), 1)


@pytest.mark.parametrize("answer", [np.array([[1.5, np.nan]]), np.array(2.5), np.zeros((0,)), np.array([True])])
def test_vectors_are_answers(answer: np.ndarray[Any, Any]) -> None:
    """As nested lists, as they are; NaN is null."""
    asked = tensorflow.parse(request({"instances": [[1, 2]]}))
    expected = orjson.loads(orjson.dumps(answer.tolist()))
    assert answered(asked, Tensor.of(answer))["predictions"] == [expected]


def test_a_metric_is_told_by_its_name_beside_labels() -> None:
    """Its value is a number; a label or a loss is told by itself."""
    body = orjson.dumps({"feedback": [{"id": "a", "metric": "revenue", "value": 3}, {"id": "a", "label": 1}]})
    (told, _), (labelled, _) = teaching.parse(body, 7).items
    assert told == MetricFeedback("a", "revenue", 3.0, 7)
    assert labelled == Feedback("a", 1, None, 7)
    for wrong in ({"value": "3"}, {}, {"value": 3, "label": 1}, {"value": 3, "loss": 0.5}):
        with pytest.raises(RequestRefusedError):
            teaching.parse(orjson.dumps({"id": "a", "metric": "revenue"} | wrong), 7)
