"""The gateway beside the client on Kafka, and beside another system's HTTP server."""
