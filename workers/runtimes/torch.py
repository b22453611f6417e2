"""Runs a torch module: state from safetensors, architecture from an importable factory.

`torch.load` is called when a model is packaged, and reads only tensors. A worker never calls it.

On the CPU a model gets one thread unless the settings say otherwise. On a GPU, if there is one, a batch goes through a
pipeline (`pipeline`, `cuda`), and batches of allowed sizes run as CUDA graphs. Answers depend on their batch by
rounding at most. So the module is in evaluation mode, and TF32 is off, whose 10-bit mantissa makes scores differ by
1e-3.
"""

from __future__ import annotations

import inspect
import logging
import threading
from contextlib import suppress
from functools import partial
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file, save_file

from workers.entry_point import resolve
from workers.errors import PackageError
from workers.runtimes.compiled import Compiled
from workers.runtimes.contract import part, scored, values
from workers.runtimes.cuda import Cuda
from workers.runtimes.pipeline import LEAST_ROWS, Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Outputs, Rows

_log = logging.getLogger(__name__)

STATE_FILE = "model.safetensors"
# Fewest rows of a batch unless the package says otherwise. Small batches run other kernels, which add in another order.
# Logits of ParM's MNIST network (784-200-100-10, torch 2.15) differ by up to 1.5e-5, at 49. They are equal to the bit
# from 16 rows on with AVX-512, from 4 on with AVX2. Four rows instead of one take 3.3 times as long for a small
# convolution and 2.2 times for 20 million weights; 16 rows take 12 and 3.4 times.
MIN_ROWS = 1
_NUMPY = (torch.float32, torch.float64)  # numpy has no bfloat16, and half precision gains nothing on the wire


class TorchRuntime:
    """A module as a model.

    Attributes:
        leaves_lock: it computes without Python's lock.
    """

    leaves_lock = True

    def __init__(self, manifest: Manifest, module: torch.nn.Module, device: torch.device, threads: int) -> None:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        self._manifest = manifest
        self._device = device
        self._threads = threads
        self._here = threading.local()  # a limit holds for the thread that sets it, and for those that begin later
        self._min_rows = int(manifest.options.get("min_rows", MIN_ROWS))
        self._module: Callable[[torch.Tensor], torch.Tensor] = module.to(device).eval()
        if manifest.options.get("compile", False):
            self._module = Compiled(self._module, torch.compile(module), self._not_compiled)
        self._pipeline = None if device.type == "cpu" else self._piped(device)

    @property
    def waits(self) -> bool:
        """Whether a call waits for a device most of its time."""
        return self._device.type != "cpu"

    def predict_batch(self, rows: Rows) -> Outputs:
        """Run the module once; it must answer (n, k) scores, or (n,) or (n, 1) numbers for the output `value`."""
        if not hasattr(self._here, "limit"):
            torch.set_num_threads(self._threads)
            self._here.limit = self._threads
        batch = np.asarray(rows)
        missing = self._min_rows - len(batch)
        if missing > 0:
            batch = np.concatenate([batch, np.repeat(batch[-1:], missing, axis=0)])
        with torch.inference_mode():
            if self._pipeline is None:
                answers: NDArray[np.generic] = self._numbers(torch.from_numpy(batch)).numpy()
            else:
                answers = self._pipeline.answer(batch)
        if len(answers) == len(batch):
            answers = answers[: len(rows)]
        if self._manifest.output == "value":
            return values(answers)
        return scored(answers, self._manifest.classes, keep=self._manifest.output == "scores")

    def prepare(self, sizes: Sequence[int]) -> None:
        """On a GPU, record a graph of launches for each of these sizes of batches; the log says if that cannot be."""
        if self._pipeline is None:
            return
        with torch.inference_mode():
            why = self._pipeline.prepare(sorted({max(size, self._min_rows) for size in sizes}))
        if why:
            _log.warning("%s: not all batches run as CUDA graphs: %s", self._name, why)

    @property
    def _name(self) -> str:
        return f"{self._manifest.name} {self._manifest.version}"

    def _piped(self, device: torch.device) -> Pipeline:
        signature = self._manifest.input
        dtype = torch.from_numpy(np.empty(0, signature.dtype)).dtype
        least_rows = max(LEAST_ROWS, self._min_rows)
        return Pipeline(Cuda(device, self._numbers, signature.shape, dtype), least_rows)

    def _numbers(self, rows: torch.Tensor) -> torch.Tensor:
        raw = self._module(rows)
        return raw if raw.dtype in _NUMPY else raw.float()

    def _not_compiled(self, error: Exception) -> None:
        why = str(error).strip().partition("\n")[0]
        _log.warning("%s cannot be compiled and runs as it is: %s: %s", self._name, type(error).__name__, why)


