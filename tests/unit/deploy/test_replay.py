"""`skysail replay` onto a deployment: how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from deploy.cli import replay as command
from deploy.cli import skysail
from streams.player.score import Score
from tests.unit.deploy.test_replay_offline import written

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("answered", "status"), [(0, 1), (1, 0)])
def test_a_prefix_at_which_nobody_answers_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: int, status: int
) -> None:
    """The command fails; one answer is enough."""

    async def played(*_: object) -> dict[str, Any]:
        return Score(sent=3, answered=answered).summary()

    monkeypatch.setattr(command, "_played", played)
    done = CliRunner().invoke(skysail, ["replay", str(written(tmp_path / "trace")), "--prefix", "staging"])
    assert done.exit_code == status, done.output
    assert ("nobody answered at prefix staging" in done.stderr) == (status == 1)
    assert f"3 queries sent, {answered} answered" in done.stdout
