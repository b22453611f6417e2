"""Desired state: what a deployment should be, and what it has published."""
