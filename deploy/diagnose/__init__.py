"""Diagnoses of a machine and a deployment, each with advice."""
