"""Predicts a batch of several models: if they have one trunk, it runs once for all their rows, then each head.

    rows of a ─┐                            ┌─▶ head of a ─▶ answers of a
    rows of b ─┼─▶ all different ones ─▶ trunk
    rows of c ─┘                            ├─▶ head of b ─▶ answers of b, and so on

A row that several models are asked about goes through the trunk once, also if that was in a batch a moment ago: what
the trunk gave of late is kept (`store.Recent`). A head that fails harms its own rows alone. If the trunk fails, each
model is asked by itself, which finds the row that is to blame.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policies.foreign import pass_on_interrupt
from workers.inputs.rows import answered
from workers.inputs.validation import validate
from workers.runtimes.stages.store import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from schemas.records import Input
    from streams.operators.contract import Predicted
    from workers.inputs.validation import Checked
    from workers.manifest import Manifest
    from workers.packages.loading import LoadedModel
    from workers.runtimes.contract import Middle, Runtime, TrunkRuntime


class Headed(NamedTuple):
    """A loaded model that has a trunk."""

    manifest: Manifest
    trunk: TrunkRuntime
    head: Runtime


class HeldModel(NamedTuple):
    """A loaded model.

    Attributes:
        predict: answers rows by itself.
        headed: its parts; None = it is only asked by itself.
    """

    predict: Callable[[Sequence[Input]], Predicted]
    headed: Headed | None = None


def headed(model: LoadedModel, sizes: Sequence[int]) -> Headed | None:
    """Return the parts of a model; None = it has none, or takes batches of some sizes or rows by reference only."""
    trunk, head = getattr(model.runtime, "trunk", None), getattr(model.runtime, "head", None)
    if trunk is None or head is None or sizes or model.manifest.input.by_reference:
        return None
    return Headed(model.manifest, trunk, head)


def together(parts: Sequence[tuple[HeldModel, Sequence[Input]]], recent: Recent | None = None) -> Iterator[Predicted]:
    """Yield the results of each part, in order, as soon as they are there.

    Args:
        parts: models and their rows.
        recent: has what trunks gave of late; None = a single part is asked by itself.
    """
    models = [copy.headed for copy, _ in parts if copy.headed is not None]
    is_alone = recent is None and len(parts) == 1
    if is_alone or len(models) < len(parts) or len({model.trunk.digest for model in models}) > 1:
        yield from (copy.predict(rows) for copy, rows in parts)
        return
    checked = [validate(model.manifest.input, rows) for model, (_, rows) in zip(models, parts, strict=True)]
    middles = _middles(models[0].trunk, checked, recent or Recent())
    for model, its, middle, (copy, rows) in zip(models, checked, middles, parts, strict=True):
        if middle is None:
            yield copy.predict(rows)
        else:
            yield answered(model.head, model.manifest, len(rows), replace(its, rows=middle))


def _middles(trunk: TrunkRuntime, checked: Sequence[Checked], recent: Recent) -> list[Middle | None]:
    """Return what the trunk gives for the rows of each part; None = it gives nothing for them all together."""
    counts = [len(its.good) for its in checked]
    if not any(counts):
        return [its.rows for its in checked]
    rows = np.concatenate([np.asarray(its.rows) for its, count in zip(checked, counts, strict=True) if count])
    young, old = recent.tables(f"trunk {trunk.digest}")
    keys = [row.tobytes() for row in rows]
    found = {key: known for key in keys if (known := young.get(key, old.get(key))) is not None}
    missing = {key: place for place, key in enumerate(keys) if key not in found}
    try:
        if missing:
            given = trunk.split(trunk.run(rows[[*missing.values()]]))
            new = dict(zip(missing, given, strict=True))
            young |= new
            recent.grew(sum(len(key) + middle.nbytes for key, middle in new.items()))
            found |= new
        middle = trunk.joined([found[key] for key in keys])
    except BaseException as error:  # noqa: BLE001 - foreign code: each model is asked by itself, which finds the culprit
        pass_on_interrupt(error)
        return [None] * len(checked)
    ends = np.cumsum(counts).tolist()
    return [middle[end - count : end] for end, count in zip(ends, counts, strict=True)]
