"""What travels between the roles: Avro schemas, records, the codec and the topic names."""
