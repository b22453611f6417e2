"""Kubernetes: what the Helm chart beside this file is given, and topics and users as Strimzi's resources."""
