"""By which names a server of figures may be asked: its own, and addresses, since nobody else can own one's name.

Neither the page nor `/metrics` has a log-in. Another web page could point its own name at this address and read the
answers (DNS rebinding). Its name is in the header `Host`, so it is refused.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def names(configured: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Return the names that this host is asked by."""
    own = ("localhost", configured, socket.gethostname(), socket.getfqdn(), *more)
    return frozenset(name.lower() for name in own if name)


def is_ours(host: str | None, known: frozenset[str]) -> bool:
    """Tell whether a `Host` header names this host: by an address, or by one of its names."""
    if not host:
        return False
    name = re.sub(r":\d{1,5}$", "", host).lower().removesuffix(".")
    if name in known:
        return True
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
