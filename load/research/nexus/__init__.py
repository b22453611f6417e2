"""Nexus (SOSP 2019): plans of hosts, graphs of models, common trunks."""
