"""Clipper's figures through this system, as plots beside the published numbers."""
