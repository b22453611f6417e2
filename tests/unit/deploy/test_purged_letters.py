"""Which dead letters are removed: those that were written before a moment, and no others."""

from __future__ import annotations

import pytest

from deploy.cli.dlq import purged_before, time_text
from deploy.errors import UsageError
from streams.control.web.commands import acting
from streams.gateway.protocol.values import RequestRefusedError

NOW_US = 1_766_000_000_123_456


def test_what_comes_after_letters_were_counted_stays() -> None:
    """The moment that a dry run tells is the one that is given back, to the microsecond, however late that is."""
    assert purged_before(None, None, NOW_US) is None
    assert purged_before(None, time_text(NOW_US), NOW_US + 60_000_000) == NOW_US
    assert purged_before("1h", None, NOW_US) == NOW_US - 3_600_000_000


def test_the_page_removes_what_was_counted_and_nothing_without_such_a_moment() -> None:
    """The command's own start would be later than what somebody has seen."""
    wish = {"action": "purge", "topic": "feedback"}
    assert "--dry-run" in acting(wish | {"dry_run": True})
    assert acting(wish | {"before": time_text(NOW_US)})[-2:] == ("--yes", f"--before={time_text(NOW_US)}")
    with pytest.raises(RequestRefusedError, match="before"):
        acting(wish)


@pytest.mark.parametrize(("older", "before"), [("1h", "2026-11-23"), (None, "17"), (None, "soon"), ("soon", None)])
def test_what_is_no_moment_is_refused(older: str | None, before: str | None) -> None:
    """Nothing is removed by mistake."""
    with pytest.raises(UsageError):
        purged_before(older, before, NOW_US)
