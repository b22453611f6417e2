"""`skysail loss`: losses of somebody's own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from deploy.cli.common import VerbGroup, json_option, print_json, with_settings
from deploy.errors import UsageError
from deploy.terminal import echo
from policies import loss_laws, own_loss
from policies.laws import LawVerdict

if TYPE_CHECKING:
    from deploy.config.settings import Settings
    from policies.loss_laws import Judge, JudgedPairs

EXAMPLES = """\
skysail loss check my_pkg.losses:cost                        the module is installed, or in this folder
skysail loss check my_pkg.losses:cost --span 300             a cost of 300 counts as a loss of 1
skysail loss check my_pkg.losses:cost --pairs pairs.jsonl    each line [LABEL, ANSWER], as yours are
"""
_SLOW_US: Final = 5_000.0  # with this, 200 feedbacks a second fill the joiner
_ROUNDS_S: Final = 0.2  # so long it is measured
_PATIENCE_S: Final = 60.0
_ELSEWHERE: Final = """
import json, sys
from policies import loss_laws, own_loss
pairs = json.loads(sys.stdin.read())
found = loss_laws.taken(own_loss.function(sys.argv[1]), [tuple(pair) for pair in pairs])
print("\\n" + json.dumps({kind: one.costs for kind, one in found.items()}))
"""


@click.group(cls=VerbGroup, epilog=EXAMPLES)
def loss() -> None:
    """Check losses of your own."""


@loss.command()
@click.argument("path", metavar="MODULE:FUNCTION")
@click.option(
    "--span", type=click.FloatRange(0, min_open=True), default=1.0, help="The cost that counts as a loss of 1."
)
@click.option(
    "--pairs",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of lines [LABEL, ANSWER] in JSON.",
)
@json_option
@with_settings
def check(settings: Settings, path: str, *, span: float, pairs: Path | None, as_json: bool) -> None:  # noqa: ARG001
    """Try what a loss of your own promises, on labels and answers, and print a verdict on each.

    Without --pairs it is tried with numbers, texts and arrays, and judged by those that it takes. It is also asked in a
    process beside, where the order of sets is another one. Exits with 1 if a promise is broken.
    """
    judge = own_loss.function(path)
    given = [] if pairs is None else _read(pairs)
    found = loss_laws.taken(judge, given)
    said = [*loss_laws.verdicts(judge, found, span)]
    took_us = 0.0
    if not any(verdict.fault for verdict in said):
        said.append(LawVerdict("Another process is told the same.", _elsewhere(path, given, found)))
        took_us = _took_us(judge, found)
        slow = (
            f"a row takes {took_us:,.0f} us, and all feedback waits for it: make it quicker"
            if took_us > _SLOW_US
            else ""
        )
        said.append(LawVerdict("It is quick enough for the joiner.", slow))
    _tell(path, said, found, span, took_us, as_json=as_json)
    if any(verdict.fault for verdict in said):
        raise SystemExit(1)


def _tell(
    path: str, said: list[LawVerdict], found: dict[str, JudgedPairs], span: float, took_us: float, *, as_json: bool
) -> None:
    broken, cut = sum(bool(verdict.fault) for verdict in said), loss_laws.cut(found, span)
    if as_json:
        laws = [verdict._asdict() for verdict in said]
        print_json({"loss": path, "takes": [*found], "laws": laws, "broken": broken, "row_us": took_us, "cut": cut})
        return
    for verdict in said:
        echo(f"{'BROKEN' if verdict.fault else 'ok':<7} {verdict.law}")
        if verdict.fault:
            echo(f"        {verdict.fault}")
    if broken:
        echo(f"{path}: {broken} of {len(said)} promises are broken")
        return
    tried = sum(len(one.pairs) for one in found.values())
    above = f"; {cut} of {tried} costs are above the span of {span:g}, and count as 1" if cut else ""
    echo(f"{path} takes {', '.join(found)}: {took_us:.1f} us a row{above}")


def _read(file: Path) -> list[tuple[Any, Any]]:
    found = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(filter(str.strip, lines), 1):
            try:
                label, answer = json.loads(line)
            except (TypeError, ValueError) as error:
                raise UsageError(f"{file}, line {number} is no [LABEL, ANSWER] in JSON ({error})") from error
            found.append((label, answer))
    if not found:
        raise UsageError(f"{file} has no lines; each is [LABEL, ANSWER] in JSON")
    return found


def _elsewhere(path: str, pairs: list[tuple[Any, Any]], found: dict[str, JudgedPairs]) -> str:
    """Return what a process with another order of sets says otherwise."""
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONHASHSEED": seed}
    command = [sys.executable, "-P", "-c", _ELSEWHERE, path]
    done = subprocess.run(
        command, input=json.dumps(pairs), env=env, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    if done.returncode:
        return f"it fails there: {(done.stderr.strip().splitlines() or ['it ends'])[-1]:.200}"
    said = json.loads(done.stdout.splitlines()[-1])
    here = {kind: [*one.costs] for kind, one in found.items()}
    return "" if said == here else "it says other costs there: it depends on the order of a set, or on the process"


def _took_us(judge: Judge, found: dict[str, JudgedPairs]) -> float:
    pairs = [pair for one in found.values() for pair in one.pairs]
    begun, rows = time.perf_counter(), 0
    while (took_s := time.perf_counter() - begun) < _ROUNDS_S:
        loss_laws.judged(judge, pairs)
        rows += len(pairs)
    return took_s / rows * 1e6
