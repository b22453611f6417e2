"""Pure kernels: records in, effects out. No I/O, no clock, no global randomness.

    queries ─▶ selection/ ─▶ predictions ─▶ join/ ─▶ observations ─▶ learn/ ─▶ policy states
                  ▲ policy states                                      └────────────┘

contract         what every kernel is: records, timers and states in, effects out
configuration    the applications and models, as the compacted topics say
selection/       which models a query asks, and its answer by the deadline
join/            prediction + feedback inside a window ─▶ observation
learn/           observations ─▶ policy states
late_outputs     outputs of an ensemble's models that come after the answer
cold_start       what a context that is met for the first time starts from
ids              sets of query ids, which recognise duplicates (id_times.pyx: the compiled table)
statistics       counters, durations and losses for the reports

Imports point downward: selection, join and learn know nothing of each other.
"""
