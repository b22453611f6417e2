"""The security page names every topic with who writes and reads it: a right that is missing there stops a role."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from schemas import topics
from streams.topology import Node, build

TEXT = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8")
MODEL = "forest"
TOPOLOGY = build([MODEL], hosts={"small": ()})
NODES = [node for node in TOPOLOGY.nodes if node.role != "control"]


def cells(topic: str) -> tuple[str, str]:
    """Return who writes and who reads a topic, as the table says."""
    shown = topic.replace(MODEL, "<model>")
    for line in TEXT.splitlines():
        if line.startswith("| `") and f"`{shown}`" in line.split("|")[1]:
            return line.split("|")[2], line.split("|")[3]
    pytest.fail(f"{topic} is not in the table")


def word(node: Node) -> str:
    """Return what a role is called there."""
    return next((kind for kind in ("worker", "host") if node.role.startswith(f"{kind}.")), node.role)


@pytest.mark.parametrize("topic", [name for name in TOPOLOGY.topics if not name.endswith(".dlq")])
def test_each_topic_stands_there_with_the_roles_that_use_it(topic: str) -> None:
    """As the topology has it."""
    writers, readers = cells(topic)
    for node in NODES:
        if topic in node.produces and topic != topics.REPORTS:
            assert word(node) in writers, node.role
        if topic in (*node.consumes, *node.follows, *node.samples):
            assert word(node) in readers, node.role


def test_the_acls_let_roles_see_how_their_topics_are_set() -> None:
    """Without that a role starts on topics that are set dangerously, and only warns."""
    commands = re.findall(r"^acl .*$", TEXT.replace("\\\n", " "), re.MULTILINE)
    (rights,) = [line for line in commands if "User:role" in line and re.search(r"--topic shop\. .*prefixed", line)]
    assert set(re.findall(r"--operation (\w+)", rights)) == {"Read", "Describe", "DescribeConfigs"}


def test_the_acls_let_roles_write_what_they_write() -> None:
    """Dead letters of whatever they read, too."""
    allowed = {
        f"{name}{end}"
        for names, end in re.findall(r'for topic in ([^;]+); do\n.*--topic "shop\.\$topic([.a-z]*)"', TEXT)
        for name in names.replace("\\", " ").split()
    }
    wanted = {name for node in TOPOLOGY.nodes for name in node.produces}
    dead = {topics.dead_letters(name) for node in NODES for name in (*node.consumes, *node.follows, *node.samples)}
    wanted |= dead & TOPOLOGY.topics.keys()
    assert allowed == wanted
