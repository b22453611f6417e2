"""Rows as they travel and as models take them."""
