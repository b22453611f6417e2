"""The runtime: everything around the pure kernels that touches the world.

process.run.run_process(loops, transport)    one process: roles, producer, signals
process.run.kafka_loop(role, kernel, …)      a `role.loop.RoleLoop` on real Kafka
role.loop.RoleLoop(role, kernel, ports)      reads, calls the kernel, performs its effects, commits
role.definition.Role, Ports                  what a role is; what its loop is connected to (fakes in tests)

    kernel ─▶ effects ─▶ role.effects ─▶ role.accumulator ─▶ kafka.producer     (Emit, EmitBatch, DeadLetter)
                              │     └──▶ role.state_queue ─▶ stores             (FetchStates, WriteStates)
                              ├────────▶ offsets                                (Skip, and every acknowledgement)
                              └────────▶ ports.Executors                        (Predict, Load, Unload)

process/    how a process runs, and what it says about itself: signals, profiler, garbage collection, Prometheus
role/       one role at work
kafka/      the only folder that knows a Kafka client
stores/     where policy states are kept
offsets     OffsetTracker: what may be committed
ports       the seams: Consumer, Broadcast, Transport, LogPositions, Executors, Rebalanced
corrupt     what stands for a batch that cannot be unpacked
metrics     the report of a process, once a second
stopping    the time that a stop may take, shared by all its parts
clock       Clock, SystemClock
errors      the tree of what can go wrong

Imports point downward: process, role, kafka and stores, the modules.
"""
