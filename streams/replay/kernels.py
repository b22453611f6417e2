"""A kernel made again from what a tape says it was made of.

Where record batches had been taken by columns, the kernel in Python takes their records here: what comes out must be
the same. Only models that answer at once, inside selection, are asked by columns alone.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.records import Model
from streams.columns.fronts import before_selection
from streams.operators.join.kernel import Joiner, JoinerSettings
from streams.operators.learn.kernel import Learner
from streams.operators.selection.kernel import Selection, SelectionSettings
from streams.runtime.kafka.fast.whole_batches import records_of
from streams.runtime.role.local import Local, LocalCodec
from streams.tape.calls import Answered
from workers.kernel.model.worker import ModelWorker
from workers.settings import WorkerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from schemas.codec import Codec
    from schemas.records import Tensor
    from streams.operators.contract import Operator


class MadeAgain(NamedTuple):
    """A kernel.

    Attributes:
        operator: the kernel.
        takes_batches: whether it is given record batches whole.
        answers: what models answer at once, in order.
    """

    operator: Operator
    takes_batches: bool
    answers: deque[Answered]


def made_again(about: Mapping[str, Any], codec: Codec) -> MadeAgain | None:
    """Return a kernel like the one that a tape is of; None if this release cannot make it.

    Raises:
        KeyError, TypeError, ValueError, DecodeError: it is not said as this release says it.
    """
    settings = about["settings"]
    if about["role"] == "joiner":
        return _alone(Joiner(codec, JoinerSettings(**settings)))
    if about["role"] == "learner":
        return _alone(Learner(codec, **settings))
    if about["role"] != "selection":
        return None
    given = SelectionSettings(**settings | {"inside": frozenset(settings["inside"])})
    return _with_models(given, about["inside"], codec) if "inside" in about else _alone(Selection(codec, given))


def _alone(kernel: Operator) -> MadeAgain:
    return MadeAgain(kernel, takes_batches=False, answers=deque())


def _with_models(settings: SelectionSettings, about: Mapping[str, Any], codec: Codec) -> MadeAgain | None:
    """Return selection with the models inside it."""
    local, how = LocalCodec(codec), WorkerSettings(**about["worker"])
    models = [codec.decode(Model, bytes.fromhex(one)) for one in about["models"]]
    kernels = {model.name: ModelWorker(local, model, about["instance"], how) for model in models}
    own = Selection(local, settings)
    kernel: Operator = Local(own, kernels, local, about["places"], writes_behind=about["writes_behind"])
    if not about["is_columnar"]:
        return _alone(kernel)
    answers = deque[Answered]()

    def ask(model: str, copy: int, rows: Tensor, patience_us: int) -> Answered:  # noqa: ARG001 - as `AskNow` has it
        return answers.popleft() if answers else None

    fronted = before_selection(kernel, own, kernels, codec, records_of, settings.margin_us, ask)
    if not fronted.batched:
        return None  # it is not compiled here
    return MadeAgain(fronted.kernel, takes_batches=True, answers=answers)
