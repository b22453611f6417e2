"""What a kernel was called with, as bytes: since kernels are pure, the log of their calls is their replay.

role's loop ─▶ Taped ─▶ kernel          records by position, states by version, results of models whole
                 └─ TapeWriter ─▶ topic `calls` ─▶ trace ─▶ TapeReader ─▶ the same calls on a fresh kernel
ends      what a process may have written that its tape does not tell: it was killed, or some of it is lost
"""
