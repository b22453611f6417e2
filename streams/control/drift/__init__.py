"""Inputs and outputs that are no longer as they were, seen before labels come. Pure; samples in, evidence out.

    queries, predictions ──▶ columns ──▶ bins ──▶ counts of minutes and hours ──▶ evidence ──▶ which columns moved
      (a sample a minute)                                  trail

columns     the numbers and words that a query or a prediction has
bins        one of five for a value, or that it is missing
evidence    how surely counts of a window come from other shares than those before it
distance    how far counts lie apart
shares      which columns there is room for
tally       of one application: counts by minutes, and by hours before these
trail       of one application: what has moved
kept        the trail as text, so that it outlives the process
watch       of all applications
"""
