"""The public face of Skysail: what an application needs, and nothing else.

    from skysail import Client, package_sklearn

Whatever is not named here may change without notice.
"""

from schemas.codec import Codec
from schemas.records import Application, Feedback, Model, Observation, Observations, Prediction, Query, Status, Tensor
from streams.client import Client, UnansweredError
from streams.sync import SyncClient
from workers.loading import load_package
from workers.packaging import package_function, package_onnx, package_sklearn, package_torch

__all__ = [
    "Application",
    "Client",
    "Codec",
    "Feedback",
    "Model",
    "Observation",
    "Observations",
    "Prediction",
    "Query",
    "Status",
    "SyncClient",
    "Tensor",
    "UnansweredError",
    "load_package",
    "package_function",
    "package_onnx",
    "package_sklearn",
    "package_torch",
]
