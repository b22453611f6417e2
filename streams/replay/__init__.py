"""Replay a recorded trace through the kernels in virtual time, without a broker or a store.

trace ─▶ as_it_was ─┬─ states     the fold of the observations: what each version of a state was
                    ├─ decisions  selection, given that version, must write the prediction that was recorded
                    ├─ joins      the joiner must write the observation that was recorded
                    ├─ steps      the promotion kernel must take the steps that were recorded
                    ├─ rows       outputs of predictions must be rows that workers wrote
                    ├─ missing_answers, missing_observations   what should have been written and was not
                    └─ report     every difference by id, and what cannot be checked
trace ─▶ what_if ───┬─ changes          of an application: policy, objective, models
                    ├─ recorded_models  answer as recorded, or run
                    ├─ loop             one play: roles on the driver, at the pace of polls
                    ├─ copied           the other play, in a copy of the process
                    ├─ outcomes         unchanged and changed, side by side
                    └─ difference       of their errors, with an interval
"""
