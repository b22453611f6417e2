"""Users of Redis by role: each does what its role does, and is refused all else that a real server knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError, ResponseError
from redis.utils import str_if_bytes

from deploy.config.settings import Settings
from deploy.connect.redis_server import check_redis, connect_redis, redis_eviction
from deploy.errors import MissingError
from deploy.local.redis import RedisServer
from deploy.state.acls import redis_users
from schemas.codec import Codec
from schemas.records import PolicyState
from streams.operators.contract import StateKey, WriteStates
from streams.runtime.errors import StoreUnavailableError
from streams.runtime.stores.pruning import Pruned, prune
from streams.runtime.stores.redis import RedisFeatures, RedisSettings, RedisStore, feature_name

if TYPE_CHECKING:
    from collections.abc import Iterator

STATE = PolicyState("exp3(eta=0.05)", ("a", "b"), 7, (0.5, 0.5))
KEY = StateKey(0, "digits/ann")
OTHER = "other"  # another tenant's prefix
WHO = ("selection", "learner", "operator")
# Every connection may send these: to log in, and to end.
FREE = {"auth", "hello", "quit", "reset"}
# Those of Redis 6.2 that have commands of their own; later versions list these themselves.
GROUPS = (
    "ACL", "CLIENT", "COMMAND", "CONFIG", "DEBUG", "LATENCY", "MEMORY", "MODULE", "OBJECT", "PUBSUB", "SCRIPT",
    "SLOWLOG", "XGROUP", "XINFO",
)  # fmt: skip
MOST_ARGUMENTS = 12
# Redis 7 knows no group alone, and has DEBUG and MODULE off.
REFUSED = "permissions to run the|unknown subcommand|(DEBUG|MODULE) command not allowed"
REFUSED_IN_SCRIPT = "can't run this|can't access|ACL failure in script|not allowed from script|Unknown Redis command"


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    """Start a Redis that has all its commands, as a customer's may."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deploy.local.redis.FORBIDDEN", ())
        try:
            found = RedisServer().__enter__()
        except MissingError as error:
            pytest.skip(str(error))
    yield found
    found.stop()


@pytest.fixture
def admin(server: RedisServer) -> Iterator[Redis]:
    """Connect as who may everything; nobody was refused anything so far."""
    with Redis.from_url(server.url) as client:
        send(client, "ACL", "LOG", "RESET")
        yield client


@pytest.fixture
def users(server: RedisServer, admin: Redis, prefix: str) -> dict[str, str]:
    """Make the users, and what another tenant has; returns the address of the server for each."""
    place = urlsplit(server.url)
    for who, rules in redis_users(prefix).items():
        send(admin, "ACL", "SETUSER", f"{prefix}.{who}", *rules, f">{who}-password")
    admin.set(feature_name(prefix, "source/7"), b"features")
    admin.hset(f"{{{OTHER}:0}}:states", "digits", b"theirs")
    return {who: f"redis://{prefix}.{who}:{who}-password@{place.hostname}:{place.port}/0" for who in WHO}


def send(client: Redis, *words: str) -> Any:
    """Send words as they are; returns the answer."""
    return client.execute_command(*words)  # type: ignore[no-untyped-call]


def store(address: str, prefix: str) -> RedisStore:
    """Connect as a user."""
    return RedisStore(RedisSettings(address, prefix, timeout_s=10.0), Codec())


def learnt(expected: int | None, offset: int) -> WriteStates:
    """Return what a learner writes."""
    return WriteStates(0, expected, offset, {KEY.name: STATE}, ())


def everything(admin: Redis) -> list[tuple[str, ...]]:
    """Return all commands that a server knows, those within others as two words."""
    try:
        return [tuple(str_if_bytes(name).lower().split("|")) for name in send(admin, "COMMAND LIST")]
    except ResponseError:
        names = [(str(name).lower(),) for name in admin.command()]
    helps = [(group, send(admin, f"{group} HELP")) for group in GROUPS]
    lines = [(group.lower(), str_if_bytes(line).lower()) for group, told in helps for line in told[1:]]
    return [*names, *((group, line.split(" ")[0]) for group, line in lines if line[0].isalpha())]


def granted(prefix: str, who: str) -> set[str]:
    """Return what a user may, as `command` or `command|subcommand`."""
    return {rule[1:] for rule in redis_users(prefix)[who] if rule.startswith("+")}


def beyond(admin: Redis, prefix: str, who: str) -> list[tuple[str, ...]]:
    """Return all that a server knows and a user may not."""
    may = granted(prefix, who) | FREE
    return [words for words in everything(admin) if not {words[0], "|".join(words)} & may]


def verdict(client: Redis, words: tuple[str, ...], key: str) -> str:
    """Return the error of a command on one's own keys, with as many arguments as it wants; empty if it was run."""
    said = ""
    for count in range(MOST_ARGUMENTS):
        try:
            send(client, *words, *[key] * count)
        except RedisError as error:
            said = str(error)
        else:
            return ""
        if "number of arg" not in said:
            break
    return said


@pytest.mark.parametrize("who", WHO)
def test_all_else_that_the_server_knows_is_refused(admin: Redis, users: dict[str, str], prefix: str, who: str) -> None:
    """On one's own keys as well: what a role may is a list, and a new version of Redis adds nothing to it."""
    asked, names = beyond(admin, prefix, who), {words[0] for words in everything(admin)}
    assert len(asked) > 200
    assert {name.partition("|")[0] for name in granted(prefix, who) if name[0] != "@"} <= names
    assert ("scan",) in asked
    assert ("client", "list") in asked
    with Redis.from_url(users[who], socket_timeout=5.0) as client:
        said = {"|".join(words): verdict(client, words, f"{{{prefix}:0}}:states") for words in asked}
    assert {name: error for name, error in said.items() if re.search(REFUSED, error) is None} == {}


