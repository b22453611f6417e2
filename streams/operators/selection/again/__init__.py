"""Models that are asked after the first ones.

plan     what one query has asked, and with which chance
cascade  another model, where the first is in doubt or overdue
hedge    the same model in another replica, where it takes longer than usual
"""
