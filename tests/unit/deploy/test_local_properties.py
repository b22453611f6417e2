"""Tests of the broker's configuration as text."""

from __future__ import annotations

from pathlib import Path

from deploy.local.properties import render, server_properties


def test_both_listeners_and_the_quorum_name_the_given_ports() -> None:
    """Broker and controller ports appear where clients, the broker and the quorum look for them."""
    made = server_properties(port=19092, controller_port=19093, data=Path("/d/log"))
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093"
    assert made["advertised.listeners"] == "PLAINTEXT://127.0.0.1:19092"
    assert made["controller.quorum.voters"] == "1@127.0.0.1:19093"
    assert made["log.dirs"] == "/d/log"


def test_topics_are_never_created_by_accident() -> None:
    """A misspelt topic is an error at the client, not a new topic of the default size."""
    made = server_properties(port=1, controller_port=2, data=Path("/d"))
    assert made["auto.create.topics.enable"] == "false"


def test_a_dead_letter_of_a_one_mebibyte_original_fits() -> None:
    """The broker takes at least 2 MiB, so an original of 1 MiB with its headers can be kept."""
    made = server_properties(port=1, controller_port=2, data=Path("/d"))
    assert int(made["message.max.bytes"]) >= 2 * 1024 * 1024


def test_the_caller_s_properties_win() -> None:
    """What is passed as extra replaces what is fixed."""
    made = server_properties(port=1, controller_port=2, data=Path("/d"), extra={"message.max.bytes": "77", "x": "y"})
    assert (made["message.max.bytes"], made["x"]) == ("77", "y")


def test_rendering_gives_one_line_a_property_and_doubles_backslashes() -> None:
    """Java reads a backslash as an escape, so a Windows path needs two."""
    assert render({"a": "1", "log.dirs": r"C:\kafka"}) == "a=1\nlog.dirs=C:\\\\kafka\n"
