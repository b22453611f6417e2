"""The HTTP door: others' protocols in, queries and feedback on Kafka, answers out.

    request ─▶ application ─▶ protocol: parse ─▶ asking ─▶ client ─▶ Kafka
    reply   ◀─ application ◀─ protocol: render ◀─ asking ◀─ client ◀─ Kafka

`protocol/` is pure: bytes and values in, values and bytes out. `application.py` is plain ASGI, `server.py` runs it.
"""
