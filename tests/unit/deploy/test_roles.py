"""What roles are built with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from deploy import roles
from deploy.config.settings import Kafka, Settings
from deploy.roles import BUILDERS, shared
from schemas.codec import Codec

if TYPE_CHECKING:
    from streams.runtime.kafka.consumer import ConsumerSettings


@pytest.mark.parametrize("role", ["joiner", "learner"])
def test_beside_selection_a_role_works_in_short_slices(role: str) -> None:
    """In a process of their own joiner and learner make no query wait, and larger slices cost less."""
    beside, alone = (shared(Settings(), Codec(), "1", first=first).slice_us for first in ("selection", role))
    assert (beside, alone) == (500, 0)


@pytest.mark.parametrize("role", ["joiner", "learner"])
@pytest.mark.parametrize(("linger_ms", "is_ahead"), [(100, False), (0, True)])
def test_a_role_that_pauses_asks_for_records_when_the_pause_is_over(
    role: str, linger_ms: int, is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had asked for before would be as old as the pause is long."""
    built: list[ConsumerSettings] = []

    def kafka_loop(*arguments: Any, **_: Any) -> None:
        built.append(arguments[7])

    monkeypatch.setattr(roles, "kafka_loop", kafka_loop)
    BUILDERS[role](shared(Settings(kafka=Kafka(linger_ms=linger_ms)), Codec(), "1", first=role))
    assert [settings.is_ahead for settings in built] == [is_ahead]
