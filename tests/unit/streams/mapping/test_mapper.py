"""Records of other topics as queries and feedback, predictions as records of theirs."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import (
    Application,
    Decision,
    Feedback,
    KeyedFeedback,
    MetricFeedback,
    ModelOutput,
    Outcome,
    Prediction,
    Query,
    Status,
    Tensor,
)
from schemas.told import as_places
from streams.mapping.errors import MappingError
from streams.mapping.kernel import TopicMapper
from streams.mapping.outgoing import row_of
from streams.mapping.spec import ANSWER, TopicMapping
from streams.operators.contract import DeadLetter, Emit, LogMessage, Record, Skip
from streams.topology import partition_of

if TYPE_CHECKING:
    from streams.operators.contract import Effect, Effects

CODEC = Codec()
NOW = 1_700_000_000_000_000
FRAUD: dict[str, Any] = {
    "from": {
        "topic": "orders",
        "id": "order_id",
        "key": "user",
        "input": ["amount", "items"],
        "sent": "created_at",
        "where": "status = 'new'",
    },
    "to": {
        "topic": "orders.scored",
        "fields": {"order_id": "id", "score": "answer", "sure": "confidence"},
        "keep": "all",
    },
    "feedback": [{"topic": "chargebacks", "id": "order.id", "key": "order.user", "label": "is_fraud"}],
}
ORDER: dict[str, Any] = {
    "order_id": "o-1", "user": "ann", "amount": 12.5, "items": 3, "status": "new", "created_at": "2023-11-14T22:13:20Z",
}  # fmt: skip


def mapper(**mappings: Any) -> TopicMapper:
    """Return a mapper with applications by name."""
    made = TopicMapper(CODEC, 4, {"orders.scored": 3})
    for name, given in mappings.items():
        application = Application(name, ("forest",), mapping=json.dumps(given))
        effects = made.on_records(
            [Record(topics.APPLICATIONS, 0, 0, NOW, name.encode(), CODEC.encode(application))], NOW
        )
        assert effects == []
    return made


def given(topic: str, value: Any, *, key: bytes | None = b"k", headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    """Return a record of another topic."""
    data = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    return Record("/" + topic, 2, 7, NOW - 5, key, data, headers)


def only(effects: Effects) -> Effect:
    """Return the only effect."""
    (effect,) = effects
    return effect


def test_a_record_becomes_a_query_under_its_own_id() -> None:
    """Numbers are what models take; the partition follows from the key, as for clients."""
    emit = only(mapper(fraud=FRAUD).on_records([given("orders", ORDER, headers=(("traceparent", b"00-1"),))], NOW))
    assert isinstance(emit, Emit)
    asked = CODEC.decode(Query, emit.value)
    assert asked == Query("o-1", "fraud", Tensor.of(np.array([12.5, 3], np.float32)), "ann", 1_700_000_000_000_000)
    assert emit[:3] == (topics.QUERIES, partition_of(b"ann", 4), b"ann")
    assert emit.completes == (given("orders", ORDER).position,)
    assert dict(emit.headers) == {"traceparent": b"00-1", "key": b"k", "row": json.dumps(ORDER).encode()}


def test_columns_with_texts_or_nothing_travel_by_name() -> None:
    """A model that was fitted on a data frame takes them so."""
    mapping = {"from": {"topic": "orders", "input": {"columns": {"amount": "amount", "country": "address.country"}}}}
    row = {"amount": None, "address": {"country": "ch"}}
    emit = only(mapper(fraud=mapping).on_records([given("orders", row)], NOW))
    assert isinstance(emit, Emit)
    asked = CODEC.decode(Query, emit.value)
    assert asked.input == '{"amount": null, "country": "ch"}'
    assert (asked.query_id, asked.sent_us) == ("orders-2-7", NOW)


@pytest.mark.parametrize(
    ("value", "reason"),
    [({**ORDER, "status": "paid"}, "filtered"), ({**ORDER, "status": None}, "filtered"), (None, "tombstone")],
)
def test_records_that_are_not_meant_are_skipped_and_counted(value: Any, reason: str) -> None:
    """They are complete."""
    skip = only(mapper(fraud=FRAUD).on_records([given("orders", value)], NOW))
    assert skip == Skip((given("orders", value).position,), reason)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\xff\xfe", "value: is no JSON"),
        (b"[1, 2]", "value: is a JSON object, not list"),
        (b'{"amount": NaN}', "value: is no JSON: "),
        (b"[" * 100_000, "value: is no JSON"),
        (b'{"amount": ' + b"9" * 5_000 + b"}", "value: is no JSON: number"),
        (
            {key: value for key, value in ORDER.items() if key != "amount"},
            "amount: there is no such field; there are: order_id",
        ),
        ({**ORDER, "status": "new", "order_id": {"a": 1}}, "id: is a text or whole number, not {'a': 1}"),
        ({**ORDER, "order_id": None}, "id: is a text or whole number, not None"),
        ({**ORDER, "order_id": "x" * 5_000}, "id: has 1 to 4,096 characters, not 5,000"),
        ({**ORDER, "created_at": "yesterday"}, "created_at: 'yesterday' is no time"),
        ({**ORDER, "amount": [1, [2]]}, "input"),
        ({**ORDER, "user": {"name": "ann"}}, "key: is a text or whole number"),
    ],
)
def test_a_record_that_cannot_be_mapped_is_a_dead_letter_with_the_path_that_failed(value: Any, message: str) -> None:
    """Those behind it are mapped."""
    letter, emit = mapper(fraud=FRAUD).on_records([given("orders", value), given("orders", ORDER)], NOW)
    assert isinstance(letter, DeadLetter)
    assert letter.cause == "unmapped"
    assert letter.message.startswith(message)
    assert len(letter.message) < 1_000
    assert isinstance(emit, Emit)


def answer(**changes: Any) -> Prediction:
    """Return an answer to the order."""
    decision = Decision((0,), 3, "fraud", "exp3", ("forest", "net"), (0.7, 0.3))
    outputs = (ModelOutput("forest", "2", Outcome.OK, 1),)
    its = "o-1", "fraud", "ann", decision, Status.COMPLETE, None, 1, 0.9, outputs
    return Prediction(*its, NOW, NOW + 100, NOW + 100_000, NOW + 1_500)._replace(**changes)


def predicted(prediction: Prediction, row: Any = ORDER, key: bytes | None = b"k") -> Record:
    """Return its record, with what travels with it."""
    headers = [("traceparent", b"00-1"), ("row", json.dumps(row).encode())]
    headers += [] if key is None else [("key", key)]
    return Record(topics.PREDICTIONS, 1, 4, NOW, b"ann", CODEC.encode(prediction), tuple(headers))


def test_an_answer_becomes_a_record_with_what_is_kept_under_the_key_of_the_one_that_asked() -> None:
    """All fields of the order, and what was said of it; headers of others go on."""
    emit = only(mapper(fraud=FRAUD).on_records([predicted(answer())], NOW))
    assert isinstance(emit, Emit)
    assert json.loads(emit.value) == {**ORDER, "score": 1, "sure": 0.9}
    assert emit[:3] == ("/orders.scored", partition_of(b"k", 3), b"k")
    assert emit.headers == (("traceparent", b"00-1"),)
    assert emit.completes == (predicted(answer()).position,)


def test_fields_may_be_anything_that_is_known_of_an_answer() -> None:
    """Of each model, of the decision, of the record that asked; computed, too."""
    fields = {
        "forest": "models.forest.answer",
        "p": "decision.probability",
        "why": "reason",
        "double": {"expression": "row.amount * 2"},
        "took": "took_ms",
    }
    mapping = {**FRAUD, "to": {"topic": "orders.scored", "fields": fields, "keep": ["user"]}}
    emit = only(mapper(fraud=mapping).on_records([predicted(answer())], NOW))
    assert isinstance(emit, Emit)
    assert json.loads(emit.value) == {"user": "ann", "forest": 1, "p": 0.7, "why": None, "double": 25.0, "took": 1.5}


def test_what_an_answer_does_not_have_is_null() -> None:
    """Such as the output of a model that was not asked, or a decision where none was made."""
    fields = {"net": "models.net.answer", "p": "decision.probability", "both": {"columns": ["answer", "row.nothing"]}}
    made = mapper(fraud={**FRAUD, "to": {"topic": "orders.scored", "fields": fields}})
    emit = only(made.on_records([predicted(answer(decision=None))], NOW))
    assert isinstance(emit, Emit)
    assert json.loads(emit.value) == {"net": None, "p": None, "both": [1, None]}


def test_all_that_a_field_may_name_is_there() -> None:
    """The list by which names are checked is that of the row."""
    assert tuple(row_of(answer())) == ANSWER


def test_answers_of_applications_that_map_nothing_are_skipped() -> None:
    """And so are those that are not wanted."""
    mapping = {**FRAUD, "to": {**FRAUD["to"], "where": "status <> 'default'"}}
    made = mapper(fraud=mapping)
    effects = made.on_records([predicted(answer(application="other")), predicted(answer(status=Status.DEFAULT))], NOW)
    assert [effect.reason for effect in effects if isinstance(effect, Skip)] == ["not_mapped", "filtered"]


def test_a_record_that_tells_the_truth_becomes_feedback_in_the_partition_of_its_query() -> None:
    """By id and key; a truth that is null is none yet."""
    made = mapper(fraud=FRAUD)
    told = {"order": {"id": "o-1", "user": "ann"}, "is_fraud": True}
    emit, skip = made.on_records([given("chargebacks", told), given("chargebacks", {**told, "is_fraud": None})], NOW)
    assert isinstance(emit, Emit)
    assert CODEC.decode(Feedback, emit.value) == Feedback("o-1", 1, None, NOW - 5, None, "fraud", "chargebacks")
    assert emit[:3] == (topics.FEEDBACK, partition_of(b"ann", 4), b"ann")
    assert emit.headers == ()
    assert isinstance(skip, Skip)
    assert skip.reason == "nothing_told"


def test_a_loss_is_counted_from_the_row() -> None:
    """Between 0 and 1, or it is a dead letter."""
    mapping = {"feedback": {"topic": "clicks", "id": "id", "loss": "0 if clicked else cost / 10"}}
    rows = [{"id": "q", "clicked": False, "cost": 5}, {"id": "q", "clicked": False, "cost": 50}]
    emit, letter = mapper(fraud=mapping).on_records([given("clicks", row) for row in rows], NOW)
    assert isinstance(emit, Emit)
    assert CODEC.decode(Feedback, emit.value).loss == 0.5
    assert isinstance(letter, DeadLetter)
    assert letter.message.startswith("loss: is 5: a loss lies between 0 and 1")


@pytest.mark.parametrize(("key", "more"), [("id", {}), ("id", {"replaces": True}), ("key", {"within": "30m"})])
def test_a_weight_is_counted_from_the_row(key: str, more: dict[str, object]) -> None:
    """Above 0, or it is a dead letter; of feedback on an id, corrected or not, and by key."""
    mapping = {"feedback": {"topic": "clicks", key: "id", "label": "is_fraud", "weight": "amount / 100", **more}}
    rows = [{"id": "q", "is_fraud": 1, "amount": 250}, {"id": "q", "is_fraud": 1, "amount": 0}]
    emit, letter = mapper(fraud=mapping).on_records([given("clicks", row) for row in rows], NOW)
    assert isinstance(emit, Emit)
    record: type = KeyedFeedback if more else Feedback
    assert CODEC.decode(record, emit.value).weight == 2.5
    assert isinstance(letter, DeadLetter)
    assert letter.message.startswith("weight: is 0: a weight is above 0")


def test_a_record_tells_of_each_place_of_a_ranking() -> None:
    """By position or item; none yet where the list is null or empty, a dead letter where it is none."""
    mapping = {"feedback": {"topic": "views", "id": "list", "places": "shown.films", "weight": "2"}}
    shown: list[dict[str, object]] = [{"position": 0, "loss": 1}, {"item": "brazil", "label": 4}]
    rows = [{"list": "q", "shown": {"films": each}} for each in (shown, None, [], "brazil", [{"position": -1}])]
    emit, *skips, text, wrong = mapper(films=mapping).on_records([given("views", row) for row in rows], NOW)
    assert isinstance(emit, Emit)
    told = Feedback("q", None, None, NOW - 5, 2.0, "films", "views", as_places(shown))
    assert CODEC.decode(Feedback, emit.value) == told
    assert emit[:3] == (topics.FEEDBACK, partition_of(b"q", 4), b"q")
    assert [skip.reason for skip in skips if isinstance(skip, Skip)] == ["nothing_told"] * 2
    for letter, what in ((text, "places: are a list"), (wrong, "places: a position is a whole number")):
        assert isinstance(letter, DeadLetter)
        assert letter.message.startswith(what)


def test_a_record_tells_what_a_metric_came_to() -> None:
    """In the partition of the query, counted from the row; null is nothing yet, and infinity a dead letter."""
    mapping = {
        "feedback": {"topic": "sales", "id": "order", "key": "user", "metric": "revenue", "value": "price * count"}
    }
    row = {"order": "q", "user": "ann", "price": 2.5, "count": 3}
    rows = [row, {**row, "price": None}, {**row, "price": 1e308, "count": 1e308}]
    emit, skip, letter = mapper(shop=mapping).on_records([given("sales", each) for each in rows], NOW)
    assert isinstance(emit, Emit)
    told = MetricFeedback("q", "revenue", 7.5, NOW - 5, "shop", "sales")
    assert CODEC.decode(MetricFeedback, emit.value) == told
    assert emit[:3] == (topics.FEEDBACK, partition_of(b"ann", 4), b"ann")
    assert isinstance(skip, Skip)
    assert skip.reason == "nothing_told"
    assert isinstance(letter, DeadLetter)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"places": "p", "label": "x"}, "feedback[0]: either label or loss"),
        ({"metric": "m", "value": "v", "replaces": True}, "feedback[0].metric: counts as it is first told"),
        ({"metric": "revenue"}, "feedback[0].value: is what a metric came to"),
        ({"label": "x", "value": "v"}, "feedback[0].value: is what a metric came to"),
        ({"metric": "revenue", "value": "v", "weight": "w"}, "feedback[0].weight: is for what is learnt"),
    ],
)
def test_one_thing_is_told_of_an_answer(changes: dict[str, Any], what: str) -> None:
    """A label, a loss, places, or a metric with its value."""
    with pytest.raises(MappingError, match=re.escape(what)):
        TopicMapping.of({"feedback": [{"topic": "c", "id": "id", **changes}]})


def test_a_label_may_be_an_object() -> None:
    """With a text in it, it is a JSON text: what is true of a JSON answer."""
    mapping = {"feedback": {"topic": "checked", "id": "id", "label": "receipt"}}
    row = {"id": "q", "receipt": {"total": 12.5, "seller": {"name": "Ann"}}}
    emit = only(mapper(fraud=mapping).on_records([given("checked", row)], NOW))
    assert isinstance(emit, Emit)
    assert CODEC.decode(Feedback, emit.value).label == '{"total": 12.5, "seller": {"name": "Ann"}}'


def test_it_reads_what_is_mapped_and_predictions_where_they_go_elsewhere() -> None:
    """As applications come and go; the set is the same object until it changes."""
    made = mapper(fraud=FRAUD)
    needed = made.needs().group.topics
    assert needed == frozenset({"/orders", "/chargebacks", topics.PREDICTIONS})
    assert made.needs().group.topics is needed
    made.on_records([Record(topics.APPLICATIONS, 0, 1, NOW, b"fraud", None)], NOW)
    assert made.needs().group.topics == frozenset()


def test_two_applications_do_not_read_one_topic() -> None:
    """A record is complete with one query; the second is told so, and the first goes on."""
    made = mapper(fraud=FRAUD)
    second = Application("other", ("net",), mapping=json.dumps({"from": {"topic": "orders", "input": "text"}}))
    log = only(made.on_records([Record(topics.APPLICATIONS, 0, 1, NOW, b"other", CODEC.encode(second))], NOW))
    assert isinstance(log, LogMessage)
    assert "is read for fraud already" in log.message
    assert isinstance(only(made.on_records([given("orders", ORDER)], NOW)), Emit)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"from": {"input": "a"}}, "from: lacks topic"),
        ({"from": {"topic": "orders", "inputs": ["a"]}}, "from.inputs: unknown key: did you mean 'from.input'?"),
        ({"from": {"topic": "o", "input": "a", "format": "xml"}}, "from.format: is 'xml'; there are: json"),
        ({"from": {"topic": "o", "input": "a", "where": "a >"}}, "a value is expected here"),
        ({"to": {"topic": "orders", "fields": {}}}, "to.topic: orders is read, too"),
        ({"to": {"topic": "x", "fields": {"a": "anser"}}}, "to.fields.a: anser: unknown key: did you mean 'answer'?"),
        ({"to": {"topic": "x", "fields": {}, "where": "statu = 'x'"}}, "did you mean 'status'?"),
        ({"to": {"topic": "x", "fields": {}, "keep": "some"}}, "to.keep: is 'some'; there are: all, none"),
        ({"feedback": [{"topic": "c", "id": "id", "label": "x"}]}, "feedback[0].key: is needed"),
        ({"feedback": [{"topic": "c", "id": "id", "key": "k"}]}, "feedback[0]: either label or loss"),
        ({"from": {"topic": "o", "input": "a", "format": "csv"}}, "from.columns: is needed for csv"),
        ({"from": {"topic": "o", "input": "a", "format": "avro", "schema": {"type": "nothing"}}}, "no Avro schema"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused_in_words(changes: dict[str, Any], what: str) -> None:
    """With the key, and what there is."""
    with pytest.raises(MappingError, match=r".") as refused:
        TopicMapping.of({**FRAUD, **changes})
    assert what in str(refused.value)


SCHEMA = {
    "type": "record", "name": "Order",
    "fields": [{"name": "id", "type": "string"}, {"name": "amount", "type": ["null", "double"]}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ({"format": "csv", "columns": ["id", "amount"]}, b"o-1,12.5"),
        ({"format": "csv", "columns": ["id", "amount"], "delimiter": ";"}, b'"o-1";12.5'),
        ({"format": "avro", "schema": SCHEMA}, b"\x06o-1\x02\x00\x00\x00\x00\x00\x00\x29\x40"),
    ],
)
def test_other_formats_are_read_and_written_too(form: dict[str, Any], value: bytes) -> None:
    """Lines of CSV, Avro by a schema."""
    mapping = {
        "from": {"topic": "orders", "id": "id", "input": ["amount"], **form},
        "to": {"topic": "orders.scored", "fields": {"id": "id", "amount": {"expression": "answer + 11.5"}}, **form},
    }
    made = mapper(fraud=mapping)
    asked, letter = made.on_records([given("orders", value), given("orders", value[:-1] + b'"\xff')], NOW)
    assert isinstance(asked, Emit)
    assert CODEC.decode(Query, asked.value).input == Tensor.of(np.array([12.5], np.float32))
    assert isinstance(letter, DeadLetter)
    emit = only(made.on_records([replace_headers(predicted(answer()))], NOW))
    assert isinstance(emit, Emit)
    assert emit.value == value.replace(b'"', b"")


def replace_headers(record: Record) -> Record:
    """Return a record without headers."""
    return record._replace(headers=())


CLICKS = {"topic": "clicks", "key": "user", "within": "30m", "loss": "0 if clicked else 1", "sent": "at"}


def test_feedback_by_key_and_time_names_no_query() -> None:
    """The joiner finds the last answer of the context; it lies in the partition of the context."""
    clicked = {"user": "ann", "clicked": True, "at": "2023-11-14T22:13:20Z"}
    emit = only(mapper(fraud={**FRAUD, "feedback": [CLICKS]}).on_records([given("clicks", clicked)], NOW))
    assert isinstance(emit, Emit)
    assert emit[:3] == (topics.FEEDBACK, partition_of(b"ann", 4), b"ann")
    assert CODEC.decode(KeyedFeedback, emit.value) == KeyedFeedback(
        "", "fraud", "ann", 1_800_000_000, None, 0.0, 1_700_000_000_000_000, teacher="clicks"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "order_id"}, "either id names the query, or key and within"),
        ({"within": None}, "either id names the query, or key and within"),
        ({"key": None}, "key: is needed for within"),
        ({"within": "30 minutes"}, "is a time such as 90s, 30m"),
        ({"within": "0s"}, "is a time such as 90s, 30m"),
        ({"within": 30}, "is a time such as 90s, 30m"),
    ],
)
def test_feedback_by_key_says_whose_answer_and_how_old(changes: dict[str, Any], message: str) -> None:
    """Half of it is refused before anything runs."""
    with pytest.raises(MappingError, match=message):
        TopicMapping.of({**FRAUD, "feedback": [{**CLICKS, **changes}]})


def test_feedback_by_key_needs_queries_with_keys() -> None:
    """Answers without a context are nobody's last one."""
    unkeyed = {key: value for key, value in FRAUD["from"].items() if key != "key"}
    with pytest.raises(MappingError, match="`from` has no key"):
        TopicMapping.of({"from": unkeyed, "feedback": [CLICKS]})


