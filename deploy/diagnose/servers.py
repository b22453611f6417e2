"""Checks the servers of a deployment: who answers, who listens there instead, what was started from here."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from deploy.config.configuration import doubts, without_secrets
from deploy.config.folder import STATE
from deploy.connect.clients import Unreachable, admin
from deploy.connect.redis_server import check_redis, redis_eviction
from deploy.connect.stores import check_file
from deploy.diagnose.doctor import Check, Level
from deploy.errors import RefusedError, StartError
from deploy.local import daemons as background
from deploy.process.ports import owner
from streams.control.page.outages import LOCAL

if TYPE_CHECKING:
    from deploy.config.settings import Settings

ANSWER_S = 3.0
PAGE_S = 1.0
SETTING = {"kafka": "SKYSAIL_KAFKA__BOOTSTRAP", "redis": "SKYSAIL_REDIS__URL"}
KAFKA_PORT, REDIS_PORT = 9092, 6379  # defaults of `skysail kafka start` and `skysail redis start`


def check_kafka(settings: Settings) -> Check:
    """Check that a broker answers; tell who listens there if none does."""
    try:
        metadata = admin(settings, ANSWER_S).list_topics(timeout=ANSWER_S)
    except RefusedError as error:
        return Check("Kafka", Level.DOWN, f"{settings.kafka.bootstrap} answers", str(error))
    except Unreachable as error:
        return Check("Kafka", Level.DOWN, *_silent(settings.kafka.bootstrap, str(error), "kafka", KAFKA_PORT))
    if doubt := next((doubt for doubt in doubts(settings) if doubt.startswith("kafka.")), None):
        return Check("Kafka", Level.WARN, f"{settings.kafka.bootstrap} answers", doubt)
    count = len(metadata.brokers)
    brokers = f"{count} broker{'s' * (count > 1)}"
    return Check(
        "Kafka", Level.OK, f"{settings.kafka.bootstrap} answers, {brokers}{_started('kafka', settings.kafka.bootstrap)}"
    )


def check_redis_answers(settings: Settings) -> Check:
    """Check that Redis answers; tell who listens there if it does not."""
    shown, parts = without_secrets(settings.redis.url), urlsplit(settings.redis.url)
    try:
        version = check_redis(settings, ANSWER_S)
    except RefusedError as error:
        found, _, advice = str(error).partition(": set ")
        return Check("Redis", Level.DOWN, found, f"set {advice}")
    except Unreachable as error:
        place = f"{parts.hostname or ''}:{parts.port or REDIS_PORT}"
        return Check("Redis", Level.DOWN, *_silent(place, str(error), "redis", REDIS_PORT))
    return Check("Redis", Level.OK, f"{shown} answers, version {version}{_started('redis', settings.redis.url)}")


def check_store_file(settings: Settings) -> Check:
    """Check that the file of an embedded store can be used."""
    try:
        count = check_file(settings)
    except StartError as error:
        found, _, advice = str(error).partition(": set ")
        return Check("policy states", Level.DOWN, found, f"set {advice}")
    return Check("policy states", Level.OK, f"{count:,} in {settings.store.file}, for this machine alone")


def check_redis_keeps(settings: Settings) -> Check:
    """Check that Redis evicts no policy states when its memory is full; it must answer."""
    try:
        policy = redis_eviction(settings, ANSWER_S)
    except Unreachable as error:
        return Check("Redis memory", Level.WARN, "unknown", str(error))
    if not policy.startswith("allkeys-"):  # volatile-* evict keys with an expiry: ours have none
        return Check("Redis memory", Level.OK, f"maxmemory-policy {policy or 'unknown'}")
    advice = (
        "when memory is full, Redis evicts policy states, and the learner folds them again from the log: run redis-cli"
        " config set maxmemory-policy noeviction, and set it in redis.conf"
    )
    return Check("Redis memory", Level.DOWN, f"maxmemory-policy {policy}", advice)


def _silent(place: str, error: str, verb: str, usual: int) -> tuple[str, str]:
    """Return what was found at an address without an answer, and the advice."""
    host, _, port = place.partition(",")[0].rpartition(":")
    if host not in LOCAL or not port.isdecimal():
        return f"{place} does not answer", error
    if mine := _started(verb, place):
        return (
            f"{place} does not answer{mine}",
            f"the machine may be too busy: try again; if it stays so: skysail {verb} stop, then skysail {verb} start",
        )
    if (elsewhere := background.find(STATE / f"{verb}.json")) is not None:
        setting = f"{SETTING[verb]}={elsewhere.address}"
        return (
            f"nobody listens at {place}; the one started from here listens at {elsewhere.address}",
            f"name it in skysail.yaml, or: export {setting}",
        )
    at = "" if int(port) == usual else f" --port {port}"
    if (listener := owner(int(port))) is not None:
        return (
            f"{place} is taken by {listener}",
            f"stop that process, or: skysail {verb} start --port PORT, and set the port in the settings",
        )
    return f"nobody listens at {place}", f"skysail {verb} start{at}"


def _started(verb: str, address: str) -> str:
    """Say that a server is the one that was started from this folder."""
    running = background.find(STATE / f"{verb}.json")
    mine = running is not None and address in (running.address, urlsplit(running.address).netloc)
    return f"; started from here (process {running.pid}): skysail {verb} stop" if running is not None and mine else ""


def check_page(settings: Settings) -> Check:
    """Check that the live page is ours and answers."""
    place = f"{settings.control.host}:{settings.control.port}"
    try:
        with urllib.request.urlopen(f"http://{place}/api/status", timeout=PAGE_S) as answer:
            json.load(answer)
    except (OSError, ValueError):
        taken = owner(settings.control.port)
        found = "does not answer" + (f"; {place} is taken by {taken}" if taken else "")
        return Check(
            "control", Level.WARN, found, "answers do not depend on it; to start it: skysail run --role control"
        )
    return Check("control", Level.OK, f"http://{place}/ answers")
