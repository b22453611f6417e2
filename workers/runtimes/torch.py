"""Runs a torch module: state from safetensors, architecture from an importable factory.

A network may be packaged as trunk and head, a module each. The models of a process that have one trunk hold it once.

`torch.load` is called when a model is packaged, and reads only tensors. A worker never calls it.

On the CPU a model gets one thread unless the settings say otherwise. On a GPU, if there is one, a batch goes through a
pipeline (`pipeline`, `cuda`), and batches of allowed sizes run as CUDA graphs. Answers depend on their batch by
rounding at most. So the module is in evaluation mode, and TF32 is off, whose 10-bit mantissa makes scores differ by
1e-3.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import threading
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_bytes
from safetensors.torch import load_file, save_file
from safetensors.torch import save as save_bytes

from policies.foreign import told
from workers.entry_point import resolve
from workers.errors import OutputError, PackageError
from workers.runtimes import programs
from workers.runtimes.compiled import Compiled
from workers.runtimes.contract import Outputs, by_name, part, scored, tensors, values
from workers.runtimes.cuda import Cuda
from workers.runtimes.pipeline import LEAST_ROWS, DevicePipeline
from workers.runtimes.stages.store import HERE
from workers.runtimes.trunks import trunk_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from workers.manifest import Manifest
    from workers.runtimes.contract import Files, Rows

_log = logging.getLogger(__name__)

STATE_FILE = "model.safetensors"
# Fewest rows of a batch unless the package says otherwise. Small batches run other kernels, which add in another order.
# Logits of ParM's MNIST network (784-200-100-10, torch 2.15) differ by up to 1.5e-5, at 49. They are equal to the bit
# from 16 rows on with AVX-512, from 4 on with AVX2. Four rows instead of one take 3.3 times as long for a small
# convolution and 2.2 times for 20 million weights; 16 rows take 12 and 3.4 times.
MIN_ROWS = 1
READS_WHAT_IT_LACKS = True  # a trunk that is there already is not read again
_HERE = threading.local()  # a limit holds for the thread that sets it, and for those that begin later
_NUMPY = (torch.float32, torch.float64)  # numpy has no bfloat16, and half precision gains nothing on the wire


class TorchRuntime:
    """A module as a model.

    Attributes:
        leaves_lock: it computes without Python's lock.
        trunk: that comes before the head; None = the network is whole.
        head: that is asked about what the trunk gives.
    """

    leaves_lock = True

    def __init__(
        self,
        manifest: Manifest,
        module: torch.nn.Module,
        device: torch.device,
        threads: int,
        trunk: TorchTrunk | None = None,
    ) -> None:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        self._manifest = manifest
        self._device = device
        self._threads = threads
        self._min_rows = int(manifest.options.get("min_rows", MIN_ROWS))
        module = module.to(device).eval()
        self.trunk = trunk
        self.head = None if trunk is None else TorchHead(manifest, module, self._min_rows)
        if trunk is not None:
            module = torch.nn.Sequential(trunk.module, module)
        self._module: Callable[[torch.Tensor], torch.Tensor] = module
        if manifest.options.get("compile", False):
            self._module = Compiled(self._module, torch.compile(module), self._not_compiled)
        is_named = bool(manifest.input.inputs or manifest.outputs)
        self._pipeline = None if device.type == "cpu" or is_named else self._piped(device)

    @property
    def waits(self) -> bool:
        """Whether a call waits for a device most of its time."""
        return self._device.type != "cpu"

    def predict_batch(self, rows: Rows) -> Outputs:
        """Run the module once.

        It must answer (n, k) scores, (n,) or (n, 1) numbers for the output `value`, or for `tensors` several, (n, ...).
        """
        _limit(self._threads)
        batch = _filled_up(np.asarray(rows), self._min_rows)
        with torch.inference_mode():
            answers = (
                _called(self._module, batch, self._device) if self._pipeline is None else self._pipeline.answer(batch)
            )
        return _outputs(self._manifest, answers, len(batch), len(rows))

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

    def _piped(self, device: torch.device) -> DevicePipeline:
        signature = self._manifest.input
        dtype = torch.from_numpy(np.empty(0, signature.dtype)).dtype
        least_rows = max(LEAST_ROWS, self._min_rows)
        return DevicePipeline(
            Cuda(device, lambda rows: _numbers(self._module(rows)), signature.shape, dtype), least_rows
        )

    def _not_compiled(self, error: BaseException) -> None:
        _log.warning("%s cannot be compiled and runs as it is: %s", self._name, told(error, lines=1))


class TorchTrunk:
    """What several networks have before their heads.

    Attributes:
        digest: equal trunks have equal ones.
        module: on its device.
    """

    def __init__(self, digest: str, module: torch.nn.Module, device: torch.device, threads: int, min_rows: int) -> None:
        self.digest = digest
        self.module = module.to(device).eval()
        self._device, self._threads, self._min_rows = device, threads, min_rows

    def run(self, rows: Rows) -> torch.Tensor:
        """Run the trunk once.

        Raises:
            OutputError: it does not give something for each row.
        """
        _limit(self._threads)
        batch = _filled_up(np.asarray(rows), self._min_rows)
        with torch.inference_mode():
            found: torch.Tensor = self.module(torch.from_numpy(batch).to(self._device))
        if len(found) != len(batch):
            raise OutputError(f"the trunk gives {len(found)} rows for {len(batch)}")
        return found[: len(rows)]

    def split(self, middle: torch.Tensor) -> list[torch.Tensor]:
        """Return it row by row."""
        return [row.clone() for row in middle]

    def joined(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Put rows together again."""
        return torch.stack([*parts])


