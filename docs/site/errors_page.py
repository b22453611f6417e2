"""The page of errors: every message that the product's sources raise, by its kind, with what to do.

The texts are read from the sources, so none is forgotten; what to do about a kind stands in `KINDS`. Places where a
message holds a name or a number are shown as `…`.
"""

from __future__ import annotations

import ast
import functools
from collections import defaultdict
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from deploy.cli.query import ADVICE

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("schemas", "policies", "streams", "workers", "deploy")
_FEW: Final = 6  # texts that one place of a message may hold
_TESTING: Final = ROOT / "streams" / "testing"


class Kind(NamedTuple):
    """What readers do about messages of some exceptions."""

    title: str
    exceptions: tuple[str, ...]
    advice: str


KINDS: Final = (
    Kind(
        "Commands",
        ("UsageError", "DeployError"),
        "The command cannot do this with these arguments, or not now. The message names what to give instead;"
        " `skysail VERB --help` shows examples.",
    ),
    Kind(
        "Settings",
        ("SettingsError", "PolicyError", "LossError", "DottedPathError"),
        "Correct `skysail.yaml`, the environment or the arguments, then run `skysail config check`."
        " [Settings](settings.md) has every key and the parameters of every policy.",
    ),
    Kind(
        "Starting, and what a machine lacks",
        ("StartError", "MissingError", "RefusedError", "Unreachable", "ImportError"),
        "Run `skysail doctor`: it names what is missing, who holds a port and which command starts a service. A process"
        " that ended has its last lines in `.skysail/logs`.",
    ),
    Kind(
        "Kafka and the store",
        (
            "BrokerUnavailableError",
            "UnknownPartitionError",
            "StoreUnavailableError",
            "RecordRefusedError",
            "RecordTooLargeError",
            "UnansweredError",
        ),
        "Roles try again by themselves; a client may send the same again under its id. If it stays: `skysail doctor`,"
        " then `skysail topics check`.",
    ),
    Kind(
        "A process that ends",
        (
            "MisconfiguredError",
            "OtherLogError",
            "StuckError",
            "KernelError",
            "OffsetOrderError",
            "UnassignedError",
            "HungError",
        ),
        "`skysail run` starts it again. If it ends again: `skysail topics check --mend` for topics and rights,"
        " `skysail model retry` for a package that was refused after two ends. What names a bug is worth a report,"
        " with the log.",
    ),
    Kind(
        "Packages and models",
        ("PackageError", "OutputError"),
        "Nothing was loaded, or the rows are answered by the default. Package the model again as the message says;"
        " `skysail model show FOLDER` checks a package. [Runtimes](runtimes.md) shows each kind.",
    ),
    Kind(
        "Signed packages",
        ("SignatureError",),
        "Nothing was loaded, and the version before goes on. Sign the package as the message says, or copy it again;"
        " `skysail model verify FOLDER --keys KEYS` checks it. [Signed packages](signing.md) explains each reason.",
    ),
    Kind(
        "Inputs",
        ("InputError", "UnreadableError", "WebError"),
        "The query's input is not what the model takes, or lies elsewhere than `worker.references` allows. `skysail"
        " model show NAME` says what it takes. [Images](images.md) explains addresses.",
    ),
    Kind(
        "Records and schemas",
        ("DecodeError", "SchemaError", "OversizedError", "RegistryError", "InflationError", "UnknownLabelError"),
        "Bytes that are no record became a dead letter: `skysail dlq show PLACE`. A value that fits no schema is the"
        " sender's to mend; of a registry, look at `registry` in the settings.",
    ),
    Kind(
        "Topics of your own",
        ("MappingError",),
        "The record is in `mapping.dlq`. Correct `from`, `to` or `feedback`, try it by `skysail map check APPLICATION`,"
        " and send the records again by `skysail dlq redrive --topic mapping --anew`.",
    ),
    Kind(
        "Over HTTP",
        ("RequestRefusedError", "HttpParserError"),
        "The text is the answer's `error`. 4xx: correct the request. 429 and 503: wait as long as `Retry-After` says."
        " [HTTP](gateway.md) shows each protocol's bodies.",
    ),
    Kind(
        "Traces, replay and evaluation",
        (
            "TraceError",
            "ContainerError",
            "EvaluationError",
            "EstimateError",
            "ChangeError",
            "CopyEndedError",
            "MissingInputError",
            "PlanError",
        ),
        "The trace, the plan or the question does not allow this. `skysail trace show FOLDER` says what a trace holds;"
        " [replay](replay.md) what can be asked of it.",
    ),
    Kind(
        "Arguments in Python",
        ("ValueError", "TypeError", "RuntimeError", "OverflowError"),
        "A call has an argument of another type or range than its docstring says, or comes at the wrong time."
        " [Python](api.md) has the docstrings.",
    ),
)
# Not for readers: they are caught where they are raised, or are another library's.
SILENT: Final = frozenset(
    {"AssertionError", "AttributeError", "IndexError", "KeyError", "LateError", "ModuleNotFoundError", "OSError"}
    | {"OtherApplicationError"}
    | {"KafkaConnectionError", "NodeNotReadyError", "_ChecksumError", "GoneError", "StopIteration"}
)
CAUSES: Final = {
    "ambiguous_id": "two applications were asked with this id: let clients draw ids by themselves, or prefix them",
    "bug": "it broke a role, which went on: report it, with the letter",
    "corrupt_batch": "a batch on the broker cannot be unpacked: look at the producer that wrote it, and at the disk",
    "empty": "a record without a value: look at the producer that sends it",
    "impossible_decision": "its policy cannot compute with it, as the message says: was the policy changed?",
    "invalid": "a record of ours with impossible values: the message names the field; mend the sender",
    "invalid_feedback": "its label or loss is of the wrong type: send the type that the model answers",
    "late": "it came after the application's window: raise `window_s`, or send feedback sooner",
    "long_episode": "feedback on an episode of over 1,000 answers, none of which learns: name a new one for each visit",
    "not_keyed": "feedback by key for an application that names none: set its `feedback` with `key` and `within`",
    "other_application": "it came by a token or a mapping of another application: its id is one of that one, too",
    "over_limit": "there was no room to wait: raise `joiner.waiting_mib` or `joiner.early_mib`, or send less",
    "oversized": "larger than `max_input_kib` allows: raise it, or send the input's address",
    "refused": "Kafka does not take it: see the message, then `skysail topics check --mend`",
    "too_large": "larger than its topic takes: `skysail topics check --mend`",
    "trailing": "bytes behind the record: the sender frames it wrongly",
    "truncated": "bytes are missing: the sender frames it wrongly, or uses another schema",
    "unknown_label": "its label is no class of the models, or of the matrix in `loss`: send one as they name it",
    "unknown_metric": "the application has no metric of this name: `metrics` in its settings names them",
    "unknown_schema": "its fingerprint is of no schema of ours: update Skysail, or look at the sender",
    "unmapped": "a record of your topic that `from` or `feedback` cannot read: `skysail map check APPLICATION`",
    "unmatched": "no query with this id was answered: compare the ids, and send feedback after the query",
}
HEAD: Final = """\
# Errors, by their text

Every message that Skysail raises, by its kind, from its sources. Search for the words on your screen; `…` stands for a
name or a number.
"""


