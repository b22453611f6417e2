"""Plays a recorded trace onto a running deployment: in an open loop, faster or slower than it was recorded.

score    what came of it: answers, times, how far the player fell behind; constant memory
player   Player: trace ─▶ queries at their times, feedback in step with the answers
"""
