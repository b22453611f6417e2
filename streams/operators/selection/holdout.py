"""The contexts for which a policy never decides: the first model answers them, by the version that serves.

What they cost says what the policy as a whole is worth. Their decisions are those of `single`, under a state of their
own, so they teach the policy nothing and judge no version.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from policies.single import Single
from streams.operators.selection.state_view import arms_of, with_aim
from streams.topology import held_out_state

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.records import Application
    from streams.operators.selection.pending import Pending
    from streams.operators.selection.state_view import Arms


def split(queries: Sequence[Pending]) -> tuple[list[Pending], list[Pending]]:
    """Return queries that the policy decides, and those that it does not."""
    return [each for each in queries if not each.is_held_out], [each for each in queries if each.is_held_out]


def default_arms(application: Application) -> Arms:
    """Return the arms that decide where the policy does not."""
    return with_aim(
        _arms(application.models, held_out_state(application.name, is_spread=application.spread)), application
    )


@lru_cache(256)
def _arms(models: tuple[str, ...], state: str) -> Arms:
    return arms_of(Single(), models, state, None)
