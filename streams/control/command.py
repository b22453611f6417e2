"""Commands for people to copy: quoted, because their names come from a topic."""

from __future__ import annotations

import shlex

WORKER = "worker."


def skysail(*words: str) -> str:
    """Return `skysail ...` as a shell takes it."""
    return shlex.join(("skysail", *words))


def run(role: str) -> str:
    """Return what starts a role."""
    model = role.removeprefix(WORKER)
    return skysail("run", "--role", role) if model == role else skysail("run", "--role", "worker", "--model", model)
