"""Checks whom a deployment trusts: keys that sign packages, and code that is named by a path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deploy.diagnose.doctor import Check, Level
from deploy.errors import UsageError
from deploy.state.packages import require_keys, require_trusted
from policies import outside
from policies.errors import PolicyError
from policies.loss_rules import rule
from workers.errors import PackageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deploy.config.settings import Settings
    from schemas.records import Application, Model


def check_keys(settings: Settings) -> Iterator[Check]:
    """Check that packages can be trusted at all, where they have to be signed."""
    if settings.require_signature is None:
        return
    found = f"packages have to be signed by a key of {settings.require_signature}"
    try:
        count = require_keys(settings)
    except PackageError as error:
        yield Check("signatures", Level.DOWN, found, f"{error}; until then no version is loaded")
        return
    yield Check("signatures", Level.OK, f"{found} ({count} there)")


def distrust(settings: Settings, model: Model) -> str:
    """Return why workers refuse a version whose package is on this machine; "" = they do not."""
    try:
        require_trusted(settings, model)
    except UsageError as error:
        return str(error)
    return ""


def forbidden_code(application: Application) -> str:
    """Return why no role runs an application's policies, or its loss; "" = they may be run."""
    named = (application.policy, application.apprentice.partition(" ")[0])
    try:
        loss = rule(application.loss).names
    except PolicyError as error:
        return str(error)
    return next(filter(None, map(outside.forbidden, named)), "") or outside.forbidden(loss, "loss")
