"""Errors of the local launcher.

DeployError (deploy.errors)
└── MissingError    the machine lacks something that could not be had (Java, jars, redis-server, a broker)

A process that does not come up raises `deploy.errors.StartError`.
"""

from __future__ import annotations

from deploy.errors import DeployError


class MissingError(DeployError):
    """Something needed is not on this machine and could not be fetched; the message names what to do."""
