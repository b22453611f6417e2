"""Says how rows from elsewhere become queries, feedback and observations.

Each key has a value for all rows, or says where it comes from, in the language of `streams.mapping.fields`.

application: digits                                   the same for all, or {column: app}
time: {column: TIMESTAMP}                             ISO times, or with `unit`: s, ms, us
input: {columns: [ContextTokens, GeneratedTokens]}    numbers; {column: text}; or {value: [1.0]}
id: {column: request}                                 default: the file's name and the row's number
context: {column: user}
features: {columns: [age, hour]}
label: {column: answer}                               gives feedback; so does `loss`
delay: {column: answered_after, unit: ms}             of the feedback; or {value: 30}, in seconds
chosen, propensity, arms, cost, reward                of a decision; see `streams/trace/decided.py`
count: {column: requests}                             a row stands for so many queries, evenly over `over`
over: {value: 300}
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from schemas import topics
from streams.mapping.errors import MappingError
from streams.mapping.fields import source, unknown
from streams.trace.manifest import TraceError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streams.mapping.fields import FieldSource


@dataclass(frozen=True, slots=True)
class TraceMapping:
    """Which columns make queries and feedback; see the head of this file."""

    application: FieldSource
    time: FieldSource
    input: FieldSource | None = None
    id: FieldSource | None = None
    context: FieldSource | None = None
    features: FieldSource | None = None
    label: FieldSource | None = None
    loss: FieldSource | None = None
    delay: FieldSource | None = None
    count: FieldSource | None = None
    over: FieldSource | None = None
    chosen: FieldSource | None = None
    propensity: FieldSource | None = None
    arms: FieldSource | None = None
    cost: FieldSource | None = None
    reward: FieldSource | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose records it makes."""
        asked = (topics.QUERIES, topics.FEEDBACK) if self.input is not None else ()
        return (*asked, *((topics.OBSERVATIONS,) if self.chosen is not None else ()))

    @classmethod
    def parse(cls, document: object) -> TraceMapping:
        """Return the mapping in a document, as YAML has it.

        Raises:
            TraceError: a key is unknown or missing.
        """
        if not isinstance(document, dict):
            raise TraceError("a mapping holds keys and values, such as `application: digits`")
        known = [one.name for one in fields(cls)]
        for key in document:
            if key not in known:
                raise TraceError(f"the mapping: {unknown(str(key), known)}")
        needed = ["application", "time", *([] if "chosen" in document else ["input"])]
        needed += ["propensity"] if "chosen" in document else []
        missing = [name for name in needed if name not in document]
        if missing:
            raise TraceError(f"the mapping lacks {', '.join(missing)}")
        _check_decision(document)
        try:
            return cls(**{key: source(key, value, is_path=False) for key, value in document.items()})
        except MappingError as error:
            raise TraceError(f"the mapping: {error}") from error


def _check_decision(document: Mapping[str, object]) -> None:
    told = [name for name in ("loss", "cost", "reward") if name in document]
    if len(told) > 1:
        raise TraceError(f"the mapping has {' and '.join(told)}: one says what a row cost")
    if "chosen" in document and not told:
        raise TraceError("the mapping lacks loss, cost or reward: what came of what was chosen")
    if "chosen" in document and "count" in document:
        raise TraceError("a row with `chosen` is one decision: leave out `count`")
