"""Packs models onto hosts by what they are asked, what their batches take, and how long answers may take. Pure.

work     what one model asks of a host, and what a host does in turns
squishy  packs from nothing: as few hosts as it can
moving   changes a placement as little as it can
"""
