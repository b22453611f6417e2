"""How far the groups of a deployment are behind, as the brokers say."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]  # not in its __all__

from streams.runtime.kafka.admin import committed, member

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer

_ANSWER_S: Final = 10.0
_LOOK_S: Final = 0.25


class Groups:
    """The groups of the roles, and what each reads.

    Args:
        bootstrap: of the brokers.
        prefix: of the deployment.
        reads: topics by group, both without the prefix.
    """

    def __init__(self, bootstrap: str, prefix: str, reads: Mapping[str, tuple[str, ...]]) -> None:
        self._bootstrap = bootstrap
        self._admin = self._connected()
        self._prefix = prefix
        self._reads = reads
        self._members: dict[str, Consumer] = {}  # by group
        names = {f"{prefix}.{topic}" for each in reads.values() for topic in each}
        listed = self._admin.list_topics(timeout=_ANSWER_S).topics
        self._places = {name: [TopicPartition(name, number) for number in listed[name].partitions] for name in names}

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the next offset of every partition that is read."""
        places = [place for each in self._places.values() for place in each]
        asked = {place: OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]
        found = self._admin.list_offsets(asked, request_timeout=_ANSWER_S)
        return {(place.topic, place.partition): future.result().offset for place, future in found.items()}

    def behind(self, ends: Mapping[tuple[str, int], int]) -> dict[str, int]:
        """Return how many records each group has not committed of those before these offsets, where there are any."""
        found = {}
        for group, read in self._reads.items():
            places = [place for topic in read for place in self._places[f"{self._prefix}.{topic}"]]
            told = committed(self._member(group), places)
            for place in places:
                at = place.topic, place.partition
                if (left := ends[at] - max(0, told[at])) > 0:
                    found[f"{group} at {place.topic.removeprefix(self._prefix + '.')}-{place.partition}"] = left
        return found

    def caught_up(self, patience_s: float, without: str = "") -> dict[str, int]:
        """Wait until all groups have committed what there was at first; returns what is left after the patience.

        Args:
            patience_s: how long to wait.
            without: what begins so does not count.
        """
        end_s, ends, left = time.monotonic() + patience_s, None, dict[str, int]()
        while time.monotonic() < end_s:
            try:
                ends = ends or self.ends()
                left = self.behind(ends)
            except KafkaException as error:
                left = {f"not known ({error.args[0].str()})": 1}
                # It asks by the leaders that it knows, and learns no others; and a connection may have fallen silent.
                self._admin, self._members = self._connected(), {}
            left = {place: count for place, count in left.items() if not without or not place.startswith(without)}
            if not left:
                return {}
            time.sleep(_LOOK_S)
        return left

    def _connected(self) -> AdminClient:
        return AdminClient({**self._options()})

    def _member(self, group: str) -> Consumer:
        if group not in self._members:
            self._members[group] = member(self._options(), f"{self._prefix}.{group}")
        return self._members[group]

    def _options(self) -> dict[str, str]:
        return {"bootstrap.servers": self._bootstrap, "log_level": "0"}
