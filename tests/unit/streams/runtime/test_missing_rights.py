"""A right to read that is missing: the sentence with which a role ends says which, and on what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from aiokafka.errors import GroupAuthorizationFailedError, TopicAuthorizationFailedError

from streams.runtime.errors import MisconfiguredError
from streams.runtime.kafka import consumer

if TYPE_CHECKING:
    from aiokafka.errors import KafkaError


@pytest.mark.parametrize(
    "fault", [GroupAuthorizationFailedError("shop.joiner"), TopicAuthorizationFailedError("shop.feedback")]
)
def test_the_sentence_names_the_group_or_the_topic_and_who_prints_the_rights(fault: KafkaError) -> None:
    """Trying again would not help: somebody has to grant it."""
    said = consumer._translated(fault)
    assert isinstance(said, MisconfiguredError)
    assert f"{fault.args[0]}'" in str(said)
    assert "no right Read on it: `skysail topics acl` prints who needs which" in str(said)
