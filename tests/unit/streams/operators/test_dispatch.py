"""What selection asks of models: one record a model, reply partition and kind of input."""

from __future__ import annotations

import numpy as np
import pytest

from schemas import topics
from schemas.codec import Codec
from schemas.records import Application, Input, Model, ModelQueries, NamedTensors, Prediction, Query, Tensor
from streams.operators.contract import DeadLetter, Effects, Emit, FetchStates, Record
from streams.operators.selection.kernel import Selection, SelectionSettings

CODEC = Codec()
NOW = 1_700_000_000_000_000


def selection(*models: str, codec: Codec = CODEC) -> Selection:
    """Make a kernel with one application that asks all of these models, its state known."""
    kernel = Selection(codec, SelectionSettings(partitions=4))
    kernel.on_partitions(dict.fromkeys(range(4), 0))
    application = Application("digits", models, "exp4", default_output=-1)
    kernel.on_records([Record(topics.APPLICATIONS, 0, 0, NOW, b"digits", CODEC.encode(application))], NOW)
    for name in models:
        model = Model(name, "1", "function", "", "", "label", None, ())
        kernel.on_records([Record(topics.MODELS, 0, 0, NOW, name.encode(), CODEC.encode(model))], NOW)
    first = Record(topics.QUERIES, 0, 0, NOW, None, CODEC.encode(Query("first", "digits", "")))
    (wanted,) = [effect for effect in kernel.on_records([first], NOW) if isinstance(effect, FetchStates)]
    kernel.on_states(dict.fromkeys(wanted.keys), NOW)
    return kernel


def ask(kernel: Selection, *given: Input, partition: int = 0) -> Effects:
    """Send one poll of queries `q<n>`."""
    queries = [Query(f"q{number}", "digits", row) for number, row in enumerate(given)]
    return kernel.on_records([Record(topics.QUERIES, partition, 0, NOW, None, CODEC.encode(q)) for q in queries], NOW)


def asked(effects: Effects) -> list[tuple[str, ModelQueries]]:
    """Return what was asked of which topic."""
    emits = [e for e in effects if isinstance(e, Emit) and e.topic != topics.PREDICTIONS]
    return [(emit.topic, CODEC.decode(ModelQueries, emit.value)) for emit in emits]


def row(*numbers: float) -> Tensor:
    """Make an input row."""
    return Tensor.of(np.array(numbers, dtype=np.float32))


def test_a_poll_is_one_record_a_model() -> None:
    """Rows of one dtype and shape are stacked in order of arrival, with each row's own due time."""
    found = asked(ask(selection("a", "b"), row(1, 2), row(3, 4)))
    assert [topic for topic, _ in found] == [topics.model_queries("a"), topics.model_queries("b")]
    (_, first), (_, second) = found
    assert first == second
    assert (first.query_ids, first.reply_partition, len(first.due_us)) == (("q0", "q1"), 0, 2)
    assert isinstance(first.inputs, Tensor)
    assert first.inputs.numpy().tolist() == [[1, 2], [3, 4]]


def test_rows_of_named_tensors_are_stacked_by_form() -> None:
    """Names, types and shapes; a row that is a column has a form of its own, so it shifts no other row."""
    good = [NamedTensors.named({"a": np.full(2, at, np.float32), "b": np.array(at)}) for at in (1, 2)]
    other = NamedTensors.named({"a": np.zeros(2, np.float32), "c": np.array(3)})
    rows = NamedTensors(good[0].dtype, (2,), good[0].data + good[1].data)
    found = [queries for _, queries in asked(ask(selection("m"), good[0], other, good[1], rows))]
    assert [queries.query_ids for queries in found] == [("q0", "q2"), ("q1",), ("q3",)]
    assert isinstance(found[0].inputs, NamedTensors)
    assert found[0].inputs.lists() == {"a": [[1, 1], [2, 2]], "b": [1, 2]}
    assert isinstance(found[2].inputs, NamedTensors)
    assert found[2].inputs.shape == (1, 2)


def places(kernel: Selection, polls: int) -> dict[str, set[int]]:
    """Return by model the partitions that are asked in so many polls of one query."""
    found: dict[str, set[int]] = {}
    for number in range(polls):
        query = CODEC.encode(
            Query(f"p{kernel.statistics()['queries_total{application=digits}']}{number}", "digits", row(1))
        )
        for effect in kernel.on_records([Record(topics.QUERIES, 0, 0, NOW, None, query)], NOW):
            if isinstance(effect, Emit) and effect.topic != topics.PREDICTIONS:
                found.setdefault(topics.asked_model(effect.topic), set()).add(effect.partition)
    return found


def test_each_model_is_asked_in_all_of_its_partitions_and_in_no_other() -> None:
    """As many as its record says; a record that says more counts from the next poll on."""
    kernel = selection("a", "b")
    wide = Model("b", "1", "function", "", "", "label", None, (), partitions=16)
    assert places(kernel, 32) == {"a": {*range(4)}, "b": {*range(4)}}
    kernel.on_records([Record(topics.MODELS, 0, 0, NOW, b"b", CODEC.encode(wide))], NOW)
    assert places(kernel, 32) == {"a": {*range(4)}, "b": {*range(16)}}


