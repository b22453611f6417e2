"""Why a package is not trusted: each reason has a name, which every message begins with."""

from __future__ import annotations

from typing import Literal, TypeAlias

from workers.errors import PackageError

Reason: TypeAlias = Literal[
    "unsigned", "no-keys", "no-library", "too-large", "unreadable", "wrong-kind", "several-signatures",
    "foreign-key", "bad-signature", "other-files", "other-version",
]  # fmt: skip


class SignatureError(PackageError):
    """A package is not signed as it has to be; nothing of it was loaded.

    Attributes:
        reason: its name, which does not change.
        told: what is wrong, and what to do.
    """

    def __init__(self, reason: Reason, told: str) -> None:
        super().__init__(f"not trusted ({reason}): {told}")
        self.reason: Reason = reason
        self.told = told
