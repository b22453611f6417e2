"""Who may do what on Kafka, as data that follows from the topology: for ACLs in any form.

Every role reads all of its prefix, which is one domain of trust, and writes what the topology has it write, and the
dead letters of what it reads. A group is joined by its own role alone. docs/security.md says what each right allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from streams.topology import Node, Topology

Operation = Literal["Read", "Write", "Describe", "DescribeConfigs", "All"]
ASKER: Final = "asker"
TEACHER: Final = "teacher"
READER: Final = "reader"
OPERATOR: Final = "operator"
PEOPLE: Final = (ASKER, READER, TEACHER, OPERATOR)
_CONSUMERS: Final = "consumers."  # groups of `skysail.consume`
_SENT_AGAIN: Final = (topics.QUERIES, topics.FEEDBACK)  # from the page; also what `mapping` makes of others' records
_READS: Final[tuple[Operation, ...]] = ("Read", "Describe")
_WRITES: Final[tuple[Operation, ...]] = ("Write", "Describe")


@dataclass(frozen=True, slots=True)
class Right:
    """What one principal may do with a topic, a group or the cluster.

    Attributes:
        name: in full, with the prefix; empty for the cluster.
        is_prefix: it stands for everything that begins so.
    """

    resource: Literal["topic", "group", "cluster"]
    name: str
    operations: tuple[Operation, ...]
    is_prefix: bool = False


def rights(
    topology: Topology, prefix: str, reads: Iterable[str] = (), writes: Iterable[str] = (), *, acts: bool = False
) -> Mapping[str, tuple[Right, ...]]:
    """Return the rights of everybody, by principal: the topology's roles, askers, teachers, readers, operators.

    Args:
        topology: of the deployment.
        prefix: of its topics and groups.
        reads: topics of others that the role `mapping` reads, in full.
        writes: topics of others that it writes.
        acts: whether somebody may act on the page: `control` then sends letters again.
    """
    start = f"{prefix}."
    found = {node.role: (*_common(start), *_own(topology, node, start)) for node in topology.nodes}
    outside = [*(Right("topic", name, _READS) for name in sorted(reads))]
    outside += [Right("topic", name, _WRITES) for name in sorted(writes)]
    if outside:
        found["mapping"] += tuple(outside)
    if acts:
        found["control"] += acting(prefix)
    return found | _people(start)


def acting(prefix: str) -> tuple[Right, ...]:
    """Return what `control` needs so that `send again` on the page works: what is sent, and the receipts of it.

    Letters of other topics are for operators: who may write `predictions` or `observations` forges what is learnt.
    """
    receipts = map(topics.dead_letters, (*_SENT_AGAIN, topics.MAPPING))
    return tuple(Right("topic", f"{prefix}.{name}", ("Write",)) for name in (*_SENT_AGAIN, *receipts))


def _common(start: str) -> tuple[Right, ...]:
    """Return what every role may: read its prefix, check how topics are set, see how far groups are."""
    return (
        Right("topic", start, ("Read", "Describe", "DescribeConfigs"), is_prefix=True),
        Right("group", start, ("Describe",), is_prefix=True),
    )


def _own(topology: Topology, node: Node, start: str) -> list[Right]:
    letters = map(topics.dead_letters, (*node.consumes, *node.follows) if node.group else ())
    written = dict.fromkeys((*node.produces, *(name for name in letters if name in topology.topics)))
    found = [Right("topic", start + name, ("Write",)) for name in written]
    return [*found, Right("group", start + node.group, ("Read",))] if node.group else found


def _people(start: str) -> dict[str, tuple[Right, ...]]:
    answers = Right("topic", start + topics.PREDICTIONS, _READS)
    return {
        ASKER: (Right("topic", start + topics.QUERIES, _WRITES), answers),
        READER: (answers, Right("group", start + _CONSUMERS, ("Read",), is_prefix=True)),
        TEACHER: (Right("topic", start + topics.FEEDBACK, _WRITES),),
        OPERATOR: (
            Right("topic", start, ("All",), is_prefix=True),
            Right("group", start, _READS, is_prefix=True),
            Right("cluster", "", ("DescribeConfigs",)),
        ),
    }