@pytest.mark.parametrize("partitions", [0, -4])
def test_a_model_record_without_partitions_is_refused(partitions: int) -> None:
    """The record before it stays in force."""
    kernel = selection("a")
    none = Model("a", "1", "function", "", "", "label", None, (), partitions=partitions)
    (dead,) = kernel.on_records([Record(topics.MODELS, 0, 0, NOW, b"a", CODEC.encode(none))], NOW)
    assert isinstance(dead, DeadLetter)
    assert places(kernel, 8) == {"a": {*range(4)}}


def test_inputs_of_different_kinds_do_not_share_a_record() -> None:
    """A row of another shape or dtype, a text and a byte string are all asked, in their own columns."""
    found = asked(ask(selection("a"), row(1), row(1, 2), "text", b"bytes", row(2)))
    assert [queries.query_ids for _, queries in found] == [("q0", "q4"), ("q1",), ("q2", "q3")]
    assert found[2][1].inputs == ("text", b"bytes")


def test_what_does_not_fit_one_record_is_split() -> None:
    """No record grows beyond what a record may hold; order stays."""
    found = asked(ask(selection("a"), *[row(*range(10_000))] * 30))
    assert len(found) > 1
    assert [query_id for _, queries in found for query_id in queries.query_ids] == [f"q{n}" for n in range(30)]


def test_texts_of_very_different_length_are_halved_until_they_fit() -> None:
    """The first row says little about the others."""
    found = asked(ask(selection("a"), "short", *["x" * 200_000] * 5))
    assert [query_id for _, queries in found for query_id in queries.query_ids] == [f"q{n}" for n in range(6)]


def test_a_row_that_fits_no_record_is_answered_and_its_neighbours_are_asked() -> None:
    """A query filled to the last byte: a model's record says a little more."""
    codec = Codec(max_bytes=1_000)
    room = 1_000 - len(CODEC.encode(Query("q0", "digits", "x" * 900))) + 900
    effects = ask(selection("a", codec=codec), "x" * room, "fits")
    (answer,) = [CODEC.decode(Prediction, e.value) for e in effects if isinstance(e, Emit) and e.topic == "predictions"]
    assert (answer.query_id, answer.answer, answer.reason) == ("q0", -1, "invalid_input")
    assert [queries.query_ids for _, queries in asked(effects)] == [("q1",)]


def test_an_input_of_eight_dimensions_can_be_asked() -> None:
    """The rows of a batch are one dimension more, and there is room for it."""
    given = Tensor.of(np.zeros((1,) * 8, dtype=np.float32))
    ((_, queries),) = asked(ask(selection("a"), given))
    assert isinstance(queries.inputs, Tensor)
    assert queries.inputs.shape == (1,) * 9


def test_priorities_travel_only_where_there_are_any() -> None:
    """One a row if some query of the poll has one; a poll without costs an empty column."""
    kernel = selection("a")
    queries = [Query(f"q{number}", "digits", row(1), priority=number % 2 * 4) for number in range(3)]
    records = [Record(topics.QUERIES, 0, 0, NOW, None, CODEC.encode(query)) for query in queries]
    [(_, found)] = asked(kernel.on_records(records, NOW))
    assert found.priorities == (0, 4, 0)
    plain = Record(topics.QUERIES, 0, 0, NOW, None, CODEC.encode(Query("q9", "digits", row(1))))
    [(_, found)] = asked(kernel.on_records([plain], NOW))
    assert found.priorities == ()


def test_queries_of_one_poll_are_each_decided_by_their_own_application() -> None:
    """However they are mixed; those that ask the same model share its record, in their order."""
    kernel = selection("a", "b")
    for name, models in (("one", ("a",)), ("other", ("b",))):
        application = Application(name, models, "single", default_output=-1)
        kernel.on_records([Record(topics.APPLICATIONS, 0, 0, NOW, name.encode(), CODEC.encode(application))], NOW)
    names = ["one", "digits", "other", "one", "digits", "nobody", "other"]
    queries = [CODEC.encode(Query(f"q{number}", name, row(number))) for number, name in enumerate(names)]
    effects = kernel.on_records([Record(topics.QUERIES, 0, 0, NOW, None, query) for query in queries], NOW)
    (fetch,) = [effect for effect in effects if isinstance(effect, FetchStates)]
    assert {key.name for key in fetch.keys} == {"one", "other"}
    found = asked(effects) + asked(kernel.on_states(dict.fromkeys(fetch.keys), NOW))
    assert {(topic, queries.query_ids) for topic, queries in found} == {
        (topics.model_queries("a"), ("q1", "q4")),
        (topics.model_queries("b"), ("q1", "q4")),
        (topics.model_queries("a"), ("q0", "q3")),
        (topics.model_queries("b"), ("q2", "q6")),
    }
    again = [CODEC.encode(Query(f"r{number}", name, row(number))) for number, name in enumerate(names)]
    found = asked(kernel.on_records([Record(topics.QUERIES, 0, 0, NOW, None, query) for query in again], NOW))
    assert {(topic, queries.query_ids) for topic, queries in found} >= {
        (topics.model_queries("a"), ("r0", "r3")),
        (topics.model_queries("b"), ("r2", "r6")),
    }
    assert kernel.statistics()["queries_total{application=one}"] == 4
