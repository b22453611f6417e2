"""Triton's model `simple` as an ONNX graph: two tensors in, their sum and difference out. Needs onnx."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 16


def write(file: Path) -> Path:
    """Write the graph, of float32: OUTPUT0 = INPUT0 + INPUT1, OUTPUT1 = INPUT0 - INPUT1."""
    import onnx
    from onnx import TensorProto, helper

    names = ["INPUT0", "INPUT1", "OUTPUT0", "OUTPUT1"]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", WIDTH]) for name in names]
    nodes = [helper.make_node(kind, names[:2], [name]) for kind, name in (("Add", names[2]), ("Sub", names[3]))]
    whole = helper.make_graph(nodes, "simple", inputs[:2], inputs[2:])
    onnx.save(helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), file)
    return file
