"""Expressions over a row: compared, counted with, and asked whether they are null; nothing of Python is evaluated.

    status = 'new' and amount * 1.2 >= 100          0 if clicked else 1
    country in ('ch', 'de') and coupon is null      not order.is_test

    choice    := or [if or else choice]
    or        := and {or and}            and   := not {and not}          not := {not} compared
    compared  := sum [(= | == | != | <> | < | <= | > | >=) sum | [not] in (choice, …) | is [not] null]
    sum       := product {(+ | -) product}                    product    := signed {(* | / | %) signed}
    signed    := {-} (number | 'text' | "text" | true | false | null | path | (choice))

A path that is not there is null. What is counted or compared with null is null, as in SQL; `and` and `or` know that
`false and null` is false. A condition holds where it is true.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streams.mapping.errors import MappingError

if TYPE_CHECKING:
    from collections.abc import Callable

    Evaluate: TypeAlias = Callable[[Mapping[str, Any]], Any]

MOST_CHARACTERS: Final = 4_096
MOST_NESTED: Final = 64
_TOKENS: Final = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<word>[^\W\d][\w$-]*(?:\.[\w$-]+)*|`[^`]+`)|(?P<sign><=|>=|<>|!=|==|[=<>+\-*/%(),]))"
)
_COMPARED: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_COUNTED: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
}
_WORDS: Final = frozenset({"and", "or", "not", "in", "is", "if", "else", "null", "true", "false"})
_VALUES: Final[Mapping[str, bool | None]] = {"null": None, "true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression.

    Attributes:
        text: as it was written.
        paths: that it reads.
        evaluate: returns its value for a row; raises what `value` says.
    """

    text: str
    paths: tuple[str, ...]
    evaluate: Evaluate

    def value(self, row: Mapping[str, Any]) -> Any:
        """Return its value for a row.

        Raises:
            MappingError: values do not go together, or are divided by nothing.
        """
        try:
            return self.evaluate(row)
        except (TypeError, ZeroDivisionError, OverflowError) as error:
            raise MappingError(self.text, f"{error}") from error

    def holds(self, row: Mapping[str, Any]) -> bool:
        """Tell whether it is true for a row.

        Raises:
            MappingError: as of `value`; or it is neither true, false nor null.
        """
        found = self.value(row)
        if found is not None and not isinstance(found, bool):
            raise MappingError(self.text, f"a condition is true or false, not {found!r:.80}")
        return found is True


def parse(text: str) -> Expression:
    """Return an expression.

    Raises:
        MappingError: it is none; the message says where.
    """
    if len(text) > MOST_CHARACTERS:
        raise MappingError(text[:80], f"an expression has at most {MOST_CHARACTERS:,} characters")
    parser = _Parser(text)
    evaluate = parser.choice(0)
    parser.end()
    return Expression(text, tuple(dict.fromkeys(parser.paths)), evaluate)


def at_path(row: Any, path: str) -> Any:
    """Return what stands at a path, such as `order.user.age`; None where nothing does. A whole name comes first."""
    if path in row:
        return row[path]
    for part in path.split("."):
        if not isinstance(row, Mapping) or part not in row:
            return None
        row = row[part]
    return row


