"""The runtime: everything around the pure kernels that touches the world.

    process.run_process(loops, transport)      one process: roles, producer, signals
    assemble.kafka_loop(role, kernel, …)       a `loop.RoleLoop` on real Kafka
    loop.RoleLoop(role, kernel, ports)         reads, calls the kernel, performs its effects, commits
    roles.Role, roles.Ports                    what a role is; what its loop is connected to (fakes in tests)

    kernel ─▶ effects ─▶ performer ─▶ lanes ─▶ transport          (Emit, DeadLetter)
                            │     └─▶ keeper ─▶ store             (FetchStates, WriteStates)
                            ├───────▶ offsets.OffsetTracker       (Skip, and every acknowledgement)
                            └───────▶ ports.Executors             (Predict, Load, Unload)

    clock            Clock, SystemClock
    offsets          OffsetTracker: what may be committed
    reader           takes in, within bounds; finds the record a kernel fails on
    alarm, follower  timers; topics that every member follows
    ownership        rebalances, start positions, starting over
    lanes            pending records by partition, one batch in flight each
    dead_letters     copies of unusable records with their cause; corrupt: what stands for a batch that is none
    store            StateStore, MemoryStore;   redis_store: RedisStore, RedisSettings
    metrics          Composer, MetricsHook;     prometheus: PrometheusExporter
    watchdog         notices a client that lives but does nothing
    local            routes records to models that run inside a role
    ports            the seams: Consumer, Broadcast, Transport, LogPositions, Executors, Rebalanced
    kafka_client     KafkaConnection: bootstrap, prefix, properties of every client
    kafka_consumer   KafkaConsumer, ConsumerSettings
    kafka_producer   KafkaTransport, ProducerSettings
    kafka_reader     KafkaBroadcast, KafkaPositions, KafkaRecent (no group)
    kafka_admin      finds and creates topics
    errors           the tree of what can go wrong

Only `kafka_*.py` import Kafka clients.
"""
