"""Paths: which door, what of it, which application and version."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from streams.gateway.protocol.values import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable


class Route(NamedTuple):
    """Where a request goes."""

    door: str  # open_inference | tensorflow | mlflow | personalizer | own: who writes its errors
    what: str
    application: str = ""  # "" = the path names none
    version: str | None = None  # or label
    event: str = ""


_V2: Final = r"/v2/models/(?P<application>[^/]+)(?:/versions/(?P<version>[^/]+))?"
_V1: Final = r"/v1/models/(?P<application>[^/:]+)(?:/(?:versions|labels)/(?P<version>[^/:]+))?"
_V0: Final = r"/personalizer(?:/v1\.[\w.-]+)?"  # the last of its clients name the version in the query
# Method, path, door, what; the first that fits counts.
TABLE: Final[tuple[tuple[str, re.Pattern[str], str, str], ...]] = tuple(
    (method, re.compile(path), door, what)
    for method, path, door, what in (
        ("POST", rf"{_V2}/infer", "open_inference", "infer"),
        ("POST", rf"{_V1}:predict", "tensorflow", "predict"),
        ("POST", r"(?:/serving-endpoints/(?P<application>[^/]+))?/invocations", "mlflow", "invocations"),
        ("POST", rf"{_V0}/rank", "personalizer", "rank"),
        ("POST", rf"{_V0}/events/(?P<event>[^/]+)/reward", "personalizer", "reward"),
        ("POST", rf"{_V0}/events/(?P<event>[^/]+)/activate", "personalizer", "activate"),
        ("POST", r"/v2/models/(?P<application>[^/]+)/feedback", "open_inference", "feedback"),
        ("GET", r"/v2/health/live", "open_inference", "live"),
        ("GET", r"/v2/health/ready", "open_inference", "ready"),
        ("GET", r"/v2/?", "open_inference", "server"),
        ("GET", r"/v2/models/?", "own", "applications"),
        ("GET", rf"{_V2}/ready", "open_inference", "model_ready"),
        ("GET", rf"{_V2}/stats", "open_inference", "stats"),
        ("GET", _V2, "open_inference", "metadata"),
        ("GET", rf"{_V1}/metadata", "tensorflow", "tensorflow_metadata"),
        ("GET", _V1, "tensorflow", "tensorflow_status"),
        ("GET", r"/ping", "mlflow", "live"),
        ("GET", r"/health", "own", "live"),
        ("GET", r"/ready", "own", "ready"),
        ("GET", r"/version", "mlflow", "version"),
        ("GET", r"/metrics", "own", "metrics"),
        ("GET", r"/openapi\.json", "own", "openapi"),
    )
)
_NOWHERE: Final = "no such path: GET /v2/models lists applications, GET /openapi.json all paths (docs/gateway.md)"
# What everybody may know who reaches the gateway. All else takes a token of the application that it is about.
OPEN: Final = frozenset({"live", "ready", "server", "version", "metrics", "openapi"})
# Routes remembered, and the longest: there are few applications, and a stranger's paths do not fill memory.
_KNOWN, _LONGEST = 4_096, 256


class Router:
    """Finds routes, and remembers those that were asked for."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Route] = {}

    def find(self, method: str, path: str) -> Route:
        """Return where a request goes.

        Raises:
            RequestRefusedError: nowhere (404), or not by this method (405).
        """
        found = self._known.get((method, path))
        if found is not None:
            return found
        found = _find("GET" if method == "HEAD" else method, path)
        if len(path) <= _LONGEST and not found.event:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[method, path] = found
        return found


def door_of(path: str) -> str:
    """Return the door of a path that is not known: it writes the error."""
    heads: Iterable[tuple[str, str]] = (("/v1/", "tensorflow"), ("/personalizer/", "personalizer"))
    return next((door for head, door in heads if path.startswith(head)), "open_inference")


def _find(method: str, path: str) -> Route:
    others = set[str]()
    for wanted, pattern, door, what in TABLE:
        match = pattern.fullmatch(path)
        if match is None:
            continue
        if wanted == method:
            named = match.groupdict()
            # Names of applications have no underscore; those of others' models often do.
            application = (named.get("application") or "").replace("_", "-")
            return Route(door, what, application, named.get("version") or None, named.get("event") or "")
        others.add(wanted)
    if others:
        allow = ", ".join(sorted(others | ({"HEAD"} if "GET" in others else set())))
        raise RequestRefusedError(405, f"{method} is not for this path: {' or '.join(sorted(others))} is", allow=allow)
    raise RequestRefusedError(404, _NOWHERE)
