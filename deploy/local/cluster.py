"""One or more Apache Kafka nodes as one cluster: own ports, a quorum of all, and a listener with TLS if wanted.

    with KafkaCluster(3) as cluster:
        cluster.bootstrap     three addresses, for clients without TLS
        cluster.secure        settings for roles over TLS, with `tls=True`

With three nodes or more, what Kafka itself keeps has three replicas, and a write counts once two of them have it.
The certificate is self-made with `openssl`, for 127.0.0.1 alone.
"""

from __future__ import annotations

import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from deploy.errors import MissingError
from deploy.local.apache import ApacheKafka, new_cluster
from deploy.local.process import free_port
from deploy.local.properties import HOST

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

REPLICATION: Final = 3
_HEAP_MB: Final = 512  # for each node, so that three fit beside what is measured


class KafkaCluster:
    """Nodes that are broker and controller in one.

    Args:
        nodes: how many.
        tls: whether each has a second listener, with TLS.
        bench: for measurements, as `ApacheKafka` has it.
        through: ports that clients are told instead, by the port that a node listens on: of a proxy.
    """

    def __init__(
        self, nodes: int, *, tls: bool = False, bench: bool = True, through: Mapping[int, int] | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="skysail-cluster-")
        self._certificate = _self_made(Path(self._folder.name)) if tls else None
        controllers, cluster = [free_port() for _ in range(nodes)], new_cluster()
        voters = ",".join(f"{number}@{HOST}:{port}" for number, port in enumerate(controllers, start=1))
        self._secure_ports = [free_port() for _ in range(nodes)]
        self.nodes: list[ApacheKafka] = []
        ports = [*(through or {})] or [free_port() for _ in range(nodes)]
        for number, (controller, port) in enumerate(zip(controllers, ports, strict=True), start=1):
            own = {"node.id": str(number), "controller.quorum.voters": voters, **_replicated(nodes)}
            own |= self._listeners(port, controller, self._secure_ports[number - 1])
            own |= _told(port, controller, through[port]) if through else {}
            node = ApacheKafka(
                port=port, heap_mb=_HEAP_MB, bench=bench, properties=own, controller_port=controller, cluster=cluster
            )
            self.nodes.append(node)

    @property
    def bootstrap(self) -> str:
        """Where clients without TLS connect."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def secure(self) -> dict[str, object]:
        """Settings for `kafka` over TLS."""
        addresses = ",".join(f"{HOST}:{port}" for port in self._secure_ports)
        properties = {"security_protocol": "SSL", "ssl_cafile": str(self._certificate)}
        return {"bootstrap": addresses, "properties": properties}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the nodes that run."""
        return {f"broker@{number}": node.pid for number, node in enumerate(self.nodes, start=1) if node.pid}

    @property
    def logs(self) -> tuple[Path, ...]:
        """The folders that hold each node's partitions."""
        return tuple(node.data / "log" for node in self.nodes)

    def __enter__(self) -> Self:
        """Start all at once: a node is up only with most of the quorum."""
        with ExitStack() as undo, ThreadPoolExecutor(len(self.nodes)) as pool:
            undo.callback(self.stop)
            for started in [pool.submit(node.start) for node in self.nodes]:
                started.result()
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all nodes and remove their data."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            list(pool.map(ApacheKafka.stop, self.nodes))
        self._folder.cleanup()

    def _listeners(self, port: int, controller: int, secure: int) -> dict[str, str]:
        if self._certificate is None:
            return {}
        plain = f"PLAINTEXT://{HOST}:{port},TLS://{HOST}:{secure}"
        return {
            "listeners": f"{plain},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": plain,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,TLS:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._certificate.with_name("server.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._certificate),
        }


def _told(port: int, controller: int, door: int) -> dict[str, str]:
    """Return the properties of a node whose clients come through another port; nodes speak to each other directly."""
    own = free_port()
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},NODES://{HOST}:{own},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{door},NODES://{HOST}:{own}",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,NODES:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
    }


def _replicated(nodes: int) -> dict[str, str]:
    """Return the properties of a cluster that loses nothing with one node."""
    if nodes < REPLICATION:
        return {}
    topics = ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    copies = {f"{topic}.replication.factor": str(REPLICATION) for topic in topics}
    return copies | {"min.insync.replicas": str(REPLICATION - 1)}


def _self_made(folder: Path) -> Path:
    """Make a key and a certificate that signs itself; returns the certificate.

    Raises:
        MissingError: there is no `openssl`.
    """
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={HOST}"]
    command += ["-addext", f"subjectAltName=IP:{HOST}", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError as error:
        raise MissingError("TLS needs the command openssl, to make a certificate; install it") from error
    (folder / "server.pem").write_text(key.read_text() + certificate.read_text(), encoding="utf-8")
    return certificate
