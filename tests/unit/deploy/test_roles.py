"""What roles are built with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from deploy.config.settings import Kafka, RecordSection, Settings
from deploy.system import roles
from deploy.system.roles import BUILDERS, shared
from schemas import topics
from schemas.codec import Codec
from streams.replay.kernels import made_again
from streams.tape.taped import Taped

if TYPE_CHECKING:
    from streams.runtime.kafka.consumer import ConsumerSettings
    from streams.runtime.role.definition import Role


@pytest.mark.parametrize("role", ["joiner", "learner"])
def test_beside_selection_a_role_works_in_short_slices(role: str) -> None:
    """In a process of their own joiner and learner make no query wait, and larger slices cost less."""
    beside, alone = (shared(Settings(), Codec(), "1", first=first).slice_us for first in ("selection", role))
    assert (beside, alone) == (500, 0)


@pytest.mark.parametrize(
    ("role", "linger_ms", "idle_s", "is_ahead"),
    [
        ("joiner", 100, 0.05, False),
        ("learner", 100, 0.0125, False),
        ("joiner", 0, 0.0, True),
        ("learner", 0, 0.0, True),
    ],
)
def test_a_role_that_pauses_asks_for_records_when_the_pause_is_over(
    role: str, linger_ms: int, idle_s: float, is_ahead: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it had asked for before would be as old as the pause is long; the joiner's pause gathers for the learner."""
    built: list[tuple[Role, ConsumerSettings]] = []

    def kafka_loop(*arguments: Any, **_: Any) -> None:
        built.append((arguments[0], arguments[7]))

    monkeypatch.setattr(roles, "kafka_loop", kafka_loop)
    BUILDERS[role](shared(Settings(kafka=Kafka(linger_ms=linger_ms)), Codec(), "1", first=role))
    assert [(its.linger_s * its.idle_share, settings.is_ahead) for its, settings in built] == [(idle_s, is_ahead)]


@pytest.mark.parametrize("role", ["selection", "joiner", "learner"])
@pytest.mark.parametrize(
    ("record", "is_taped"),
    [({}, False), ({"calls": True}, True), ({"folder": "trace"}, True), ({"folder": "trace", "calls": False}, False)],
)
def test_a_role_writes_down_its_calls_where_somebody_records(
    role: str, record: dict[str, Any], is_taped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for what it writes, and another kernel can be made by what it says of its own."""
    built: list[tuple[Role, Any]] = []
    monkeypatch.setattr(roles, "kafka_loop", lambda *arguments, **_: built.append(arguments[:2]))
    common = shared(Settings(record=RecordSection.model_validate(record)), Codec(), "1", first=role)
    {"selection": roles.selection, **BUILDERS}[role](common)

    ((its, kernel),) = built
    assert isinstance(kernel, Taped) is is_taped
    assert topics.CALLS in its.patient
    if is_taped:
        made = made_again(json.loads(json.dumps(kernel.about)), Codec())
        assert made is not None
        assert not made.takes_batches
