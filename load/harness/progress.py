"""Prints the progress of a scenario to stderr; results go to stdout."""

import sys


def say(scenario: str, text: str) -> None:
    """Print a line."""
    print(f"{scenario}: {text}", file=sys.stderr, flush=True)
