"""Tries a policy or a loss from outside in a process beside, before a role that serves imports it.

    a record ─▶ its names from outside ─▶ may they be named? ─▶ a child imports one ─▶ imported here, in a thread
                                                                   └ no policy, or too slow ─▶ refused, not imported

A library that is named by mistake may take seconds and hundreds of MiB, and stays in memory. So what is no policy costs
a child, and no role waits: `Follower` and `Promoting` await this before records are taken.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import TYPE_CHECKING, Final

from policies import outside, own_loss, registry
from policies.errors import PolicyError
from policies.loss_rules import rule
from schemas import topics
from schemas.errors import DecodeError
from schemas.records import Application, Candidate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from schemas.codec import Codec
    from streams.operators.contract import Record

PATIENCE_S: Final = 20.0
_NICENESS: Final = 10  # those who serve come first
_SAID_BYTES: Final = 4_096
_NAMING: Final = (topics.APPLICATIONS, topics.CANDIDATES)
_POLICY: Final = "policy"  # the kind of a candidate that is one
_LOSS: Final = "loss"
_OF: Final = {_POLICY: outside, _LOSS: own_loss}  # what knows, refuses and imports them


def preparing(codec: Codec) -> Callable[[Sequence[Record]], Awaitable[None]]:
    """Return what a role awaits before its kernel is given records that it follows.

    Args:
        codec: of the deployment's records.
    """

    async def prepare(records: Sequence[Record]) -> None:
        for what, name in {named for record in records if record.topic in _NAMING for named in _named(record, codec)}:
            await vetted(name, what=what)

    return prepare


async def vetted(name: str, patience_s: float = PATIENCE_S, what: str = _POLICY) -> None:
    """Have a policy or a loss from outside imported, or refused for the time being.

    Args:
        name: its path, or that of an entry point.
        patience_s: how long the child may take.
        what: policy or loss.
    """
    its = _OF[what]
    if its.is_known(name):
        return
    fault = outside.forbidden(name, what) or await _tried(name, patience_s, what)
    if fault:
        its.refuse(name, fault)
    else:
        its.refuse(name, "")
        await asyncio.to_thread(its.fault_of, name)


def _named(record: Record, codec: Codec) -> Iterator[tuple[str, str]]:
    """Yield the policies and losses from outside that an application or a candidate names, each with what it is."""
    for name in _readable(_names(record, codec)):
        if name not in registry.POLICIES and outside.is_outside(name):
            yield _POLICY, name
    for path in _readable(_losses(record, codec)):
        yield _LOSS, path


def _readable(names: Iterator[str]) -> Iterator[str]:
    """Yield names as far as the record can be read; who takes it says what is wrong with the rest."""
    try:
        yield from names
    except (DecodeError, PolicyError):
        return


def _losses(record: Record, codec: Codec) -> Iterator[str]:
    if record.topic == topics.APPLICATIONS and (path := rule(codec.decode(Application, record.value).loss).names):
        yield path


def _names(record: Record, codec: Codec) -> Iterator[str]:
    if record.topic == topics.APPLICATIONS:
        application = codec.decode(Application, record.value)
        yield application.policy
        specs = [application.apprentice] if application.apprentice else []
    else:
        plan = codec.decode(Candidate, record.value)
        specs = [plan.candidate, plan.incumbent] if plan.kind == _POLICY else []
    for spec in specs:
        yield registry.given(spec)[0]


async def _tried(name: str, patience_s: float, what: str) -> str:
    """Return what a child has against a policy or a loss; empty = nothing."""
    pipe, quiet = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # -P: a file in the present folder must not shadow a module of ours.
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", __name__, name, what, stdin=quiet, stdout=pipe, stderr=quiet, env=env
    )
    assert child.stdout is not None  # it is a pipe
    try:
        async with asyncio.timeout(patience_s):
            said = await child.stdout.read(_SAID_BYTES)
    except TimeoutError:
        return f"{what} {name} is not imported within {patience_s:g} s in a process beside: name a smaller module"
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
    try:
        return str(json.loads(said))
    except ValueError:
        return f"{what} {name} ends the process that imports it"


def main(name: str, what: str) -> None:
    """Print what speaks against a policy or a loss, as JSON; what its module prints goes elsewhere."""
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.nice(_NICENESS)
    fault = _OF[what].fault_of(name)
    print(json.dumps(fault[: _SAID_BYTES // 8]), file=output, flush=True)
    os._exit(0)  # nothing of what was imported has a say in it


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
