"""How all connections to Redis begin: by a log-in, and nothing that a user may be refused.

redis-py would first tell its name and version, and ask for notices of maintenance. Redis 7.0 knows neither command, and
whatever is refused is a line in the server's `ACL LOG`, where intruders are looked for.
"""

from __future__ import annotations

from typing import Any, Final

from redis.maint_notifications import MaintNotificationsConfig

QUIETLY: Final[dict[str, Any]] = {
    "driver_info": None,
    "maint_notifications_config": MaintNotificationsConfig(enabled=False),
}
