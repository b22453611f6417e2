"""Topics of others scored into topics of theirs: Skysail beside Quix Streams, FastStream and a hand-written loop.

orders     what is in the topic, the model, and what must come out
work       what every peer does with a poll's records
hand, quix, faststream    the loops around it; each is a process in its peer's environment
scenario   all of them by turns, and Skysail
"""
