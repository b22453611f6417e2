"""Protobuf schemas as texts, compiled: protoc of grpcio-tools in a process of its own, which cannot harm this one."""

from __future__ import annotations

import base64
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from deploy.errors import MissingError, UsageError
from workers.extras import install

if TYPE_CHECKING:
    from collections.abc import Mapping

MAIN: Final = "schema.proto"
_PATIENCE_S: Final = 20.0


def compiled(text: str, imports: Mapping[str, str] | None = None) -> str:
    """Return a schema as a `FileDescriptorSet` in base64, with all that it imports; its own file is the last.

    Args:
        text: of the schema.
        imports: texts of further files, by the names under which they are imported.

    Raises:
        MissingError: grpcio-tools is not installed.
        UsageError: it is no schema; the message is the compiler's.
    """
    spec = find_spec("grpc_tools")
    if spec is None or spec.origin is None:
        raise MissingError(f"Protobuf schemas need a compiler: {install('protobuf')}")
    with tempfile.TemporaryDirectory(prefix="skysail-proto-") as folder:
        root, out = Path(folder) / "in", Path(folder) / "out"
        for name, its in {**(imports or {}), MAIN: text}.items():
            place = root / _inside(name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(its, encoding="utf-8")
        known = Path(spec.origin).parent / "_proto"  # google/protobuf/*.proto
        arguments = [f"-I{root}", f"-I{known}", "--include_imports", f"--descriptor_set_out={out}", MAIN]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *arguments],
                capture_output=True, text=True, check=False, timeout=_PATIENCE_S,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise UsageError(f"protoc takes more than {_PATIENCE_S:g} s") from error
        if done.returncode:
            raise UsageError(f"is no Protobuf schema: {done.stderr.strip()[:1_000]}")
        return base64.b64encode(out.read_bytes()).decode()


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        raise UsageError(f"the import {name!r:.80} leaves its folder")
    return path
