"""Attacks and accidents that clients, brokers and operators can cause, against a deployment that serves an honest one.

attack   the definition: a name, who causes it, what it does
arena    where attacks act: topics, processes, Redis, the broker
batches  record batches made by hand, as only another client would write them
honest   the client that must not notice
watch    what an attack cost: restarts, memory, dead letters
learnt   what was learnt, against the fold of its log
records, floods, accidents, beside   the attacks themselves
"""
