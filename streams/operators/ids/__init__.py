"""Ids by the million, each with a time: tables of them, duplicates, windows."""
