"""Kafka behind one door: consumers, producers, readers outside groups, topics.

    KafkaConsumer, LogReader ─▶ Source ─┬─▶ fast.source  own fetches        ─▶ private ─▶ aiokafka's connections
                                        └─▶ stock        aiokafka's getmany
    KafkaTransport ───────────▶ Outlet ─┬─▶ fast.outlet  own produce queue  ─▶ private ─▶ aiokafka's connections
                                        └─▶ stock        aiokafka's producer

    connection   where Kafka is: bootstrap, prefix, properties, which of the two ways
    consumer     KafkaConsumer, ConsumerSettings: a member of a group
    producer     KafkaTransport
    log_reader   KafkaBroadcast, KafkaTail, KafkaPositions, KafkaRecent: outside groups
    clients      makes aiokafka's consumers, in groups and outside
    ways         what both ways offer, and their settings: Source, Outlet, FetchSettings, ProducerSettings
    private      every private name of aiokafka;  mends: three of its faults
    admin        finds and creates topics

Apart from this folder only `streams/control` knows aiokafka, through Faust. Both ways pass the same list of tests,
`tests/conformance/test_consumers.py` and `test_transports.py`.
"""
