"""Join: predictions with feedback inside a window, one observation each.

kernel         the role's kernel: the table of what becomes of feedback
buffer         what waits, by query id, and how earlier waiting ended
outcomes       how waiting ends: an observation, a default loss, a dead letter
observation    prediction + feedback ─▶ the loss of each model
terms          each application's window, kind of loss and default loss
shadows        outputs of shadows and late ones that wait; what each version costs
timer_wheel    which windows end in which second
shared_room    room for what waits, shared so that nobody can fill it
"""
