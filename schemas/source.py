"""Python source under construction: lines, indentation, fresh names and referenced constants."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from textwrap import dedent, indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class SourceCode:
    """One generated module. Names made by `fresh` and `constant` never collide."""

    def __init__(self, scope: dict[str, object]) -> None:
        """Start empty; `scope` holds what every generated line may refer to."""
        self.scope = dict(scope)
        self._lines: list[str] = []
        self._depth = 0
        self._numbers = count()

    def add(self, template: str, **names: str) -> None:
        """Append a template's lines at the current indentation; `<name>` stands for a name given."""
        text = dedent(template).strip("\n")
        for key, name in names.items():
            text = text.replace(f"<{key}>", name)
        self._lines.append(indent(text, "    " * self._depth))

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Append a header such as `while n:`, and indent what follows inside the `with`."""
        self.add(header)
        self._depth += 1
        yield
        self._depth -= 1

    def fresh(self) -> str:
        """Return an unused variable name."""
        return f"v{next(self._numbers)}"

    def constant(self, value: object) -> str:
        """Return a name that the generated code can use for this object."""
        name = f"c{next(self._numbers)}"
        self.scope[name] = value
        return name

    def compile(self, function: str) -> Callable[..., object]:
        """Run the module and return one of its functions."""
        text = "\n".join(self._lines)
        code = compile(text, f"<schemas:{function}>", "exec")
        exec(code, self.scope)  # noqa: S102  (our own schema files are its only input, as with namedtuple's templates)
        made = self.scope[function]
        assert callable(made)
        return made
