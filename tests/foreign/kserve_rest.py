"""What a user of KServe's client would write, in both of its protocols; `python kserve_rest.py URL`."""

import asyncio
import sys

import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

URL = sys.argv[1]


async def second() -> None:
    """Open Inference v2: health, JSON and binary tensors."""
    client = InferenceRESTClient(RESTConfig(protocol="v2", timeout=60))
    assert await client.is_server_live(URL)
    assert await client.is_server_ready(URL)
    assert await client.is_model_ready(URL, "parity")
    assert not await client.is_model_ready(URL, "none")
    for binary in (False, True):
        tensor = InferInput("input", [3, 2], "FP32")
        tensor.set_data_from_numpy(np.array([[1, 2], [3, 4], [5, 5]], np.float32), binary_data=binary)
        request = InferRequest("parity", [tensor], request_id=f"kserve-{binary}")
        found = await client.infer(URL, request, model_name="parity")
        told = {one.name: one.as_numpy().tolist() for one in found.outputs}
        assert found.id == f"kserve-{binary}", found.id
        pairs = zip(told["answer"], told["decision"], strict=True)
        odd = [1 - answer if name == "wrong" else answer for answer, name in pairs]
        assert odd == [1, 1, 0], told
    await client.close()


async def first() -> None:
    """Its older protocol is TensorFlow Serving's."""
    client = InferenceRESTClient(RESTConfig(protocol="v1", timeout=60))
    found = await client.infer(URL, {"instances": [[1, 2], [5, 5]]}, model_name="parity")
    assert len(found["predictions"]) == 2, found
    await client.close()


asyncio.run(second())
asyncio.run(first())
