"""Rights as other tools take them: each line of the shell says one right, and together they say all."""

from __future__ import annotations

import shlex

import click
import pytest

from deploy.config.settings import ClientQuota
from deploy.state.acls import commands, data, quota_commands, redis_lines, redis_users
from streams.rights import rights
from streams.topology import build

FOUND = rights(build(["forest"]), "shop", {"orders"}, {"orders.scored"})


@click.command()
@click.option("--bootstrap-server")
@click.option("--command-config")
@click.option("--add", is_flag=True)
@click.option("--allow-principal")
@click.option("--operation", multiple=True)
@click.option("--topic")
@click.option("--group")
@click.option("--cluster", is_flag=True)
@click.option("--resource-pattern-type", default="literal")
def kafka_acls(**_: object) -> None:
    """Stand for Kafka's own tool: these options of it are used."""


def said(line: str) -> set[tuple[str, str, str, str, str]]:
    """Return the rights that a line gives, as `data` has them."""
    program, *words = shlex.split(line)
    assert program == "kafka-acls"
    given = kafka_acls.make_context(program, words).params
    kind, name = next((each, given[each]) for each in ("topic", "group", "cluster") if given[each])
    name = "kafka-cluster" if name is True else name
    return {
        (given["allow_principal"], kind.upper(), name, given["resource_pattern_type"].upper(), operation)
        for operation in given["operation"]
    }


def test_lines_and_data_say_the_same() -> None:
    """Read back, all lines together are the data."""
    lines = [line for line in commands(FOUND, "shop", "broker:9092") if not line.startswith("#")]
    keys = ("principal", "resource_type", "resource_name", "pattern_type", "operation")
    assert set().union(*map(said, lines)) == {tuple(each[key] for key in keys) for each in data(FOUND, "shop")}
    assert all("--bootstrap-server broker:9092" in line for line in lines)


def test_no_value_of_a_line_can_be_two_words() -> None:
    """A prefix is a name, but lines are typed into a shell."""
    (line,) = [line for line in commands(FOUND, "a b; rm", "host") if "User:a b; rm.teacher" in shlex.split(line)]
    assert shlex.split(line).count("--topic") == 1


def test_quotas_are_lines_for_kafka_configs() -> None:
    """In bytes a second; who has none has no line."""
    given = {"asker": ClientQuota(write_kib=512, read_kib=0.5), "web": ClientQuota(write_kib=64), "free": ClientQuota()}
    first, second = quota_commands(given, "shop", "broker:9092")
    assert shlex.split(first)[-1] == "producer_byte_rate=524288,consumer_byte_rate=512"
    assert shlex.split(second)[-5:-2] == ["users", "--entity-name", "shop.web"]
    assert shlex.split(second)[0] == "kafka-configs"


@pytest.mark.parametrize("who", redis_users("shop"))
def test_a_user_of_redis_reaches_its_own_prefix_alone(who: str) -> None:
    """Passwords stand in no line; keys are those of the prefix."""
    keys = [rule for rule in redis_users("shop")[who] if rule.startswith("~")]
    assert keys
    assert all(key in {"~{shop:*}:*", "~shop:features:*"} for key in keys)
    (line,) = [line for line in redis_lines("shop") if f"shop.{who}" in line]
    assert line.endswith(f'">${{{who.upper()}_PASSWORD:?}}"')


@pytest.mark.parametrize("who", redis_users("shop"))
def test_a_user_of_redis_is_granted_single_commands(who: str) -> None:
    """A category holds what no pattern of keys binds, and what later versions of Redis put into it."""
    granted = [rule for rule in redis_users("shop")[who] if rule.startswith(("+", "-", "allcommands"))]
    assert [rule for rule in granted if "@" in rule] == ["-@all"]
    assert not {"+client", "+script", "+info", "+eval", "+scan"} & {*granted}
