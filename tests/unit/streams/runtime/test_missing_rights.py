"""A right to read that is missing: the sentence with which a role ends says which, and on what."""

from __future__ import annotations

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from streams.runtime.errors import MisconfiguredError
from streams.runtime.kafka.error_codes import fault_of
from streams.runtime.kafka.refusals import refusal, translated


@pytest.mark.parametrize(
    "fault", [GroupAuthorizationFailedError("shop.joiner"), TopicAuthorizationFailedError("shop.feedback")]
)
def test_the_sentence_names_the_group_or_the_topic_and_who_prints_the_rights(fault: KafkaError) -> None:
    """Trying again would not help: somebody has to grant it."""
    said = translated(fault)
    assert isinstance(said, MisconfiguredError)
    assert f"{fault.args[0]}'" in str(said)
    assert "this user has no right Read on it" in str(said)
    assert "`skysail topics acl`" in str(said)


@pytest.mark.parametrize(
    ("code", "word"), [(81, "group.max.size"), (82, "name of its own"), (23, "kafka.prefix"), (35, "Kafka 2.3")]
)
def test_what_aiokafka_has_no_class_for_or_hides_in_a_text_is_said_all_the_same(code: int, word: str) -> None:
    """It wraps an answer that it does not expect as the text of a plain error."""
    for fault in (fault_of(code), KafkaError(repr(fault_of(code))), KafkaError(f"in a task: {fault_of(code)!r}")):
        assert word in str(refusal(fault))


def test_what_passes_is_no_refusal() -> None:
    """A broker's own failure, or one that names nothing."""
    assert refusal(KafkaError(repr(fault_of(-1)))) is None
    assert refusal(KafkaError("no brokers")) is None
