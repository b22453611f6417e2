"""Waits until what is in the log has been learnt: the learner commits what stands in the stored states."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, Final

from confluent_kafka import Consumer, TopicPartition

from deploy.connect.clients import TIMEOUT_S, librdkafka
from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from deploy.config.settings import Settings

# A learner that died is back within ten seconds, and its group misses it for ten more.
PATIENCE_S: Final = 30.0
_POLL_S: Final = 0.2  # it commits twice a second


def await_learnt(
    settings: Settings, partitions: int, tell: Callable[[int], None], patience_s: float = PATIENCE_S
) -> int:
    """Wait until the learner has learnt what `observations` has now.

    Args:
        settings: of the deployment.
        partitions: of the topic.
        tell: is called with how many records are still ahead of it.
        patience_s: how long it may get no further.

    Returns:
        How many records are left; some, if it does not get further.
    """
    group = {"group.id": f"{settings.prefix}.learner", "group.protocol": "classic", "enable.auto.commit": False}
    name = f"{settings.prefix}.{topics.OBSERVATIONS}"
    with closing(Consumer({**librdkafka(settings), **group})) as consumer:
        places = [TopicPartition(name, number) for number in range(partitions)]
        ends = [consumer.get_watermark_offsets(place, timeout=TIMEOUT_S) for place in places]
        left, since_s = _left(consumer, places, ends), time.monotonic()
        while left and time.monotonic() - since_s < patience_s:
            tell(left)
            time.sleep(_POLL_S)
            before, left = left, _left(consumer, places, ends)
            since_s = time.monotonic() if left < before else since_s
    return left


def _left(consumer: Consumer, places: list[TopicPartition], ends: Sequence[tuple[int, int]]) -> int:
    """Return how many records lie between what is committed, or the oldest one, and the ends."""
    known = consumer.committed(places, timeout=TIMEOUT_S)
    return sum(max(0, high - max(low, place.offset)) for place, (low, high) in zip(known, ends, strict=True))
