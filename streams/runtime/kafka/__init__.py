"""Kafka behind one door: consumers, producers, readers outside groups, topics.

    KafkaConsumer, LogReader ─▶ Source ─┬─▶ fast.source   own fetches        ─▶ private ─▶ aiokafka's connections
                                        └─▶ stock.source  aiokafka's getmany
    KafkaTransport ───────────▶ Outlet ─┬─▶ fast.outlet   own produce queue  ─▶ private ─▶ aiokafka's connections
                                        └─▶ stock.outlet  aiokafka's producer

    connection   where Kafka is: bootstrap, prefix, properties, which of the two ways
    consumer     KafkaConsumer, ConsumerSettings: a member of a group
    producer     KafkaTransport;  outlet: ProducerSettings
    log_reader   KafkaBroadcast, KafkaPositions, KafkaRecent: outside groups;  tail: KafkaTail;  reader: what they share
    clients      makes aiokafka's consumers
    private      every private name of aiokafka;  mends: three of its faults
    admin        finds and creates topics

Apart from this folder only `streams/control` knows aiokafka, through Faust. Both ways pass the same list of tests,
`tests/conformance/test_consumers.py` and `test_transports.py`.
"""
