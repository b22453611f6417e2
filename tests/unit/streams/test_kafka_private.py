"""What Skysail does to aiokafka: it uses private names where they are there, and changes nothing for others."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from aiokafka import AIOKafkaConsumer

from streams.runtime.kafka import private
from streams.runtime.kafka.connection import KafkaConnection

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[3]

# Prints every attribute of aiokafka's classes, and its loggers, before and after Skysail is imported.
LOOK = """
import logging, aiokafka, aiokafka.client, aiokafka.conn, aiokafka.cluster, aiokafka.consumer.fetcher
from aiokafka.consumer import group_coordinator, subscription_state
from aiokafka.producer import message_accumulator, sender

MODULES = [aiokafka, aiokafka.client, aiokafka.conn, aiokafka.cluster, aiokafka.consumer.fetcher, aiokafka.errors,
           group_coordinator, subscription_state, message_accumulator, sender]

def look():
    seen = {}
    for module in MODULES:
        for name, value in vars(module).items():
            seen[module.__name__, name] = id(value)
            if isinstance(value, type) and value.__module__.startswith("aiokafka"):
                seen |= {(value.__qualname__, key): id(one) for key, one in vars(value).items()}
    for name in ["aiokafka", *(module.__name__ for module in MODULES)]:
        logger = logging.getLogger(name)
        seen[name, "logging"] = (logger.level, logger.disabled, len(logger.handlers), len(logger.filters))
    return seen

before = look()
import skysail
from skysail import Client
after = look()
print(sorted(str(key) for key in before if before[key] != after[key]))
"""


def test_importing_the_client_changes_nothing_in_aiokafka() -> None:
    """An application may use aiokafka for itself: no class, function or logger of it is another one afterwards."""
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_the_aiokafka_that_is_installed_is_known() -> None:
    """Otherwise everything works over its public interface, and costs more."""
    assert private.supported() is None


def test_an_aiokafka_without_one_of_the_names_is_used_over_its_public_interface(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The reason names what is missing, once."""
    monkeypatch.setattr(private, "_NAMES", ((AIOKafkaConsumer.__init__, ("_client", "_nowhere")),))
    private.supported.cache_clear()
    try:
        reason = private.supported()
        assert reason is not None
        assert reason.endswith("has no _nowhere in AIOKafkaConsumer.__init__")
        assert not KafkaConnection("b:9092").is_fast
        assert caplog.text.count("public interface") == 1
    finally:
        private.supported.cache_clear()


def test_the_fast_path_can_be_switched_off() -> None:
    """`kafka.fast: false`."""
    assert KafkaConnection("b:9092").is_fast
    assert not KafkaConnection("b:9092", fast=False).is_fast


def test_private_names_stand_in_one_file() -> None:
    """Elsewhere nothing that begins with an underscore is taken from anything but `self` and the language itself."""
    own = ("self._", "cls._", "private._")
    for path in (ROOT / "streams" / "runtime" / "kafka").rglob("*.py"):
        if path.name != "private.py":
            text = path.read_text(encoding="utf-8")
            taken = re.findall(r"[\w.]*[\w)\]]\._[a-z]\w*|^from aiokafka.* import _\w*", text, re.MULTILINE)
            others = [name for name in taken if not name.startswith(own) and not name.endswith("._replace")]
            assert others == [], path
