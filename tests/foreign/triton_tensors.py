"""Two tensors in, two out, with Triton's client: `python triton_tensors.py http|grpc HOST:PORT`."""

import importlib
import sys

import numpy as np

DOOR, ADDRESS = sys.argv[1:]
triton = importlib.import_module(f"tritonclient.{DOOR}")
client = triton.InferenceServerClient(ADDRESS)
NAMES, ROWS = ("INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"), 3
FIRST = np.arange(16 * ROWS, dtype=np.float32).reshape(ROWS, 16)
SECOND = FIRST[::-1].copy() / 4


def told(entries: list[dict[str, object]]) -> list[tuple[object, object, list[int]]]:
    """Return name, type and shape of each; gRPC writes numbers as texts."""
    return [(one["name"], one["datatype"], [int(size) for size in one["shape"]]) for one in entries]


def inputs(*arrays: np.ndarray, datatype: str = "FP32", names: tuple[str, ...] = NAMES) -> list[object]:
    """Return the inputs."""
    found = [triton.InferInput(name, list(array.shape), datatype) for name, array in zip(names, arrays, strict=False)]
    for each, array in zip(found, arrays, strict=True):
        each.set_data_from_numpy(array)
    return found


def refused(given: list[object]) -> str:
    """Return why a request is refused."""
    try:
        client.infer("pairs", given)
    except importlib.import_module("tritonclient.utils").InferenceServerException as error:
        return error.message()
    raise AssertionError("it is answered")


about = client.get_model_metadata("pairs", as_json=True) if DOOR == "grpc" else client.get_model_metadata("pairs")
assert told(about["inputs"]) == [(name, "FP32", [-1, 16]) for name in NAMES[:2]], about
assert told(about["outputs"])[:2] == [(name, "FP32", [-1, 16]) for name in NAMES[2:]], about

for wanted in (None, [triton.InferRequestedOutput(name) for name in NAMES[2:]]):
    result = client.infer("pairs", inputs(FIRST, SECOND), outputs=wanted)
    for name, right in (("OUTPUT0", FIRST + SECOND), ("OUTPUT1", FIRST - SECOND)):
        assert result.as_numpy(name).dtype == np.float32
        np.testing.assert_array_equal(result.as_numpy(name), right)

# In another order and type, of whole numbers; one output alone.
whole = FIRST.astype(np.int32)
result = client.infer(
    "pairs",
    inputs(whole, whole + 1, datatype="INT32", names=("INPUT1", "INPUT0")),
    outputs=[triton.InferRequestedOutput("OUTPUT1")],
)
np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), np.ones((ROWS, 16), np.float32))
assert result.as_numpy("OUTPUT0") is None

if DOOR == "http":  # as JSON
    for each, array in zip(given := inputs(FIRST, SECOND), (FIRST, SECOND), strict=True):
        each.set_data_from_numpy(array, binary_data=False)
    outputs = [triton.InferRequestedOutput(name, binary_data=False) for name in NAMES[2:]]
    result = client.infer("pairs", given, outputs=outputs)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), FIRST - SECOND)

assert "INPUT0, INPUT1" in refused(inputs(FIRST)), refused(inputs(FIRST))
assert "FP32[-1, 16]" in refused(inputs(FIRST, SECOND[:, :4].copy())), refused(inputs(FIRST, SECOND[:, :4].copy()))

(about,) = (
    client.get_model_metadata("heights", as_json=True)["outputs"][:1]
    if DOOR == "grpc"
    else client.get_model_metadata("heights")["outputs"][:1]
)
assert told([about]) == [("answer", "FP64", [-1, 2])], about
rows = triton.InferInput("input", [2, 2], "FP64")
rows.set_data_from_numpy(np.array([[1.0, 0.0], [0.0, 1.0]]))
np.testing.assert_allclose(client.infer("heights", [rows]).as_numpy("answer"), [[1, 3], [2, 4]], atol=1e-6)