class TorchHead:
    """What a network does with what its trunk gives."""

    def __init__(self, manifest: Manifest, module: torch.nn.Module, min_rows: int) -> None:
        self._manifest, self._module, self._min_rows = manifest, module, min_rows

    def predict_batch(self, rows: torch.Tensor) -> Outputs:
        """Answer as the whole network does."""
        missing = self._min_rows - len(rows)
        with torch.inference_mode():
            batch = torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing > 0 else rows
            answers = _numbers(self._module(batch)).cpu().numpy()
        return _outputs(self._manifest, answers, len(batch), len(rows))


def _limit(threads: int) -> None:
    """Bound the threads of this thread's arithmetic."""
    if getattr(_HERE, "limit", 0) != threads:
        torch.set_num_threads(threads)
        _HERE.limit = threads


def _filled_up(batch: NDArray[np.generic], least: int) -> NDArray[np.generic]:
    """Repeat the last row until there are enough."""
    missing = least - len(batch)
    return np.concatenate([batch, np.repeat(batch[-1:], missing, axis=0)]) if missing > 0 else batch


def _numbers(raw: torch.Tensor) -> torch.Tensor:
    """Return numbers of a type that numpy has; whole ones stay as they are.

    Raises:
        OutputError: they are no tensor.
    """
    if not isinstance(raw, torch.Tensor):
        raise OutputError(f"a network must answer tensors, not {type(raw).__name__}: end it with those that count")
    return raw.float() if raw.is_floating_point() and raw.dtype not in _NUMPY else raw


def _called(module: Callable[..., Any], batch: NDArray[np.generic], device: torch.device) -> Any:
    """Return what a network answers: an array, or several by name or in order; named tensors are its arguments."""
    given = by_name(batch)
    if isinstance(given, dict):
        raw = module(**{name: torch.from_numpy(array).to(device) for name, array in given.items()})
    else:
        raw = module(torch.from_numpy(given).to(device))
    raw = raw._asdict() if hasattr(raw, "_asdict") else raw
    if isinstance(raw, dict):
        return {name: _numbers(one).cpu().numpy() for name, one in raw.items()}
    return (
        [_numbers(one).cpu().numpy() for one in raw] if isinstance(raw, list | tuple) else _numbers(raw).cpu().numpy()
    )


