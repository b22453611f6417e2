"""Real services on this machine from pip alone: Apache Kafka, Redis, an in-process broker, and child processes."""