class _Texts(ast.NodeVisitor):
    """Collects the messages of one module by the name of the exception."""

    def __init__(self, module: ast.Module) -> None:
        self.found: defaultdict[str, set[str]] = defaultdict(set)
        self._returned = {
            node.name: [found.value for found in ast.walk(node) if isinstance(found, ast.Return) and found.value]
            for node in ast.walk(module)
            if isinstance(node, ast.FunctionDef)
        }
        self._named: dict[str, list[ast.expr]] = _assigned(module)
        self.visit(module)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """Know what names stand for inside the function."""
        outer, self._named = self._named, self._named | _assigned(node)
        self.generic_visit(node)
        self._named = outer

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815 - as ast calls it

    def visit_Call(self, node: ast.Call) -> None:
        """Keep the first text among the arguments of an exception."""
        name = ast.unparse(node.func).rpartition(".")[2]
        if name.endswith("Error") or name == "Unreachable":
            for argument in node.args:
                if told := {text for text in self._texts(argument) if " " in text.replace("…", "").strip()}:
                    self.found[name] |= told
                    break
        self.generic_visit(node)

    def _texts(self, node: ast.expr, depth: int = 3) -> set[str]:
        """Return what an expression may say, with `…` for what is known later only; nothing if it is no text."""
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else set()
        if isinstance(node, ast.JoinedStr):
            return _joined([self._part(value, depth) for value in node.values])
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return _joined([self._texts(node.left, depth) or {"…"}, self._texts(node.right, depth) or {"…"}])
        if isinstance(node, ast.IfExp):
            return self._texts(node.body, depth) | self._texts(node.orelse, depth)
        found: list[ast.expr] = []
        if isinstance(node, ast.Name):
            found = self._named.get(node.id, [])
        elif isinstance(node, ast.Call):
            found = self._returned.get(ast.unparse(node.func).rpartition(".")[2], [])
        return {text for each in found for text in self._texts(each, depth - 1)} if depth else set()

    def _part(self, value: ast.expr, depth: int) -> set[str]:
        if not isinstance(value, ast.FormattedValue):
            return self._texts(value, depth)
        return {text for text in self._texts(value.value, depth) if " " in text} or {"…"}