def _outputs(manifest: Manifest, answers: Any, batch: int, rows: int) -> Outputs:
    """Bring the answers to a batch that was filled up into the form that travels."""
    if manifest.output == "tensors":
        return Outputs(tensors(answers, manifest.outputs, batch).answers[:rows])
    if not isinstance(answers, np.ndarray):
        raise OutputError(f"the network answers {len(answers)} tensors: package it with output='tensors'")
    if len(answers) == batch:
        answers = answers[:rows]
    if manifest.output == "value":
        return values(answers)
    return scored(answers, manifest.classes, keep=manifest.output == "scores")


def original(module: torch.nn.Module, trunk: torch.nn.Module | None, manifest: Manifest) -> Callable[[Any], Outputs]:
    """Return what asks a network itself, where it is, in evaluation mode; its own mode stays."""
    whole = module if trunk is None else torch.nn.Sequential(trunk, module)
    is_plain = manifest.output in {"value", "tensors"}
    scoring = manifest if is_plain else replace(manifest, output="scores")

    def asked(rows: Any) -> Outputs:
        return _outputs(scoring, answered_by(whole, rows), len(rows), len(rows))

    return asked


def answered_by(whole: torch.nn.Module, rows: Any) -> Any:
    """Return what a network itself answers, in evaluation mode; its own mode stays."""
    modes = {each: each.training for each in whole.modules()}
    where = next((each.device for each in (*whole.parameters(), *whole.buffers())), torch.device("cpu"))
    try:
        with torch.inference_mode():
            return _called(whole.eval(), rows, where)
    finally:
        for each, mode in modes.items():
            each.training = mode


def is_short(module: torch.nn.Module) -> bool:
    """Tell whether a network computes in 16 bits."""
    return any(each.dtype in {torch.float16, torch.bfloat16} for each in module.parameters())


def save(module: torch.nn.Module, folder: Path) -> str:
    """Write the module's state into `folder` and return the name of the file."""
    save_file(_tensors(module), folder / STATE_FILE)
    return STATE_FILE


def save_trunk(module: torch.nn.Module, folder: Path) -> str:
    """Write a trunk's state into `folder` and return the name of the file, which is its digest."""
    content = save_bytes(_tensors(module))
    name = f"{hashlib.sha256(content).hexdigest()}.safetensors"
    (folder / name).write_bytes(content)
    return name


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in module.state_dict().items()}


def rebuild(state: Path, architecture: str, arguments: Mapping[str, object]) -> torch.nn.Module:
    """Build an architecture and fill it with a state: of safetensors, of an exported program, or of `torch.save`.

    The last one is a pickle, of which only tensors are read (`weights_only`).

    Raises:
        PackageError: the architecture cannot be built, or the file does not hold its state.
    """
    return _filled(architecture, arguments, _state(state), str(state))


def unpickled(file: Path) -> torch.nn.Module:
    """Read a whole network that `torch.save` has pickled: this runs the code in the file.

    Raises:
        PackageError: it holds none.
    """
    try:
        found = torch.load(file, "cpu", weights_only=False)
    except (RuntimeError, OSError, EOFError, UnpicklingError, ImportError, AttributeError) as error:
        raise PackageError(f"{file} holds no network that can be read here: {error}") from error
    if not isinstance(found, torch.nn.Module):
        raise PackageError(f"{file} holds a {type(found).__name__}, and no network")
    return found.eval()


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
        if path.suffix == ".pt2":
            return programs.weights(path)
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
    options, its = manifest.options, trunk_of(manifest)
    module = _restored(files, STATE_FILE, str(options.get("architecture", "")), options.get("arguments", {}))
    if not its.digest:
        return TorchRuntime(manifest, module, device(), threads)

    def made() -> TorchTrunk:
        told = options["trunk"]
        found = _restored(files, told["file"], told["architecture"], told.get("arguments", {}))
        return TorchTrunk(its.digest, found, device(), threads, int(options.get("min_rows", MIN_ROWS)))

    return TorchRuntime(manifest, module, device(), threads, HERE.take(its.key, made))


def _restored(files: Files, name: str, architecture: str, arguments: Mapping[str, object]) -> torch.nn.Module:
    content = part(files, name)
    try:
        state = load_bytes(content)
    except (SafetensorError, RuntimeError) as error:
        raise PackageError(f"{name} is no state of a network ({error}): package the model again") from error
    return _filled(architecture, arguments, state, name)


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
