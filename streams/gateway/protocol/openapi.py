"""What the gateway speaks over HTTP, as an OpenAPI document: `GET /openapi.json`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streams.gateway.protocol import tensors

if TYPE_CHECKING:
    from collections.abc import Mapping

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "array", "items": _TEXT}
_MAYBE: Final = {"type": ["string", "null"]}
_SHARE: Final = {"type": "number", "minimum": 0, "maximum": 1}
_WEIGHT: Final = {"type": ["number", "null"], "exclusiveMinimum": 0}
_MAYBE_TEXTS: Final = {"type": ["array", "null"], "items": _TEXT}
_OBJECT: Final = {"type": "object"}


class PathEntry(NamedTuple):
    """A path and what it does.

    Attributes:
        what: as the routes name it.
        takes: schema of the body; "" = none.
        gives: schema of the reply; "" = text, None = nothing.
        status: of a reply that is none of the errors.
        unready: whether 503 has the same form.
    """

    method: str
    path: str
    what: str
    door: str
    about: str
    takes: str = ""
    gives: str | None = "Any"
    status: int = 200
    unready: bool = False


_MODEL: Final = "/v2/models/{application}"
_VERSION: Final = f"{_MODEL}/versions/{{version}}/infer"
_ENDPOINT: Final = "/serving-endpoints/{application}/invocations"
_SERVED: Final = "/v1/models/{application}"
_RANKED: Final = "/personalizer/v1.0"
OPERATIONS: Final = (
    PathEntry("get", "/v2/health/live", "live", "open_inference", "Whether the gateway runs", gives="Live"),
    PathEntry("get", "/v2/health/ready", "ready", "open_inference", "Whether it can ask", gives="Ready", unready=True),
    PathEntry("get", "/v2", "server", "open_inference", "Name, version and extensions", gives="Server"),
    PathEntry("get", "/v2/models", "applications", "own", "What may be asked", gives="Applications"),
    PathEntry("get", _MODEL, "metadata", "open_inference", "Inputs and outputs", gives="Metadata"),
    PathEntry("get", f"{_MODEL}/ready", "model_ready", "open_inference", "Whether it is deployed", gives="ModelReady"),
    PathEntry("get", f"{_MODEL}/stats", "stats", "open_inference", "Counts", gives="Statistics"),
    PathEntry("post", f"{_MODEL}/infer", "infer", "open_inference", "Ask", "Inference", "Inferred"),
    PathEntry("post", _VERSION, "infer", "open_inference", "Ask a version", "Inference", "Inferred"),
    PathEntry("post", f"{_MODEL}/feedback", "feedback", "open_inference", "Teach", "Feedback", "Taken", 202),
    PathEntry("get", _SERVED, "tensorflow_status", "tensorflow", "State of the versions"),
    PathEntry("get", f"{_SERVED}/metadata", "tensorflow_metadata", "tensorflow", "Signature"),
    PathEntry("post", f"{_SERVED}:predict", "predict", "tensorflow", "Ask", "Predict", "Answers"),
    PathEntry("post", "/invocations", "invocations", "mlflow", "Ask", "Invocation", "Answers"),
    PathEntry("post", _ENDPOINT, "invocations", "mlflow", "Ask", "Invocation", "Answers"),
    PathEntry("get", "/ping", "live", "mlflow", "Whether it runs", gives="Live"),
    PathEntry("get", "/version", "version", "mlflow", "Version", gives=""),
    PathEntry("post", f"{_RANKED}/rank", "rank", "personalizer", "Rank actions", "Rank", "Ranking", 201),
    PathEntry("post", f"{_RANKED}/events/{{event}}/reward", "reward", "personalizer", "Reward", "Reward", None, 204),
    PathEntry("post", f"{_RANKED}/events/{{event}}/activate", "activate", "personalizer", "Nothing", "", None, 204),
    PathEntry("get", "/health", "live", "own", "Whether the gateway runs", gives="Live"),
    PathEntry("get", "/ready", "ready", "own", "Whether it can ask", gives="Ready", unready=True),
    PathEntry("get", "/metrics", "metrics", "own", "Figures, as Prometheus reads them", gives=""),
    PathEntry("get", "/openapi.json", "openapi", "own", "This document"),
)  # fmt: skip


def document(version: str) -> dict[str, Any]:
    """Return the document.

    Args:
        version: of Skysail.
    """
    paths: dict[str, Any] = {}
    for one in OPERATIONS:
        paths.setdefault(one.path, {})[one.method] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Skysail's gateway", "version": version or "0"},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(one: PathEntry) -> dict[str, Any]:
    told: dict[str, Any] = {"summary": one.about, "tags": [one.door], "responses": _responses(one)}
    names = [part.partition("}")[0] for part in one.path.split("{")[1:]]
    if names:
        told["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[^/]+$"}}
            for name in names
        ]
    if one.takes:
        told["requestBody"] = {"required": True, "content": _json(one.takes)}
    return told


def _responses(one: PathEntry) -> dict[str, Any]:
    fine: dict[str, Any] = {"description": "as asked"}
    if one.gives is not None:
        fine["content"] = _json(one.gives) if one.gives else {"text/plain": {"schema": _TEXT}}
    failed = {"description": "why not, and what to do", "content": _json(_ERRORS.get(one.door, "Error"))}
    found = {str(one.status): fine, "default": failed}
    return found | ({"503": {**fine, "description": "not yet"}} if one.unready else {})


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _record(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties}


def _list(name: str) -> dict[str, Any]:
    return {"type": "array", "items": {"$ref": f"#/components/schemas/{name}"}}


_ROWS: Final = {"type": "array", "minItems": 1}
_ERRORS: Final = {"mlflow": "MlflowError", "personalizer": "PersonalizerError"}
_DATATYPE: Final = {"enum": [*tensors.TYPES, tensors.BYTES]}
_SHAPE: Final = {"type": "array", "minItems": 1, "maxItems": 16, "items": {"type": "integer", "minimum": 0}}
_PARAMETERS: Final = {
    "type": ["object", "null"],
    "properties": {
        "context": _MAYBE, "slo_ms": {"type": ["number", "null"]}, "priority": {"type": ["integer", "null"]},
        "version": _MAYBE, "top": {"type": ["integer", "null"], "minimum": 1},
    },
}  # fmt: skip
SCHEMAS: Final[Mapping[str, Any]] = {
    "Any": _OBJECT,
    "Error": _record("error", error=_TEXT),
    "MlflowError": _record("error_code message", error_code=_TEXT, message=_TEXT),
    "PersonalizerError": _record("error", error=_record("code message", code=_TEXT, message=_TEXT)),
    "Live": _record("live", live={"type": "boolean"}),
    "Ready": _record("ready", ready={"type": "boolean"}, reason=_TEXT),
    "ModelReady": _record("name ready", name=_TEXT, ready={"type": "boolean"}),
    "Server": _record("name version extensions", name=_TEXT, version=_TEXT, extensions=_TEXTS),
    "Applications": _record("models", models=_list("ModelReady")),
    "Described": _record(
        "name datatype shape",
        name=_TEXT, datatype=_DATATYPE, shape={"type": "array", "items": {"type": "integer", "minimum": -1}},
    ),
    "Metadata": _record(
        "name platform inputs outputs",
        name=_TEXT, versions=_TEXTS, platform=_TEXT, inputs=_list("Described"), outputs=_list("Described"),
    ),
    "Statistics": _record("model_stats", model_stats={"type": "array", "minItems": 1, "items": _OBJECT}),
    "InputTensor": _record(
        "name datatype shape data", name=_TEXT, datatype=_DATATYPE, shape=_SHAPE, data={"type": "array"}
    ),
    "Inference": _record(
        "inputs",
        id=_MAYBE, parameters=_PARAMETERS, inputs={**_list("InputTensor"), "minItems": 1},
        outputs={"type": ["array", "null"], "items": _record("name", name=_TEXT)},
    ),
    "OutputTensor": _record(
        "name datatype shape data", name=_TEXT, datatype=_DATATYPE, shape=_SHAPE, data={"type": "array"}
    ),
    "Inferred": _record(
        "model_name outputs", model_name=_TEXT, model_version=_TEXT, id=_TEXT, outputs=_list("OutputTensor")
    ),
    "Told": {
        **_record(
            "id",
            id={**_TEXT, "minLength": 1}, context=_MAYBE, loss=_SHARE, weight=_WEIGHT, metric=_TEXT,
            value={"type": "number"},
        ),
        "oneOf": [{"required": ["label"]}, {"required": ["loss"]}, {"required": ["metric", "value"]}],
    },
    "Feedback": {"anyOf": [
        {"$ref": "#/components/schemas/Told"},
        _record("feedback", feedback={**_list("Told"), "minItems": 1}),
    ]},
    "Taken": _record("taken", taken={"type": "integer", "minimum": 1}),
    "Predict": {**_OBJECT, "oneOf": [_record("instances", instances=_ROWS), {"required": ["inputs"]}]},
    "Invocation": {**_OBJECT, "oneOf": [
        _record("dataframe_split", dataframe_split=_record("data", columns=_MAYBE_TEXTS, data=_ROWS)),
        _record("dataframe_records", dataframe_records={**_ROWS, "items": _OBJECT}),
        _record("instances", instances=_ROWS),
        {"required": ["inputs"]},
    ]},
    "Answers": {**_OBJECT, "anyOf": [{"required": ["predictions"]}, {"required": ["outputs"]}]},
    "Action": _record("id", id=_TEXT, features={"type": "array", "items": _OBJECT}),
    "Rank": _record(
        "actions",
        eventId=_MAYBE, actions={**_list("Action"), "minItems": 1}, contextFeatures={},
        excludedActions=_MAYBE_TEXTS,
    ),
    "Ranked": _record("id probability", id=_TEXT, probability=_SHARE),
    "Ranking": _record("ranking eventId rewardActionId", ranking=_list("Ranked"), eventId=_TEXT, rewardActionId=_TEXT),
    "Reward": _record("value", value=_SHARE),
}  # fmt: skip
