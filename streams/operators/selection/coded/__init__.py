"""Coded inference: a sum of inputs is asked, too, and its answer stands in for one that does not come.

code            sums of inputs, and outputs from sums
groups          rows that are coded together
reconstruction  forms groups as rows are asked; decoded outputs for the missing ones
"""
