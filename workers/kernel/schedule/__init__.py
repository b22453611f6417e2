"""Decides across the models of a host: which model runs next, which are resident, and what each will take. Pure.

contract   what a schedule is told, and what it answers
fifo       the oldest row first
clockwork  the latest feasible start first
profiles   what executions and loading take, by model
excess     which rows give way when more waits than can be in time
demand     how much each model is worth having in memory
residency  which models are loaded and unloaded, within a budget
registry   the schedules by name
"""