def test_a_topic_is_read_from_its_beginning_if_that_is_wanted() -> None:
    """By default what was there before is not scored; the runtime asks which topics are meant."""
    whole = mapper(fraud={**FRAUD, "from": {**FRAUD["from"], "begin": "earliest"}}).needs().group
    assert whole.whole == {"/orders"}
    assert whole.topics == frozenset({"/orders", "/chargebacks", topics.PREDICTIONS})
    assert not mapper(fraud=FRAUD).needs().group.whole
    with pytest.raises(MappingError, match=r"from\.begin: is 'first'; there are: earliest, latest"):
        TopicMapping.of({**FRAUD, "from": {**FRAUD["from"], "begin": "first"}})


REVISED = {"topic": "chargebacks", "id": "id", "label": "is_fraud", "replaces": True}


@pytest.mark.parametrize(
    ("value", "label"), [({"id": "o-1", "is_fraud": 1}, 1), ({"id": "o-1", "is_fraud": None}, None), (None, None)]
)
def test_feedback_that_may_be_corrected_is_told_and_taken_back(value: Any, label: int | None) -> None:
    """By a null, or by a tombstone whose key is the id."""
    made = mapper(fraud={"feedback": [REVISED]})
    emit = only(made.on_records([given("chargebacks", value, key=b"o-1")], NOW))
    assert isinstance(emit, Emit)
    assert emit[:3] == (topics.FEEDBACK, partition_of(b"o-1", 4), b"o-1")
    assert CODEC.decode(KeyedFeedback, emit.value) == KeyedFeedback(
        "", "fraud", "o-1", 0, label, None, NOW - 5, revises=True, teacher="chargebacks"
    )


