"""Gives the partitions of a group to its members as a plan says; what the plan does not say is spread evenly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from schemas.records import Plan


def spread(
    partitions: Mapping[str, Sequence[int]], members: Mapping[str, str], plan: Plan | None
) -> dict[str, dict[str, list[int]]]:
    """Return the partitions of each member, by member and topic.

    Args:
        partitions: of each topic.
        members: instance names by member; two members of one name share what is planned for it.
        plan: of the pool; None = there is none.

    Returns:
        Every partition once. What is planned for a host that is not there, or is not planned at all, goes where the
        fewest partitions are: until the next plan, nothing is left unread.
    """
    found: dict[str, dict[str, list[int]]] = {member: {} for member in sorted(members)}
    if not found:
        return found
    named: dict[str, str] = {}
    for member in sorted(members, reverse=True):
        named[members[member]] = member
    homes = {
        (topics.model_queries(place.model), number): named[place.host]
        for place in (plan.places if plan is not None else ())
        for number in place.partitions
        if place.host in named
    }
    places = [(topic, number) for topic in sorted(partitions) for number in sorted(partitions[topic])]
    counts = dict.fromkeys(found, 0)
    for place in sorted(places, key=lambda place: place not in homes):  # planned ones first, in order
        member = homes.get(place) or min(counts, key=lambda each: (counts[each], each))
        counts[member] += 1
        found[member].setdefault(place[0], []).append(place[1])
    return {member: {topic: sorted(numbers) for topic, numbers in its.items()} for member, its in found.items()}
