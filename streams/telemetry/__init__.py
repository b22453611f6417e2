"""Sampled queries as OpenTelemetry shows them: their legs are read from the log, beside the roles that made them.

    predictions ──▶ sampled ──┐
    models.*, model-predictions ──▶ held ──┴─▶ settled ─▶ legs ─▶ queue ─▶ OTLP
    observations ──▶ joined ───────────────────────────────┘

context     which trace a query belongs to, by W3C's header
values      legs, as OpenTelemetry's spans have them
sampling    which predictions are sampled
held        the last record batches, within a bound of bytes
legs        from what the log says about a query to its legs
joins       queries that wait for their observations
kernel      all of that: fetched batches in, legs out; pure
export      a bounded queue before whoever takes them; dropped are counted
otlp        whoever takes them: OpenTelemetry's exporter
role        the role

No other role knows of it, and none does anything for it: what they cost is the same whether a query is sampled or not.
"""
