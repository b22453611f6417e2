"""What roles are built with."""

from __future__ import annotations

import pytest

from deploy.config.settings import Settings
from deploy.roles import shared
from schemas.codec import Codec


@pytest.mark.parametrize("role", ["joiner", "learner"])
def test_beside_selection_a_role_works_in_short_slices(role: str) -> None:
    """In a process of their own joiner and learner make no query wait, and larger slices cost less."""
    beside, alone = (shared(Settings(), Codec(), "1", first=first).slice_us for first in ("selection", role))
    assert (beside, alone) == (500, 0)
