"""An Apache Kafka that lets nobody in without TLS and a log-in, with certificates made on the spot.

with SecureKafka(folder) as broker:
    broker.logged_in     SASL_SSL: settings for `kafka`, with a user's password in a file
    broker.certified     SSL: the same with a client's certificate instead
    broker.grant(...)    makes a user with rights; broker.login(user), broker.certificate(user): its settings
    broker.seen()        what the broker's authorizer was asked, and what it said
"""

from __future__ import annotations

import re
import shlex
import subprocess
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import trustme
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import serialization

from deploy.errors import MissingError
from deploy.local.admin import admin_client
from deploy.local.apache import ApacheKafka
from deploy.local.process import free_port
from deploy.local.properties import HOST, LOG4J2
from streams.rights import Right

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

USER = "role"
# Nothing that a shell, a YAML file, a Java properties file or a URL would leave as it is.
PASSWORD = "pass word'\"#%&=:;,\\{}$"
_ITERATIONS = 4096
_PUBLISHED_S = 60.0
_LOOK_S = 0.01
# Every question to the authorizer and its answer, in a file of its own.
_AUDIT = """
appender.a.type=File
appender.a.name=A
appender.a.fileName={file}
appender.a.layout.type=PatternLayout
appender.a.layout.pattern=%m%n
logger.a.name=kafka.authorizer.logger
logger.a.level=debug
logger.a.additivity=false
logger.a.appenderRef.a.ref=A
"""
_ASKED = re.compile(
    r"Principal = User:(?P<user>.+) is (?P<said>Allowed|Denied) operation = (?P<operation>\w+) from host = \S+"
    r" on resource = (?P<resource>\w+):LITERAL:(?P<name>\S+)"
)


class Asked(NamedTuple):
    """What somebody wanted to do, as the broker's authorizer was asked."""

    user: str
    operation: str  # READ, WRITE, DESCRIBE_CONFIGS, ...
    resource: str  # Topic, Group, Cluster, TransactionalId
    name: str


@contextmanager
def serving(folder: Path, *, is_open: bool = True) -> Iterator[SecureKafka]:
    """Run one for a block; a machine that cannot have an Apache Kafka skips the test."""
    server = SecureKafka(folder, is_open=is_open)
    try:
        server.start()
    except MissingError as error:
        pytest.skip(f"no Apache Kafka: {error}")
    with server:
        yield server