class _Parser:
    def __init__(self, text: str) -> None:
        self.paths: list[str] = []
        self._text = text
        self._tokens = [*_tokens(text), ("end", "", len(text))]
        self._next = 0

    def choice(self, depth: int) -> Evaluate:
        if depth > MOST_NESTED:
            raise self._fault("too deeply nested")
        found = self._any_of(depth)
        if not self._takes("if"):
            return found
        condition = self._any_of(depth)
        self._needs("else")
        return _chosen(condition, found, self.choice(depth + 1))

    def end(self) -> None:
        """Check that nothing follows."""
        if self._tokens[self._next][0] != "end":
            raise self._fault("nothing is expected here")

    def _any_of(self, depth: int) -> Evaluate:
        terms = [self._all_of(depth)]
        while self._takes("or"):
            terms.append(self._all_of(depth))
        return terms[0] if len(terms) == 1 else _joined(terms, decisive=True)

    def _all_of(self, depth: int) -> Evaluate:
        terms = [self._denied(depth)]
        while self._takes("and"):
            terms.append(self._denied(depth))
        return terms[0] if len(terms) == 1 else _joined(terms, decisive=False)

    def _denied(self, depth: int) -> Evaluate:
        is_denied = False
        while self._takes("not"):
            is_denied = not is_denied
        found = self._compared(depth)
        return _denied(found) if is_denied else found

    def _compared(self, depth: int) -> Evaluate:
        left = self._sum(depth)
        if self._takes("is"):
            wanted = not self._takes("not")
            self._needs("null")
            return lambda row: (left(row) is None) is wanted
        is_denied = self._takes("not")
        if is_denied or self._tokens[self._next][1] == "in":
            self._needs("in")
            among = self._list(depth)
            return _denied(_among(left, among)) if is_denied else _among(left, among)
        sign = self._tokens[self._next][1]
        if self._tokens[self._next][0] != "sign" or sign not in _COMPARED:
            return left
        self._next += 1
        return _both(_COMPARED[sign], left, self._sum(depth))

    def _list(self, depth: int) -> list[Evaluate]:
        self._needs("(")
        found = [self.choice(depth + 1)]
        while self._takes(","):
            found.append(self.choice(depth + 1))
        self._needs(")")
        return found

    def _sum(self, depth: int) -> Evaluate:
        return self._counted(("+", "-"), lambda: self._counted(("*", "/", "%"), lambda: self._signed(depth)))

    def _counted(self, signs: tuple[str, ...], term: Callable[[], Evaluate]) -> Evaluate:
        found = term()
        while self._tokens[self._next][0] == "sign" and self._tokens[self._next][1] in signs:
            sign = self._tokens[self._next][1]
            self._next += 1
            found = _both(_COUNTED[sign], found, term(), are_numbers=True)
        return found

    def _signed(self, depth: int) -> Evaluate:
        is_negative = False
        while self._takes("-"):
            is_negative = not is_negative
        found = self._value(depth)
        return _both(operator.sub, lambda _: 0, found, are_numbers=True) if is_negative else found

    def _value(self, depth: int) -> Evaluate:
        kind, token, _ = self._tokens[self._next]
        if (kind, token) == ("sign", "("):
            self._next += 1
            found = self.choice(depth + 1)
            self._needs(")")
            return found
        if kind not in ("number", "text", "word") or (kind == "word" and token in _WORDS and token not in _VALUES):
            raise self._fault("a value is expected here")
        self._next += 1
        if kind == "word" and token not in _VALUES:
            path = token.strip("`")
            self.paths.append(path)
            return lambda row: at_path(row, path)
        constant = _VALUES[token] if kind == "word" else _constant(kind, token)
        return lambda _: constant

    def _takes(self, token: str) -> bool:
        kind, found, _ = self._tokens[self._next]
        is_next = kind in ("word", "sign") and found == token
        self._next += is_next
        return is_next

    def _needs(self, token: str) -> None:
        if not self._takes(token):
            raise self._fault(f"{token!r} is expected here")

    def _fault(self, what: str) -> MappingError:
        _, token, place = self._tokens[self._next]
        where = f"at {token!r}, character {place + 1}" if token else "at its end"
        return MappingError(self._text, f"{what}: {where}")


def _tokens(text: str) -> list[tuple[str, str, int]]:
    """Return kind, text and place of each token."""
    found, place, end = [], 0, len(text.rstrip())
    while place < end:
        match = _TOKENS.match(text, place)
        if match is None or match.lastgroup is None:
            raise MappingError(text, f"{text[place:].strip()[:10]!r} cannot be read, character {place + 1}")
        found.append((match.lastgroup, match[match.lastgroup], match.start(match.lastgroup)))
        place = match.end()
    return found


def _constant(kind: str, token: str) -> int | float | str:
    if kind == "text":
        return re.sub(r"\\(.)", r"\1", token[1:-1])
    return int(token) if token.isdecimal() else float(token)


def _chosen(condition: Evaluate, one: Evaluate, other: Evaluate) -> Evaluate:
    return lambda row: one(row) if _truth(condition(row)) else other(row)


def _truth(value: Any) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    raise TypeError(f"a condition is true or false, not {value!r:.80}")


def _joined(terms: list[Evaluate], *, decisive: bool) -> Evaluate:
    """Return `or` (true decides) or `and` (false decides) of terms; null where one is null and none decides."""

    def evaluate(row: Mapping[str, Any]) -> bool | None:
        is_known = True
        for term in terms:
            truth = _truth(term(row))
            if truth is decisive:
                return decisive
            is_known = is_known and truth is not None
        return not decisive if is_known else None

    return evaluate


def _denied(term: Evaluate) -> Evaluate:
    def evaluate(row: Mapping[str, Any]) -> bool | None:
        truth = _truth(term(row))
        return None if truth is None else not truth

    return evaluate


def _among(left: Evaluate, among: list[Evaluate]) -> Evaluate:
    return _joined([_both(operator.eq, left, each) for each in among], decisive=True)


def _both(made: Callable[[Any, Any], Any], left: Evaluate, right: Evaluate, *, are_numbers: bool = False) -> Evaluate:
    """Return what two values make; null where one is null."""

    def evaluate(row: Mapping[str, Any]) -> Any:
        one, other = left(row), right(row)
        if one is None or other is None:
            return None
        if are_numbers and not (_is_number(one) and _is_number(other)):
            raise TypeError(f"only numbers are counted with, not {one!r:.80} and {other!r:.80}")
        return made(one, other)

    return evaluate


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
