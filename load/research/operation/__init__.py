"""Promotion, simulation beside live deployments, whole sites, and seeds of faults in virtual time."""
