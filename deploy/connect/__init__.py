"""Connections from the settings."""
