"""Real services on this machine from pip alone: Apache Kafka, Redis, an in-process broker, child processes."""
