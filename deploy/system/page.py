"""The live page of a deployment: what its settings make of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from deploy.config.configuration import is_guarded, is_local
from deploy.system.page_commands import PageCommands
from streams.control.web.application import PageApplication, PageParts
from streams.control.web.rights import PageRights
from streams.gateway.bodies import Bodies
from streams.gateway.server import GatewayServer, Listening
from streams.gateway.tokens import BearerTokens
from streams.runtime.process.host_names import names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deploy.config.settings import Settings
    from streams.control.state import ControlState

_BODY_BYTES: Final = 16 << 10
_BODIES_BYTES: Final = 1 << 20
_WITHIN_S: Final = 10.0


def page_server(settings: Settings, state: ControlState, folder: Path, now_us: Callable[[], int]) -> GatewayServer:
    """Return a server of the page; the port is taken at once.

    Args:
        settings: of the deployment.
        state: what is shown.
        folder: for files of secrets.
        now_us: the clock.

    Raises:
        OSError: the port is taken.
    """
    given, commands = settings.control, PageCommands(settings, folder)
    tokens = BearerTokens(given.tokens.get_secret_value() if given.tokens else "")
    parts = PageParts(
        known=names(given.host, given.names),
        status=lambda: state.shown(now_us()),
        charts=lambda minutes, application: state.charts(minutes, application, now_us()),
        is_blind=lambda: state.is_blind(now_us()),
        rights=PageRights(tokens, shows_records=shows_records(settings)),
        bodies=Bodies(_BODY_BYTES, _BODIES_BYTES, _WITHIN_S),
        run=commands.run,
        log=commands.log,
    )
    place = Listening(given.host, given.port, given.connections, _WITHIN_S, setting="control.connections")
    return GatewayServer(PageApplication(parts), place)


def shows_records(settings: Settings) -> bool:
    """Tell whether records are shown without a token: where nobody but this machine comes, and no log-in guards them.

    A name in `control.names` is a proxy's, through which others come.
    """
    given = settings.control
    return is_local(given.host) and not given.names and not is_guarded(settings)
