"""Rights follow from the topology, and are those that docs/security.md gives by hand."""

from __future__ import annotations

import re
from pathlib import Path

from streams.rights import Right, rights
from streams.topology import build

PAGE = (Path(__file__).parents[3] / "docs" / "security.md").read_text(encoding="utf-8").replace("\\\n", " ")
FOUND = rights(build(["forest"], hosts={"small": []}), "shop", {"orders", "chargebacks"}, {"orders.scored"})
PEOPLE = ("asker", "reader", "teacher", "operator")
Granted = set[tuple[str, str, bool, str]]  # resource, name, whether it is the beginning of names, operation


def said(user: str) -> Granted:
    """Return what the page's shell lines give a user; loops are written out."""
    found: Granted = set()
    topics: list[str] = []
    for line in PAGE.partition("```sh")[2].partition("```")[0].splitlines():
        if line.startswith("for topic in"):
            topics = line.removeprefix("for topic in").partition(";")[0].split()
        if f"User:{user} " not in line:
            continue
        prefixed = "--resource-pattern-type prefixed" in line
        names = [(kind, name.strip('"')) for kind, name in re.findall(r"--(topic|group) (\S+)", line)]
        names += [("cluster", "")] if "--cluster" in line else []
        for kind, name in names:
            each = [name.replace("$topic", topic) for topic in topics] if "$topic" in name else [name]
            operations = re.findall(r"--operation (\w+)", line)
            found |= {(kind, one, prefixed, operation) for one in each for operation in operations}
    return found


def given(*principals: str) -> Granted:
    """Return what the rights of some together are."""
    return {
        (right.resource, right.name, right.is_prefix, operation)
        for who in principals
        for right in FOUND[who]
        for operation in right.operations
    }


def test_people_have_what_the_page_gives_them() -> None:
    """Askers, readers, teachers, operators: not one right more or less."""
    for who in PEOPLE:
        assert given(who) == said(who), who


def test_all_roles_together_write_what_the_page_lets_the_role_write() -> None:
    """The page has one user for all roles; here each has its own, and together they are that user."""
    roles = [who for who in FOUND if who not in PEOPLE]
    its, of_the_page = given(*roles), said("role")
    assert {right for right in its if right[3] == "Write"} == {right for right in of_the_page if right[3] == "Write"}
    assert {right for right in its if right[0] == "topic"} <= of_the_page


def test_a_role_writes_nothing_that_is_not_its_own() -> None:
    """Whoever breaks into a worker changes no application, teaches nothing, and forges no final answer."""
    written = {
        who: {name for _, name, _, operation in given(who) if operation in {"Write", "All"}}
        for who in FOUND
        if who not in PEOPLE
    }
    assert written["worker.forest"] == {
        "shop.model-predictions", "shop.shadows", "shop.reports", "shop.models.forest.queries.dlq", "shop.models.dlq",
    }  # fmt: skip
    assert [who for who, its in written.items() if "shop.models" in its] == ["control"]
    assert [who for who, its in written.items() if "shop.predictions" in its] == ["selection"]
    assert sorted(who for who, its in written.items() if "shop.feedback" in its) == ["gateway", "joiner", "mapping"]
    assert [who for who, its in written.items() if "orders.scored" in its] == ["mapping"]


def test_control_sends_letters_again_where_somebody_may_act_on_the_page() -> None:
    """What the page's lines for that give, and nothing besides; nobody else gets more."""
    (names,) = re.findall(r"# the control role, where somebody may act [^\n]*\nfor topic in ([^;]+);", PAGE)
    acting = rights(build(["forest"]), "shop", acts=True)
    usual = rights(build(["forest"]), "shop")
    more = {right for right in acting["control"] if right not in usual["control"]}
    assert more == {Right("topic", f"shop.{name}", ("Write",)) for name in names.split()}
    assert {who: its for who, its in acting.items() if who != "control"} == {
        who: its for who, its in usual.items() if who != "control"
    }


def test_a_group_is_joined_by_its_own_role_alone() -> None:
    """A stranger in the group of a role would take its partitions, and answer nothing."""
    joins = {who: [right for right in its if right.resource == "group" and "Read" in right.operations]
             for who, its in FOUND.items()}  # fmt: skip
    assert joins["worker.forest"] == [Right("group", "shop.worker.forest", ("Read",))]
    assert joins["gateway"] == joins["record"] == joins["asker"] == []
    own = [right.name for who, its in joins.items() for right in its if who != "operator"]
    assert len(own) == len(set(own))
