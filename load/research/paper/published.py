"""What Clipper's authors have published: the paper (NSDI 2017) and the data of its plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

# Figure 4, queries a second: AIMD, quantile regression, no batching; objective 20 ms, MNIST. The network stands in for
# the linear SVM on Spark.
FIGURE4: Final[Mapping[str, tuple[int, int, int]]] = {
    "no-op": (48_386, 46_085, 8_964),
    "linear-svm": (48_934, 47_879, 353),
    "logistic": (47_220, 43_954, 353),
    "network": (29_351, 27_743, 7_207),
    "forest": (22_859, 19_904, 317),
    "kernel-svm": (198, 189, 203),
}
BATCHING_GAIN: Final = 26  # of the linear SVM, as the text says
DELAY_GAIN: Final = 3.3  # figure 5: 2 ms of waiting, linear SVM
FIGURE6: Final[Mapping[int, float]] = {1: 1.0, 4: 77_000 / 19_500}
RECALL: Final[Mapping[str, int]] = {"without": 6_000, "with": 11_000}  # observations a second, four models
ENSEMBLE_GAIN: Final = 0.052  # relative, of the error on ImageNet
