"""Connections out of settings."""
