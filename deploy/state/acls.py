"""Rights in the forms that others take: lines for `kafka-acls`, plain data, lines for `redis-cli`."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final

from streams.rights import OPERATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from deploy.config.settings import ClientQuota
    from streams.rights import Right

_TOOL: Final = "kafka-acls --bootstrap-server {} --command-config admin.properties --add"
_CONFIGS: Final = "kafka-configs --bootstrap-server {} --command-config admin.properties --alter"
# Commands of Redis by what they are for: single ones. Its categories hold SCAN, RANDOMKEY and DBSIZE too, which no key
# pattern binds. `tests/integration/test_redis_users.py` holds each user to these among all that a server knows.
_CONNECTS: Final = ("+hello", "+auth", "+select", "+ping", "+client|setname")
_READS: Final = ("+hmget", "+mget")
_RUNS: Final = ("+evalsha", "+script|load")
# The last five are what its scripts do: also with an older version's offset, and when they set states aside.
_LEARNS: Final = ("+hmget", *_RUNS, "+hget", "+hset", "+get", "+set", "+exists", "+rename")
# Prunes (the first two), removes what is damaged, and sees whether Redis forgets.
_REPAIRS: Final = ("+hscan", "+hdel", "+del", "+info|server", "+info|memory")


def commands(rights: Mapping[str, Iterable[Right]], prefix: str, bootstrap: str) -> Iterator[str]:
    """Yield a line of a shell for each right; a user is called as the deployment's prefix and the role."""
    tool = _TOOL.format(shlex.quote(bootstrap))
    for who, its in rights.items():
        yield f"# {who}"
        for right in its:
            operations = " ".join(f"--operation {operation}" for operation in right.operations)
            place = "--cluster" if right.resource == "cluster" else f"--{right.resource} {shlex.quote(right.name)}"
            pattern = " --resource-pattern-type prefixed" if right.is_prefix else ""
            yield f"{tool} --allow-principal {shlex.quote(f'User:{prefix}.{who}')} {operations} {place}{pattern}"


def data(rights: Mapping[str, Iterable[Right]], prefix: str) -> list[dict[str, Any]]:
    """Return an entry for each right and operation, with the words of Kafka's own API."""
    return [
        {
            "principal": f"User:{prefix}.{who}",
            "resource_type": right.resource.upper(),
            "resource_name": right.name or "kafka-cluster",
            "pattern_type": "PREFIXED" if right.is_prefix else "LITERAL",
            "operation": operation,
            "permission": "ALLOW",
            "host": "*",
        }
        for who, its in rights.items()
        for right in its
        for operation in right.operations
    ]


def quotas(quotas: Mapping[str, ClientQuota]) -> dict[str, dict[str, int]]:
    """Return quotas by user, with Kafka's names and bytes a second."""
    named = {
        who: {"producer_byte_rate": quota.write_kib, "consumer_byte_rate": quota.read_kib}
        for who, quota in quotas.items()
    }
    return {
        who: {name: max(1, round(kib * 1024)) for name, kib in its.items() if kib is not None}
        for who, its in named.items()
    }


def quota_commands(given: Mapping[str, ClientQuota], prefix: str, bootstrap: str) -> Iterator[str]:
    """Yield a line of a shell for the quotas of each user."""
    tool = _CONFIGS.format(shlex.quote(bootstrap))
    for who, its in quotas(given).items():
        rates = ",".join(f"{name}={rate}" for name, rate in its.items())
        if rates:
            user = shlex.quote(f"{prefix}.{who}")
            yield f"{tool} --entity-type users --entity-name {user} --add-config {rates}"


def redis_users(prefix: str) -> dict[str, tuple[str, ...]]:
    """Return the rules of `ACL SETUSER` by user: only selection, the learner and operators need Redis at all.

    Selection reads states and features. The learner writes states by scripts, each over one partition's keys. An
    operator does what both do, and repairs. None reaches the keys of another prefix, or learns their names.
    """
    states, features = f"~{{{prefix}:*}}:*", f"~{prefix}:features:*"
    start = ("reset", "on", "-@all", *_CONNECTS)
    return {
        "selection": (*start, states, features, *_READS),
        "learner": (*start, states, *_LEARNS),
        OPERATOR: (*start, states, features, *dict.fromkeys((*_READS, *_LEARNS, *_REPAIRS))),
    }


def redis_lines(prefix: str) -> Iterator[str]:
    """Yield a line for `redis-cli` for each user; the password is a variable of the shell, and stands nowhere."""
    for who, rules in redis_users(prefix).items():
        variable = f"${{{who.upper()}_PASSWORD:?}}"  # an empty one would be a password: the shell stops
        words = " ".join(shlex.quote(rule) for rule in rules)
        yield f'redis-cli ACL SETUSER {shlex.quote(f"{prefix}.{who}")} {words} ">{variable}"'
