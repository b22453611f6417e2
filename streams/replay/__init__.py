"""Replay a recorded trace through the kernels in virtual time, without a broker or a store.

trace ─▶ as_it_was ─┬─ played     the calls of each process on a fresh kernel: records by position, states by version
                    ├─ written    what that makes, held against what the trace has: by key and bytes; and letters
                    ├─ untaped    the promotion kernel must take the steps that were recorded, models answer the same
                    └─ report     every difference by id, and what cannot be checked
trace ─▶ what_if ───── changes, recorded_models, loop, forked, outcomes, comparison
"""
