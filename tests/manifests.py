"""Kubernetes' own words on a manifest: schemas of its release, of KEDA, Strimzi and Prometheus' operator; and Helm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

RELEASE = "1.37.0"
CHART = Path(__file__).parents[1] / "deploy" / "k8s" / "chart"
# Without prose, and of one version: KEDA's from its Go module, Strimzi's by its generator, which is on Maven.
_CRDS = Path(__file__).parent / "foreign" / "crds"
_HELM = Path(os.environ.get("SKYSAIL_CACHE") or Path.home() / ".cache" / "skysail") / "helm-3.22.0" / "helm"


def check(manifest: dict[str, Any]) -> None:
    """Check one manifest.

    Raises:
        jsonschema.ValidationError: its schema does not take it, or does not know a key.
        kubernetes_validate.ValidationError: the same, of a kind of Kubernetes itself.
    """
    known = crds().get((manifest["apiVersion"], manifest["kind"]))
    if known is None:
        kubernetes_validate.validate(manifest, RELEASE, strict=True)
    else:
        jsonschema.validate(manifest, known)


@cache
def crds() -> dict[tuple[str, str], dict[str, Any]]:
    """Return the schemas of kinds that are not Kubernetes' own."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(_CRDS.glob("*.json"))]
    return {(each["apiVersion"], each["kind"]): _strict(each["schema"]) for each in found}


def _strict(schema: Any) -> Any:
    """Return a schema that takes no key which it does not name: Kubernetes would drop such a key, and say nothing."""
    if isinstance(schema, list):
        return [*map(_strict, schema)]
    if not isinstance(schema, dict):
        return schema
    found = {key: _strict(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema["properties"], dict):
        open_ = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
        return found if open_ else found | {"additionalProperties": False}
    return found


def render(*values: Path, more: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Render the chart as release `shop` in the namespace `ml`.

    Raises:
        subprocess.CalledProcessError: Helm refuses; `stderr` says why.
    """
    files = [word for path in values for word in ("--values", str(path))]
    command = [helm(), "template", "shop", str(CHART), "--namespace", "ml", "--kube-version", RELEASE, *files, *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def helm() -> str:
    """Return Helm, or skip the test."""
    found = shutil.which("helm") or (str(_HELM) if _HELM.is_file() else None)
    if found is None:
        pytest.skip("no helm: install it, or build it from its Go module with .ci/helm")
    return found
