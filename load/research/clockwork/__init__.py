"""Clockwork (OSDI 2020): more models than fit into a host."""