@pytest.mark.parametrize("who", ["learner", "operator"])
def test_a_script_does_nothing_that_its_user_may_not(
    admin: Redis, users: dict[str, str], prefix: str, who: str
) -> None:
    """Neither a command that is refused, nor one that is granted on a key that the script did not name."""
    key, theirs = f"{{{prefix}:0}}:states", f"{{{OTHER}:0}}:states"
    with Redis.from_url(users[who], socket_timeout=5.0) as client:
        within = ("EVALSHA", client.script_load("return redis.call(unpack(ARGV))"), "0")
        said = {"|".join(words): verdict(client, (*within, *words), key) for words in beyond(admin, prefix, who)}
        for words in (("HGET", theirs, "digits"), ("HSET", theirs, "digits", "mine"), ("RENAME", theirs, key)):
            with pytest.raises(ResponseError, match=REFUSED_IN_SCRIPT):
                send(client, *within, *words)
    assert {name: error for name, error in said.items() if re.search(REFUSED_IN_SCRIPT, error) is None} == {}
    assert admin.hgetall(theirs) == {b"digits": b"theirs"}


@pytest.mark.parametrize("who", WHO)
@pytest.mark.parametrize("words", ["SCAN 0", "RANDOMKEY", "DBSIZE", "KEYS *", "INFO", "INFO keyspace", "INFO clients"])
def test_nobody_learns_what_others_have(users: dict[str, str], who: str, words: str) -> None:
    """The names of keys, how many there are, who is connected: no pattern of keys binds these."""
    with Redis.from_url(users[who]) as client, pytest.raises(NoPermissionError):
        send(client, *words.split())


@pytest.mark.parametrize("who", WHO)
async def test_nobody_reaches_another_tenant(admin: Redis, users: dict[str, str], prefix: str, who: str) -> None:
    """Each granted command is refused on another tenant's states, offsets, features and whatever begins alike."""
    theirs = store(users[who], OTHER)
    with pytest.raises(StoreUnavailableError):
        await theirs.read([KEY])
    await theirs.close()
    mine = f"{{{prefix}:0}}:states"
    with Redis.from_url(users[who]) as intruder:
        for key in (
            f"{{{OTHER}:0}}:offset",
            f"{OTHER}:features:source/7",
            f"{prefix}x:features:a",
            f"{{{prefix}x:0}}:a",
        ):
            admin.set(key, b"theirs")
            for command in (
                ["GET", key], ["MGET", mine, key], ["DEL", key], ["HGET", key, "f"], ["HMGET", key, "f"],
                ["HDEL", key, "f"], ["HSET", key, "f", "v"], ["SET", key, "v"], ["EXISTS", key], ["HSCAN", key, "0"],
                ["RENAME", mine, key], ["RENAME", key, mine], ["EVALSHA", "0" * 40, "1", key],
            ):  # fmt: skip
                with pytest.raises(NoPermissionError):
                    send(intruder, *command)
            assert admin.get(key) == b"theirs"


async def test_each_role_does_what_it_is_for_and_is_refused_nothing(
    admin: Redis, users: dict[str, str], prefix: str
) -> None:
    """The learner also takes over an older version's offset, and sets aside; the server has nothing to report."""
    learner, selection = store(users["learner"], prefix), store(users["selection"], prefix)
    features = RedisFeatures(RedisSettings(users["selection"], prefix, timeout_s=10.0))
    assert await learner.offset(0) is None
    for round_ in (1, 2):
        assert (await learner.write(learnt(None, 5), "me")).accepted, round_
        assert await learner.offset(0) == 5
        for reader in (learner, selection):
            assert (await reader.read([KEY])).states == {KEY: STATE}
        assert await learner.set_aside(0, 5)
    assert await features.features(["source/7"]) == [b"features"]
    admin.hset(f"{{{prefix}:1}}:states", "digits", b"old")
    admin.set(f"{{{prefix}:1}}:offset", b"9")
    assert await learner.offset(1) == 9
    for each in (learner, selection, features):
        await each.close()
    assert admin.acl_log() == []


async def test_selection_writes_nothing_and_the_learner_reads_no_features(users: dict[str, str], prefix: str) -> None:
    """Not even by a script."""
    selection = store(users["selection"], prefix)
    with pytest.raises(StoreUnavailableError, match=r"NoPermission|NOPERM|no permissions"):
        await selection.write(learnt(None, 6), "me")
    features = RedisFeatures(RedisSettings(users["learner"], prefix, timeout_s=10.0))
    with pytest.raises(StoreUnavailableError):
        await features.features(["source/7"])
    await selection.close()
    await features.close()


async def test_an_operator_prunes_repairs_and_looks_how_redis_is_set(
    admin: Redis, users: dict[str, str], prefix: str
) -> None:
    """What `skysail run`, `states prune` and `doctor` do, what messages advise, and what writes features."""
    whole = store(users["operator"], prefix)  # one that runs all roles
    assert await whole.offset(0) is None
    assert (await whole.write(learnt(None, 5), "me")).accepted
    assert (await whole.read([KEY])).states == {KEY: STATE}
    settings = Settings.model_validate({"prefix": prefix, "redis": {"url": users["operator"]}})
    assert check_redis(settings)
    assert redis_eviction(settings) == "noeviction"
    with connect_redis(settings) as client:
        found = prune(client, prefix, range(1), -7200.0, dry_run=False)
        assert found == Pruned(1, 1, found.size_bytes)
        client.set(feature_name(prefix, "source/8"), b"features")
        client.delete(f"{{{prefix}:0}}:states", feature_name(prefix, "source/8"))
    await whole.close()
    assert admin.acl_log() == []
