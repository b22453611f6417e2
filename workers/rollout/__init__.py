"""Versions: how one follows another, and which run beside it."""
