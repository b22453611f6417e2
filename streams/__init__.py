"""The stream processor: pure operators, the topology that joins them, and the runtime that performs their effects.

client, sync        what applications use; client_transport: its way to Kafka
topology            every topic, key, group, store and edge; checks: whether the running system is as it says
operators/          pure kernels
runtime/            performs what the kernels want done
control/            the live page
testing/            the topology in virtual time, without a broker
"""
