"""What travels between the roles: Avro schemas, records, the codec and the topic names.

records          the records as frozen values
topics           the topics' names
codec            a record to bytes and back
inputs           a user's row, label and features, in the form that travels
jsonable         records as JSON, for people and scripts
framing          the bytes before a record, and a look at its first fields
avsc             `.avsc` files as values; definitions: the schemas that ship
encoders         writers made from a schema; decoders: readers; source: how their code is put together
compiling        the same in C, where Skysail is compiled (compiled.pyx); wire: primitives in Python
memo             parts that many records share, read and written once
compatibility    whether the current schemas can read released ones
errors           the tree of what can go wrong
"""
