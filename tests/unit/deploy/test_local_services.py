"""Tests of choosing a broker by one word, as far as no service is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from deploy.errors import MissingError, UsageError
from deploy.local.redis import find_redis
from deploy.local.services import open_broker

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("spec", ["", "kafka", "localhost", "localhost:", "a:1,", "a b:1", "apache:"])
def test_an_unknown_word_is_refused_with_the_choices(spec: str) -> None:
    """Only the two words and addresses are accepted, and the error lists them."""
    with pytest.raises(UsageError, match="apache, embedded, HOST:PORT"):
        open_broker(spec)


def test_a_python_for_which_pip_has_no_redis_server_is_named_with_the_way_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`pip install` would not help there, so that is not what is said."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setattr("deploy.local.redis.WITHOUT_REDIS", (3, 0))
    with pytest.raises(MissingError, match=r"pip has none for Python .*apt-get install redis-server.*Python 3\.12"):
        find_redis()
