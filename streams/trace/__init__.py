"""Recorded traces: what was in Kafka, in Avro object container files with a manifest.

TRACE/
  manifest.json                          topics, offsets, counts, digests, the deployment's settings
  queries-0000-000000000000.avro         records of one partition, from that offset on
  queries-0000-000000052113.avro         the next part

manifest   what a trace holds, as a value
layout     one record in a part: decoded for any Avro tool, and bit for bit as it was in Kafka
writer     TraceWriter: adds records, survives a kill, keeps a bound on disk
reader     Trace: verified, in order
"""
