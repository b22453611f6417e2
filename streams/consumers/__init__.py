"""Reading predictions as a consumer group: decoded, each once, of one application, committed when they are handled.

consume.py     `skysail.consume`: what an application writes, with and without `async`
member.py      a member of the group: polls, commits, rebalances
deliveries.py  what has been read, what is being handled, what may be committed
"""
