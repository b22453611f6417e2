"""The deployment that is attacked: the honest application, and others for the attackers' queries."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

import numpy as np

from load.harness.system import Deployment
from load.hostile.honest import SLO_MS
from load.models.pipelines import hashed
from schemas.records import Application, Source, Tensor
from workers.packages.packaging import package_function, package_sklearn

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HONEST: Final = "honest"  # two models, one of which is right; learns which
SLOW: Final = "slow"  # 20 ms a row
PEOPLE: Final = "people"  # a state a context
WIDE: Final = "wide"  # states of 190 KB
COMPLAINTS: Final = "complaints"  # no feedback means no loss; one of its models never answers in time
AGAIN: Final = "again"  # asks a second model where the first is in doubt, and a late one once more
RATINGS: Final = "ratings"  # its state answers, and ranks candidates
FILMS: Final = "films"  # ranks candidates that are ids, whose features are looked up
LOOKED: Final = "looked"  # goes by features that are looked up
PANICKY: Final = "panicky"  # its model raises what is no `Exception`
LONG: Final = "long"  # its model takes texts, and time for long ones
TEXTS: Final = "texts"  # counts letters, and goes by features that are looked up under the text
ADDRESSED: Final = "addressed"  # its model reads rows from a place of the web
HAUNTED: Final = "haunted"  # its model's topic is deleted
WIDE_FEATURES: Final = 110
PARTITIONS: Final = 4
_FUNCTIONS: Final = {
    "right": "right",
    "wrong": "wrong",
    "slow": "slow",
    "dead": "never_in_time",
    "ghost": "nothing",
    "panics": "panics",
}
HASHED: Final = 4, 16  # features, lengths of the n-grams that share them
_COMPUTED: Final = "computed"  # features, for the state that answers
_TRIGRAMS: Final = "trigrams"  # of texts
_PORTS: Final = 32  # one after the other: of the web server, of the gateway, and of each process's metrics
CONNECTIONS: Final = 200  # over HTTP
WITHIN_S: Final = 3.0  # for a head or body over HTTP
_ROLES: Final = ("selection", "worker", "joiner", "learner", "gateway")
_APPLICATIONS: Final = (
    Application(HONEST, ("right", "wrong"), "exp3", slo_ms=SLO_MS),
    Application(SLOW, ("slow",), "single", slo_ms=SLO_MS, default_output=-1),
    Application(PEOPLE, ("right", "wrong"), "exp3", per_context=True, slo_ms=SLO_MS, default_output=-1),
    Application(
        WIDE,
        ("right", "wrong"),
        "linucb",
        {"features": WIDE_FEATURES},
        per_context=True,
        slo_ms=SLO_MS,
        default_output=-1,
    ),
    Application(COMPLAINTS, ("right", "dead"), "exp3", slo_ms=SLO_MS, default_output=-1, window_s=2, default_loss=0),
    Application(AGAIN, ("wrong", "right"), "cascade", slo_ms=SLO_MS, default_output=-1, hedge=0.05),
    Application(RATINGS, (_COMPUTED,), "ridge", {"features": 2}, slo_ms=SLO_MS, default_output=-1),
    Application(
        LOOKED,
        ("right",),
        "linear_thompson",
        slo_ms=SLO_MS,
        default_output=-1,
        sources=(Source("users", 2), Source("events", 1, "query_id", wait=0.1)),
    ),
    Application(
        FILMS,
        (_COMPUTED,),
        "ridge",
        {"features": 2},
        slo_ms=SLO_MS,
        default_output=-1,
        sources=(Source("films", 1, "candidate", "redis"), Source("lately", 1, "candidate", wait=0.0)),
    ),
    Application(
        TEXTS,
        ("letters",),
        "single",
        slo_ms=SLO_MS,
        default_output=-1,
        sources=(Source("texts", 1, "input", "redis", wait=0.2),),
    ),
    Application(HAUNTED, ("ghost",), "single", slo_ms=SLO_MS, default_output=-1),
    Application(PANICKY, ("panics",), "single", slo_ms=SLO_MS, default_output=-1),
    Application(LONG, (_TRIGRAMS,), "single", slo_ms=SLO_MS, default_output=-1),
    Application(ADDRESSED, ("shown",), "single", slo_ms=SLO_MS, default_output="-"),
)
_SETTINGS: Final[Mapping[str, Mapping[str, object]]] = {
    "shared": {"selection": {"inline": ["right", "wrong", "panics", _TRIGRAMS]}},
    "hosted": {"hosts": {"small": {"models": ["right", "wrong", "ghost", "panics"], "memory_mib": 16}}},
}


def row(number: float) -> Tensor:
    """Return an input; `right` answers its number."""
    return Tensor.of(np.full(1, number, np.float32))


def deployment(prefix: str, folder: Path, processes: str = "each", *, is_columnar: bool = True) -> Deployment:
    """Package the models and return what is to run.

    Where roles share a process (`shared`), the honest models are inside, too. With `hosted` they and the one
    whose topic is deleted are in a host. The slow ones are not: in one lane whoever takes long makes all others late.
    Without `is_columnar` nothing goes by columns.
    """
    packages, sample = (
        {name: folder / name for name in (*_FUNCTIONS, _COMPUTED, _TRIGRAMS, "letters", "shown")},
        np.zeros((1, 1), np.float32),
    )
    for name, function in _FUNCTIONS.items():
        package_function(f"load.models.functions:{function}", packages[name], name, "1", sample)
    computed = "load.models.functions:features"
    package_function(computed, packages[_COMPUTED], _COMPUTED, "1", sample, output="scores")
    package_function("load.models.functions:trigrams", packages[_TRIGRAMS], _TRIGRAMS, "1", ["a text"])
    package_function("load.models.functions:shown", packages["shown"], "shown", "1", [b"open"], by_reference=True)
    pipeline, texts = hashed(*HASHED)
    short = [text[:20] for text in texts]
    package_sklearn(pipeline, packages["letters"], "letters", "1", short, output="scores", convert="stages")
    return Deployment(
        prefix,
        _APPLICATIONS,
        packages,
        PARTITIONS,
        _ROLES,
        settings={
            **_SETTINGS.get(processes, {}),
            **_listening(_free_ports(), is_shared=processes == "shared"),
            "columns": is_columnar,
        },
        processes="shared" if processes == "shared" else "each",
    )


def _listening(port: int, *, is_shared: bool) -> Mapping[str, object]:
    """Return settings by which web server, gateway and the metrics of all processes are at the ports from this on."""
    place = f"http://127.0.0.1:{port}/images/"
    door = {
        "port": port + 1,
        "shared": is_shared,
        "connections": CONNECTIONS,
        "body_kib": 1_024,
        "bodies_mib": 8,
        "memory_mib": 8,
        "within_s": WITHIN_S,
    }
    return {
        "worker": {"references": [place], "reference_mib": 1},
        "gateway": door,
        "metrics": {"port": port + 2},
    }


def _free_ports() -> int:
    """Return the first of some ports in a row of which nobody listens at one now.

    Raises:
        OSError: there are none.
    """
    for first in range(21_000, 32_000, _PORTS):  # below those that systems give out by themselves
        if not any(map(_is_taken, range(first, first + _PORTS))):
            return first
    raise OSError(f"no {_PORTS} ports in a row are free")


def _is_taken(port: int) -> bool:
    with socket.socket() as asked:
        asked.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            asked.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
