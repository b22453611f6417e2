"""Scenarios that anybody runs on a deployment of his own machine: what `pip install` brings."""
