"""A loaded and warmed-up model as one function: what a worker's thread or child process runs.

A compiled model gets batches of allowed sizes only. A smaller batch is padded, and the padding's answers are dropped:

    5 rows ──▶ 8 rows, the last one repeated ──▶ model ──▶ 8 answers ──▶ the first 5

Rows that came as addresses are read first, as many at a time as the bound on memory allows.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

from policies.allowed_sizes import padded
from policies.foreign import pass_on_interrupt, told
from schemas.records import Outcome, dense_of, element
from streams.operators.contract import Predicted
from workers.errors import OutputError
from workers.executors.joining import joined
from workers.inputs.references import References
from workers.inputs.rows import predict_rows
from workers.inputs.tables import blank_row
from workers.packages.loading import load_package
from workers.runtimes.contract import Outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from schemas.records import Input
    from workers.executors.frames import Package
    from workers.manifest import Manifest, Signature
    from workers.packages.loading import LoadedModel
    from workers.runtimes.contract import Rows, Runtime

# Queries wait meanwhile, or another version answers them.
WARM_UP_S: Final = 10.0
# Where a model runs inside selection its time was measured on its sample: 1 ms at most, so 10 ms for a row that is ten
# times as long. Where the sample is short, a row may have so many characters all the same: scikit-learn's n-grams of 3
# to 5 characters, the slowest found, then take 6.6 to 7.8 ms of a core, 3.7 us for each (measured: a text of 2,048).
TIMES_SAMPLE: Final = 10
LEAST_LONGEST: Final = 2_048


def loaded_by(package: Package) -> LoadedModel:
    """Load a package as it says.

    Raises:
        PackageError: it cannot be loaded.
    """
    return load_package(
        package.folder,
        allow_pickle=package.allow_pickle,
        digest=package.digest,
        threads=package.threads,
        sizes=package.measured_sizes,
        code=package.code,
        root=package.root,
        cache=package.cache,
        keys=package.keys,
        version=package.version,
    )


def predictor(
    model: LoadedModel, sizes: tuple[int, ...] = (), references: References | None = None
) -> Callable[[Sequence[Input]], Predicted]:
    """Return a function that predicts rows. Its first calls, often far slower than the rest, have been made already.

    It is tried on a blank row, then on the rows that its package keeps. A model that cannot answer a blank row is not
    refused, because real rows may look different.

    Args:
        model: that is asked.
        sizes: of the batches that it may be given, rising, each tried once now; none = any.
        references: reads rows that came as addresses, where the package takes them; None = from nowhere.
    """
    runtime: Runtime = Padded(model.runtime, sizes) if sizes else model.runtime
    known, manifest = references or References(), model.manifest  # not all of the model: its rows are let go of

    def ask(inputs: Sequence[Input]) -> Predicted:
        if manifest.input.by_reference and any(isinstance(row, str) for row in inputs):
            return _read_and_predicted(runtime, manifest, known, inputs)
        return predict_rows(runtime, manifest, inputs)

    predict = unfailing(ask)
    if sizes and (prepare := getattr(model.runtime, "prepare", None)) is not None:
        prepare(sizes)
    for size in sizes or (1,):
        predict([blank(manifest.input)] * size)
    warm_up(predict, model.warm_up)
    return predict


def unfailing(
    ask: Callable[[Sequence[Input]], Predicted],
) -> Callable[[Sequence[Input]], Predicted]:
    """Return a function that raises nothing: where all else fails, and a model may spoil even that, all rows fail."""

    def predict(inputs: Sequence[Input]) -> Predicted:
        try:
            return ask(inputs)
        except BaseException as error:  # noqa: BLE001 - a lane that hears of an error instead of a batch would wait for ever
            pass_on_interrupt(error)
            return Predicted.failed(len(inputs), told(error))

    return predict


def longest_inside(model: LoadedModel) -> int:
    """Return how large a row may be where a model runs inside selection: ten times the largest of its sample.

    Args:
        model: with the rows that it is warmed up by.

    Returns:
        characters of a text, or bytes; 0 = any, as tensors have one size.
    """
    if model.manifest.input.kind == "tensor":
        return 0
    return max(LEAST_LONGEST, TIMES_SAMPLE * max(map(_size, model.warm_up), default=0))


def within(
    longest: int, ask: Callable[[Sequence[Input]], Predicted], name: str
) -> Callable[[Sequence[Input]], Predicted]:
    """Return a function that refuses longer rows, and asks a model about no more than one such row has at a time.

    Between two parts another thread has its turn, so what else its process does waits for one part at most.

    Args:
        longest: that a row may be, characters of a text or bytes.
        ask: answers rows.
        name: of the model.
    """

    def predict(inputs: Sequence[Input]) -> Predicted:
        sizes = [*map(_size, inputs)]
        if sum(sizes) <= longest:
            return ask(inputs)
        parts: list[Predicted] = []
        start = 0
        for end in _ends(sizes, longest):
            if sizes[start] > longest:
                parts.append(_too_long(name, sizes[start], longest))
            else:
                parts.append(ask(inputs[start:end]))
            start = end
        return joined(parts)

    return predict


def _ends(sizes: Sequence[int], longest: int) -> Iterator[int]:
    """Return where parts end that are together no longer than one row may be; longer rows are alone."""
    held = 0
    for place, size in enumerate(sizes):
        if held and held + size > longest:
            yield place
            held = 0
        held += max(1, size)
    yield len(sizes)


def _too_long(name: str, size: int, longest: int) -> Predicted:
    why = (
        f"model {name} takes at most {longest:,} characters or bytes a row, got {size:,}: it runs inside selection,"
        " where a row may be ten times as long as its sample's. A worker of its own takes any"
    )
    return Predicted((Outcome.INVALID,), np.zeros(1, np.int64), reasons={0: "size"}, messages={0: why})


def _size(row: Input) -> int:
    return len(row) if isinstance(row, str | bytes) else len(row.data)


def warm_up(
    predict: Callable[[Sequence[Input]], Predicted],
    rows: Sequence[Input],
    now_s: Callable[[], float] = time.monotonic,
) -> int:
    """Have rows answered in batches of 1, 2, 4 and so on, for ten seconds at most; returns how many were.

    Batches of many sizes are tried, because memory, kernels and caches are often made for each size at its first time.
    """
    start_s, done, size = now_s(), 0, 1
    while done < len(rows) and now_s() - start_s < WARM_UP_S:
        predict(rows[done : done + size])
        done, size = min(done + size, len(rows)), 2 * size
    return done


def _read_and_predicted(
    runtime: Runtime, manifest: Manifest, references: References, inputs: Sequence[Input]
) -> Predicted:
    """Read and predict a batch in parts, each of which fits into memory whatever lies at its addresses."""
    parts = []
    step = references.step(manifest.input)
    for start in range(0, len(inputs), step):
        rows, refused = references.read(manifest.input, inputs[start : start + step])
        parts.append(predict_rows(runtime, manifest, rows, refused))
    return joined(parts)


def blank(signature: Signature) -> Input:
    """Return an empty input of a signature: zeros, or no characters."""
    if signature.kind == "tensor":
        return dense_of(np.zeros(signature.shape, element(signature.dtype)))
    if signature.kind == "table":
        return blank_row(signature)
    return "" if signature.kind == "string" else b""


class Padded:
    """The runtime behind it sees batches of `sizes` only; more rows than the largest become several batches."""

    def __init__(self, runtime: Runtime, sizes: tuple[int, ...]) -> None:
        """Wrap a runtime; `sizes` rise."""
        self._runtime = runtime
        self._sizes = sizes

    def predict_batch(self, rows: Rows) -> Outputs:
        """Answer every row.

        Raises:
            OutputError: the model did not answer as many rows as it was given.
        """
        largest = self._sizes[-1]
        if len(rows) <= largest:
            return self._padded(rows)
        parts = [self._padded(rows[start : start + largest]) for start in range(0, len(rows), largest)]
        return _joined(parts)

    def _padded(self, rows: Rows) -> Outputs:
        count = len(rows)
        size = padded(count, self._sizes)
        if size == count:
            return self._runtime.predict_batch(rows)
        outputs = self._runtime.predict_batch(_filled(rows, size - count))
        if len(outputs.answers) != size:
            raise OutputError(f"the model returned {len(outputs.answers)} answers for {size} rows")
        return Outputs(outputs.answers[:count], None if outputs.scores is None else outputs.scores[:count])


def _filled(rows: Rows, missing: int) -> Rows:
    """Repeat the last row: the model takes it, while it may never have seen zeros."""
    if isinstance(rows, np.ndarray):
        return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)])
    return [*rows, *[rows[-1]] * missing]


def _joined(parts: list[Outputs]) -> Outputs:
    scores = [part.scores for part in parts if part.scores is not None]
    answers = [part.answers for part in parts]
    if isinstance(answers[0], tuple):
        texts = tuple(text for column in answers for text in column)
        return Outputs(texts, np.concatenate(scores) if scores else None)
    return Outputs(np.concatenate(answers), np.concatenate(scores) if scores else None)
