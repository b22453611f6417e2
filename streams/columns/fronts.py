"""Puts columns before the kernels of a process, where Skysail is compiled."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from schemas import topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from streams.columns.behind import Unpack
    from streams.columns.select import Inside
    from streams.operators.contract import AskNow, Operator
    from streams.operators.join.kernel import Joiner
    from streams.operators.learn.kernel import Learner
    from streams.operators.selection.kernel import Selection


class Fronted(NamedTuple):
    """A kernel, and the topics whose record batches it takes whole."""

    kernel: Operator
    batched: frozenset[str] = frozenset()


def before_selection(
    kernel: Operator,
    selection: Selection,
    models: Mapping[str, Inside],
    codec: Codec,
    unpack: Unpack,
    margin_us: int | None,
    ask: AskNow | None = None,
) -> Fronted:
    """Return selection with models inside, behind columns; arguments are those of `select.ColumnSelection`."""
    try:
        from streams.columns.select import columns_for_selection
    except ImportError:  # no compiler when Skysail was installed
        return Fronted(kernel)
    columns = columns_for_selection(kernel, selection, models, codec, unpack, margin_us, ask)
    return Fronted(kernel) if columns is None else Fronted(columns, frozenset({topics.QUERIES}))


def before_joiner(kernel: Joiner, codec: Codec, unpack: Unpack) -> Fronted:
    """Return the joiner behind columns."""
    try:
        from streams.columns.join import columns_for_joiner
    except ImportError:  # no compiler when Skysail was installed
        return Fronted(kernel)
    columns = columns_for_joiner(kernel, codec, unpack)
    return Fronted(kernel) if columns is None else Fronted(columns, frozenset({topics.PREDICTIONS, topics.FEEDBACK}))


def before_learner(kernel: Learner, codec: Codec, unpack: Unpack) -> Fronted:
    """Return the learner behind columns."""
    try:
        from streams.columns.learn import columns_for_learner
    except ImportError:  # no compiler when Skysail was installed
        return Fronted(kernel)
    columns = columns_for_learner(kernel, codec, unpack)
    return Fronted(kernel) if columns is None else Fronted(columns, frozenset({topics.OBSERVATIONS}))