def test_a_tombstone_that_names_no_query_takes_nothing_back() -> None:
    """Its key is another one; or there is none."""
    keyed = mapper(fraud={"feedback": [{**REVISED, "key": "user"}]})
    for made, key in ((keyed, b"o-1"), (mapper(fraud={"feedback": [REVISED]}), None)):
        record = given("chargebacks", None, key=key)
        assert only(made.on_records([record], NOW)) == Skip((record.position,), "tombstone")


def test_corrections_need_the_querys_id() -> None:
    """Of feedback by key the first record counts."""
    with pytest.raises(MappingError, match="replaces: is true or false"):
        TopicMapping.of({**FRAUD, "feedback": [{**CLICKS, "replaces": True}]})
    with pytest.raises(MappingError, match="replaces: is true or false"):
        TopicMapping.of({"feedback": [{**REVISED, "replaces": "yes"}]})


def test_a_path_that_is_not_there_is_told_with_what_is() -> None:
    """At the depth where it ends."""
    made = mapper(fraud=FRAUD)
    told = [{"order": {"user": "ann", "number": 1}, "is_fraud": True}, {"order": "o-1", "is_fraud": True}]
    messages = [each.message for each in made.on_records([given("chargebacks", row) for row in told], NOW)]  # type: ignore[union-attr]
    assert messages[0].startswith("order.id: order has no id; there are: user, number")
    assert messages[1].startswith("order.id: order is no object, but 'o-1'")
