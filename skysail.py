"""The public face of Skysail: what an application needs, and nothing else.

    from skysail import Client, package_sklearn

`python -m skysail VERB` is the command line of this Python. Everything else may change without notice.
"""

from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).resolve().parent
for _name in ("schemas", "policies", "streams", "workers"):
    _spec = find_spec(_name)
    _place = Path(_spec.origin).resolve().parent if _spec is not None and _spec.origin else None
    if _place is not None and _place != _HERE / _name:
        raise ImportError(
            f"skysail has a package called {_name}, and Python finds another one first: {_place}. Rename that folder,"
            " or keep the script that imports skysail in another one"
        )

from schemas.codec import Codec  # noqa: E402
from schemas.records import (  # noqa: E402
    Application,
    Features,
    Feedback,
    Model,
    NamedTensors,
    Observation,
    Observations,
    Prediction,
    Query,
    Status,
    Tensor,
    TensorForm,
)
from streams.client import Client, UnansweredError  # noqa: E402
from streams.consumers.consume import consume  # noqa: E402
from streams.sync import SyncClient  # noqa: E402
from workers.packages.loading import load_package  # noqa: E402
from workers.packages.packaging import (  # noqa: E402
    package_container,
    package_files,
    package_function,
    package_lightgbm,
    package_linear,
    package_onnx,
    package_sklearn,
    package_torch,
    package_xgboost,
)

__all__ = [
    "Application",
    "Client",
    "Codec",
    "Features",
    "Feedback",
    "Model",
    "NamedTensors",
    "Observation",
    "Observations",
    "Prediction",
    "Query",
    "Status",
    "SyncClient",
    "Tensor",
    "TensorForm",
    "UnansweredError",
    "consume",
    "load_package",
    "package_container",
    "package_files",
    "package_function",
    "package_lightgbm",
    "package_linear",
    "package_onnx",
    "package_sklearn",
    "package_torch",
    "package_xgboost",
]

if __name__ == "__main__":  # `python -m skysail`: a notebook's Python need not have the command on its path
    from deploy.cli import main

    main()