def _assigned(scope: ast.AST) -> dict[str, list[ast.expr]]:
    """Return what the names of a module or function are given."""
    named: defaultdict[str, list[ast.expr]] = defaultdict(list)
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            named[node.targets[0].id].append(node.value)
    return named


def _joined(parts: list[set[str]]) -> set[str]:
    """Return all ways to join one text of each part; where they are many, those parts are `…`."""
    few = [part if len(part) <= _FEW else {"…"} for part in parts]
    return {"".join(one) for one in product(*few)} if prod(map(len, few)) <= _FEW * _FEW else set()


@functools.cache
def messages() -> Mapping[str, set[str]]:
    """Return the texts of the product by the exception that has them."""
    sources = [ROOT / "skysail.py", *(f for package in PACKAGES for f in sorted((ROOT / package).rglob("*.py")))]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources:
        if _TESTING not in source.parents:
            for name, texts in _Texts(ast.parse(source.read_text(encoding="utf-8"))).found.items():
                found[name] |= texts
    return found


def page() -> str:
    """Return the whole page."""
    found = messages()
    parts = [HEAD, _table("Reasons of answers", "An answer's `reason` is one of these.", ADVICE)]
    parts.append(_table("Causes of dead letters", "[Dead letters](dead-letters.md) says how to see them.", CAUSES))
    for kind in KINDS:
        lines = sorted({_line(text) for name in kind.exceptions for text in found.get(name, ())}, key=str.lower)
        names = ", ".join(f"`{name}`" for name in kind.exceptions if found.get(name))
        parts.append(f"## {kind.title}\n\n**What to do:** {kind.advice}\n\n{names}:\n\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def _table(title: str, about: str, advice: Mapping[str, str]) -> str:
    rows = "\n".join(f"| `{word}` | {_cell(text)} |" for word, text in sorted(advice.items()))
    return f"## {title}\n\n{about}\n\n| word | what to do |\n|---|---|\n{rows}\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _line(text: str) -> str:
    """Return a message as an item; in a span of code, as it holds signs that Markdown would read."""
    one = " ".join(text.split())
    fence = "``" if "`" in one else "`"
    pad = " " if fence == "``" else ""
    return f"- {fence}{pad}{one}{pad}{fence}"
