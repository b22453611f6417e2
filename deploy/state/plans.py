"""The compacted topic `plan`: what the control role has planned for the hosts of each pool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.state import catalog
from deploy.state.topics import partition_counts
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Plan

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from schemas.codec import Codec


def read(settings: Settings, codec: Codec) -> list[Plan]:
    """Return the last plan of each pool, by name.

    Raises:
        DeployError: the broker stopped answering.
    """
    if topics.PLAN not in partition_counts(settings):
        return []
    found: dict[bytes, Plan] = {}
    for key, value in catalog.values(settings, topics.PLAN):
        found.pop(key, None)
        if value is None:
            continue
        try:
            found[key] = codec.decode(Plan, value)
        except DecodeError:
            continue
    return [found[key] for key in sorted(found)]