class SecureKafka(ApacheKafka):
    """A node with two more listeners; the plain one is only for the administrator of the test.

    Args:
        folder: for certificates, keys and the password's file.
        is_open: what has no ACLs is for everybody.
    """

    def __init__(self, folder: Path, *, is_open: bool = True) -> None:
        self._is_open = is_open
        self.authority = trustme.CA()
        self._folder = folder
        self._ports = {"LOGIN": free_port(), "MUTUAL": free_port()}
        self._write_files()
        super().__init__()
        self._properties |= self._listeners()

    def create_user(self, name: str = USER, password: str = PASSWORD) -> None:
        """Tell the running broker about a user."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        user = UserScramCredentialUpsertion(name, info, password.encode())
        client = admin_client(self.bootstrap)
        for done in client.alter_user_scram_credentials([user]).values():
            done.result(10)
        self._await_published()

    def grant(self, user: str, rights: Iterable[Right]) -> None:
        """Create a user with these rights, or give it more."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        news = [UserScramCredentialUpsertion(user, info, PASSWORD.encode())]
        client = admin_client(self.bootstrap)
        asked = client.alter_user_scram_credentials(news), client.create_acls([*bindings(user, rights)])
        for done in (done for each in asked for done in each.values()):
            done.result(10)
        self._await_published()

    def revoke(self, user: str, rights: Iterable[Right]) -> None:
        """Take rights from a user."""
        client = admin_client(self.bootstrap)
        for done in client.delete_acls([*bindings(user, rights, AclBindingFilter)]).values():
            assert done.result(10), "there was such a right"
        self._await_published()

    def login(self, user: str) -> dict[str, Any]:
        """Settings for a connection with a user's password."""
        its = self.logged_in
        return {**its, "properties": {**its["properties"], "sasl_plain_username": user}}

    def certificate(self, user: str) -> dict[str, Any]:
        """Settings for a connection with a certificate, which the broker takes for this user's."""
        file = self._folder / f"{user}.pem"
        if not file.exists():
            self._write_certificate(file, f"{user}@example.org", user)
        its = self.certified
        return {**its, "properties": {**its["properties"], "ssl_certfile": str(file), "ssl_keyfile": str(file)}}

    def seen(self, said: str = "Allowed") -> set[Asked]:
        """Return what was allowed, or `Denied`, since the broker began."""
        text = (self._folder / "audit.log").read_text(encoding="utf-8")
        found = (_ASKED.search(line) for line in text.splitlines())
        return {
            Asked(*one.group("user", "operation", "resource", "name")) for one in found if one and one["said"] == said
        }

    def typed(self, line: str, main: str) -> None:
        """Run a line of a shell for one of Kafka's own tools, by the class that its script starts."""
        (self._folder / "admin.properties").touch()
        command = [*self._java(), main, *shlex.split(line)[1:]]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True, timeout=120)

    def allow(self, kind: ResourceType, prefix: str, operations: Iterable[AclOperation]) -> None:
        """Give the user rights on all topics or groups of a prefix."""
        to = ResourcePatternType.PREFIXED, f"User:{USER}", "*"
        acls = [AclBinding(kind, prefix, *to, operation, AclPermissionType.ALLOW) for operation in operations]
        client = admin_client(self.bootstrap)
        for done in client.create_acls(acls).values():
            done.result(10)
        self._await_published()

    @property
    def logged_in(self) -> dict[str, Any]:
        """Settings for a connection with user and password."""
        properties = {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": USER,
            "sasl_plain_password_file": str(self._folder / "password"),
            "ssl_cafile": str(self._folder / "authority.pem"),
        }
        return {"bootstrap": f"{HOST}:{self._ports['LOGIN']}", "properties": properties}

    @property
    def certified(self) -> dict[str, Any]:
        """Settings for a connection with a client's certificate."""
        properties = {
            "security_protocol": "SSL",
            "ssl_cafile": str(self._folder / "authority.pem"),
            "ssl_certfile": str(self._folder / "client.pem"),
            "ssl_keyfile": str(self._folder / "client.pem"),
        }
        return {"bootstrap": f"{HOST}:{self._ports['MUTUAL']}", "properties": properties}

    def _await_published(self) -> None:
        """Wait until the broker goes by every change so far: it answers a request before it does.

        It takes changes of users and rights in the order in which they were asked for, so one that is seen is enough.
        """
        client, last = admin_client(self.bootstrap), [Right("topic", uuid.uuid4().hex, ("Read",))]
        for done in client.create_acls([*bindings("nobody", last)]).values():
            done.result(10)
        (seen,) = bindings("nobody", last, AclBindingFilter)
        end_s = time.monotonic() + _PUBLISHED_S
        while not client.describe_acls(seen).result(10):
            assert time.monotonic() < end_s, "the broker shows no change"
            time.sleep(_LOOK_S)

    def _write_files(self) -> None:
        (self._folder / "password").write_text(f"{PASSWORD}\n", encoding="utf-8")
        self.authority.cert_pem.write_to_path(str(self._folder / "authority.pem"))
        for name, identity in (("server", HOST), ("client", "client@example.org")):
            self._write_certificate(self._folder / f"{name}.pem", identity)

    def _write_certificate(self, file: Path, identity: str, name: str | None = None) -> None:
        issued = self.authority.issue_cert(identity, common_name=name)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        file.write_bytes(_pkcs8(issued.private_key_pem.bytes()) + chain)

    def _java(self) -> list[str]:
        found = super()._java()
        audit = _AUDIT.format(file=self._folder / "audit.log")
        (self.data / "log4j2.properties").write_text(LOG4J2 + audit, encoding="utf-8")
        return found

    def _listeners(self) -> dict[str, str]:
        secure = "".join(f",{name}://{HOST}:{port}" for name, port in self._ports.items())
        plain = f"PLAINTEXT://{HOST}:{self.port}"
        return {
            "listeners": f"{plain},CONTROLLER://{HOST}:{self._controller_port}{secure}",
            "advertised.listeners": plain + secure,
            "listener.security.protocol.map": ("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,LOGIN:SASL_SSL,MUTUAL:SSL"),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._folder / "authority.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            # The common name alone is who it is; a certificate without one stays what it says of itself.
            "listener.name.mutual.ssl.principal.mapping.rules": r"RULE:^.*CN=([\w.-]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            # What has ACLs is for those alone that they name, and for whoever comes over the plain listener.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": str(self._is_open).lower(),
            "super.users": "User:ANONYMOUS",
            "listener.name.login.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }


def bindings(
    user: str, rights: Iterable[Right], make: type[AclBinding | AclBindingFilter] = AclBinding
) -> Iterable[AclBinding]:
    """Yield rights as Kafka's API has them."""
    for right in rights:
        kind = ResourceType["BROKER" if right.resource == "cluster" else right.resource.upper()]
        pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
        for operation in right.operations:
            done = AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()]
            who = f"User:{user}", "*", done, AclPermissionType.ALLOW
            yield make(kind, right.name or "kafka-cluster", pattern, *who)


def _pkcs8(key: bytes) -> bytes:
    """Rewrite a private key in the only form that Java reads."""
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
