"""Refusals as each protocol writes them; all are JSON with what to do."""

from __future__ import annotations

from http import HTTPStatus

from streams.gateway.protocol.values import Headers, HttpReply, RequestRefusedError, dumped


def written(door: str, fault: RequestRefusedError) -> HttpReply:
    """Write a refusal."""
    message, code = str(fault), HTTPStatus(fault.status).phrase
    headers: Headers = ((b"retry-after", b"%d" % fault.retry_s),) if fault.retry_s else ()
    if fault.status == 401:
        headers = (*headers, (b"www-authenticate", b"Bearer"))
    body: dict[str, object] = {"error": message}
    if door == "mlflow":
        body = {"error_code": code.upper().replace(" ", "_"), "message": message}
    elif door == "personalizer":
        body = {"error": {"code": code.replace(" ", ""), "message": message}}
    return HttpReply(dumped(body), fault.status, headers=headers)
