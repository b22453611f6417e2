"""The weights of a program that `torch.export.save` has written, read without a pickle.

net.pt2 (a zip, stored as it is)
├── */data/weights/model_weights_config.json   name, type, shape and strides of each weight, and the file that holds it
└── */data/weights/weight_0                    its bytes

Nothing else of the file is read: the program itself is built anew by an architecture.
"""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any, Final

import torch

from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG: Final = "/data/weights/model_weights_config.json"
_MOST_CONFIG_BYTES: Final = 64 << 20
# The codes of `torch._export.serde.schema.ScalarType`.
_DTYPES: Final[Mapping[int, torch.dtype]] = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16,
    7: torch.float32, 8: torch.float64, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip


def weights(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of an exported program by name.

    Raises:
        PackageError: it is none, or one of its weights would need a pickle.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (config,) = [name for name in archive.namelist() if name.endswith(CONFIG)]
            told = json.loads(_stored(archive, config, _MOST_CONFIG_BYTES))["config"]
            folder = config.rpartition("/")[0]
            return {name: _weight(archive, folder, its) for name, its in told.items()}
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError, zipfile.BadZipFile) as error:
        raise PackageError(
            f"{path} is no exported program whose weights can be read ({type(error).__name__}: {error}): export the"
            " network to ONNX (torch.onnx.export) and package that"
        ) from error


def _stored(archive: zipfile.ZipFile, name: str, most: int) -> bytes:
    """Return a part of an archive, which is as large as it says: it is not compressed."""
    about = archive.getinfo(name)
    if about.compress_type != zipfile.ZIP_STORED or about.file_size > most:
        raise ValueError(f"{name} is compressed, or too large")
    return archive.read(name)


def _weight(archive: zipfile.ZipFile, folder: str, told: Mapping[str, Any]) -> torch.Tensor:
    meta = told["tensor_meta"]
    if told["use_pickle"] or meta["dtype"] not in _DTYPES:
        raise ValueError(f"{told['path_name']} is a pickle, or of type {meta['dtype']}")
    sizes, strides = ([each["as_int"] for each in meta[key]] for key in ("sizes", "strides"))
    dtype = _DTYPES[meta["dtype"]]
    name = f"{folder}/{told['path_name']}"
    content = bytearray(_stored(archive, name, archive.getinfo(name).file_size))
    if not content:
        return torch.empty(sizes, dtype=dtype)
    its = torch.frombuffer(content, dtype=dtype)
    return its.as_strided(sizes, strides, meta["storage_offset"]["as_int"]).clone()
