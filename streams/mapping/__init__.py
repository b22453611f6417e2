"""Topics that are not Skysail's own: their records become queries and feedback, and predictions become their records.

expressions   conditions and arithmetic over a row
fields        where a value of a row comes from
formats       JSON, CSV, Avro, Protobuf: bytes to rows and back; `avro` and `protobuf` with a registry's framing, too
schemas       of a registry, as far as they have been looked up
waiting       records whose schemas have not
spec          what an application reads and writes: `from`, `to`, `feedback`
incoming      rows as queries and feedback
outgoing      predictions as rows
kernel        the operator of role `mapping`
"""
