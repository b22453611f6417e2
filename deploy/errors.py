"""Errors of deploying, and whose fault each is.

DeployError              expected: the message says what to do next; the CLI prints it without a traceback
├── SettingsError        the configuration is wrong: fix the file or the environment
├── RefusedError         the broker refuses such connections: fix kafka.properties
├── StartError           a process did not start, or died while starting: its own last lines are in the message
├── MissingError         the machine lacks something that could not be had (Java, jars, redis-server, a broker)
└── UsageError           the command cannot do this with these arguments
"""

from __future__ import annotations


class DeployError(Exception):
    """Something a person can put right; never a bug of ours."""


class SettingsError(DeployError):
    """A setting is unknown, missing or of the wrong form."""


class RefusedError(DeployError):
    """A broker is there and does not take our certificate, log-in or protocol."""


class StartError(DeployError):
    """A process did not come up, or ended by itself."""


class UsageError(DeployError):
    """The command cannot do what these arguments ask."""


class MissingError(DeployError):
    """Something needed is not on this machine and could not be fetched; the message names what to do."""
