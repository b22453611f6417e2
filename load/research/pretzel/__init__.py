"""PRETZEL (OSDI 2018): pipelines that share equal steps."""
