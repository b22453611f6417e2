"""Policies, cascades, sets of labels and off-policy evaluation, beside published figures."""
