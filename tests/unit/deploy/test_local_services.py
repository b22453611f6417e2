"""Tests of choosing a broker by one word, as far as no service is needed."""

from __future__ import annotations

import pytest

from deploy.errors import UsageError
from deploy.local.services import open_broker


@pytest.mark.parametrize("spec", ["", "kafka", "localhost", "localhost:", "a:1,", "a b:1", "apache:"])
def test_an_unknown_word_is_refused_with_the_choices(spec: str) -> None:
    """Only the two words and addresses are accepted, and the error lists them."""
    with pytest.raises(UsageError, match="apache, embedded, HOST:PORT"):
        open_broker(spec)
