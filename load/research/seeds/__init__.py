"""Whole deployments in virtual time, with faults drawn from a seed: real roles on a broker and a store in memory.

plan ─▶ world: roles, clients, faults on one event loop ─▶ ledger: what was written and committed ─▶ laws: what is wrong
"""