def save(module: torch.nn.Module, folder: Path) -> str:
    """Write the module's state into `folder` and return the name of the file."""
    state = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in module.state_dict().items()}
    save_file(state, folder / STATE_FILE)
    return STATE_FILE


def rebuild(state: Path, architecture: str, arguments: Mapping[str, object]) -> torch.nn.Module:
    """Build an architecture and fill it with a state that was saved as safetensors or by `torch.save`.

    The latter is a pickle, of which only tensors are read (`weights_only`).

    Raises:
        PackageError: the architecture cannot be built, or the file does not hold its state.
    """
    return _filled(architecture, arguments, _state(state), str(state))


def _filled(architecture: str, arguments: Mapping[str, object], state: Any, source: str) -> torch.nn.Module:
    module = _build(architecture, dict(arguments))
    try:
        module.load_state_dict(state, strict=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        raise PackageError(f"{source} does not hold the state of {architecture}: {error}") from error
    return module


def _state(path: Path) -> Any:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return torch.load(path, "cpu", weights_only=True)
    except (SafetensorError, RuntimeError, OSError, EOFError, UnpicklingError) as error:
        raise PackageError(
            f"{path} is no state of a network ({type(error).__name__}): save it with safetensors.torch.save_file("
            'net.state_dict(), "net.safetensors"), or with torch.save(net.state_dict(), "net.pt")'
        ) from error


def load(manifest: Manifest, files: Files, *, allow_pickle: bool, threads: int) -> TorchRuntime:  # noqa: ARG001 - the contract's
    """Build the architecture and fill in the state of a verified package.

    Raises:
        PackageError: the architecture cannot be built, or the state is not its state.
    """
    options, content = manifest.options, part(files, STATE_FILE)
    try:
        state = load_bytes(content)
    except (SafetensorError, RuntimeError) as error:
        raise PackageError(f"{STATE_FILE} is no state of a network ({error}): package the model again") from error
    module = _filled(str(options.get("architecture", "")), options.get("arguments", {}), state, STATE_FILE)
    return TorchRuntime(manifest, module, device(), threads)


def device() -> torch.device:
    """Return where models run: a GPU, where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _build(path: str, arguments: dict[str, object]) -> torch.nn.Module:
    factory = resolve(path)
    if not makes_module(factory):
        raise PackageError(
            f"{path} does not declare that it makes a network, so it is not called: name a"
            " subclass of torch.nn.Module, or annotate the function, as in def make_net(...) -> torch.nn.Module"
        )
    try:
        module = factory(**arguments)
    except TypeError as error:
        raise PackageError(f"{path} cannot be called with {arguments}: {error}") from error
    if not isinstance(module, torch.nn.Module):
        raise PackageError(
            f"{path} returned {type(module).__name__}, not a torch.nn.Module: name the factory of the network"
        )
    return module


def makes_module(factory: Callable[..., object]) -> bool:
    """Tell whether calling it makes a network: it is the class of one, or its annotation says so."""
    if isinstance(factory, type):
        return issubclass(factory, torch.nn.Module)
    factory = factory.func if isinstance(factory, partial) else factory
    found = getattr(factory, "__annotations__", {}).get("return")
    if isinstance(found, str):
        with suppress(NameError, AttributeError):  # it may be imported for type checkers only
            found = inspect.get_annotations(inspect.unwrap(factory), eval_str=True).get("return")
    if isinstance(found, str):
        found = getattr(torch.nn, found.rpartition(".")[2], None)
    return isinstance(found, type) and issubclass(found, torch.nn.Module)
