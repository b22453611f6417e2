"""The groups into which `context_tree` has split those who ask: by what, and which model is best in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from policies import registry
from policies.context_tree import ContextTree
from policies.errors import PolicyError

if TYPE_CHECKING:
    from schemas.avsc import Json
    from schemas.records import PolicyState


class ModelInGroup(NamedTuple):
    """What one model has cost one group."""

    model: str
    lessons: float
    loss: float | None  # mean; None = it was never asked there


class TreeGroup(NamedTuple):
    """One leaf: on which side of which features it lies, and its models."""

    path: tuple[tuple[int, bool], ...]
    models: tuple[ModelInGroup, ...]

    @property
    def name(self) -> str:
        """In words; features are counted from 0, as a query has them."""
        return ", ".join(f"feature {at} {'above 0' if on else 'not'}" for at, on in self.path) or "everybody"


def groups_of(state: PolicyState) -> tuple[TreeGroup, ...]:
    """Return the groups of a state.

    Raises:
        PolicyError: it is not one of `context_tree`.
    """
    policy = registry.parse(state.policy)
    if not isinstance(policy, ContextTree):
        raise PolicyError(f"{state.policy} has no groups: the policy `context_tree` has")
    return tuple(
        [
            TreeGroup(
                leaf.path,
                tuple(
                    [
                        ModelInGroup(model, cell.lessons, cell.loss / cell.lessons if cell.lessons else None)
                        for model, cell in zip(state.arms, leaf.counts, strict=True)
                    ]
                ),
            )
            for leaf in policy.leaves(state.values, len(state.arms))
        ]
    )


def lines(groups: tuple[TreeGroup, ...]) -> list[str]:
    """Say them for people, the best model of each group first."""
    said = []
    for group in groups:
        said.append(group.name)
        known = sorted(group.models, key=lambda each: 2.0 if each.loss is None else each.loss)
        for model, lessons, loss in known:
            cost = "never asked" if loss is None else f"mean loss {loss:.3f}, {lessons:,.0f} lessons"
            said.append(f"  {model}: {cost}")
    return said


def document(groups: tuple[TreeGroup, ...]) -> dict[str, Json]:
    """Return them for programs."""
    said: list[Json] = []
    for group in groups:
        path: list[Json] = [[at, on] for at, on in group.path]
        models: list[Json] = [model._asdict() for model in group.models]
        said.append({"path": path, "models": models})
    return {"groups": said}
