"""Models and data of single experiments."""
