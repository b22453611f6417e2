"""Crash matrix: every role, Redis and broker is broken in every way under load, and one pure validator judges.

broken.py     what a row is: who is broken, how, and what has to hold meanwhile
roles.py, services.py, ...   the rows, as data
setting.py    the deployment: what runs, and who asks it
traffic.py    queries and feedback of every kind; what the brokers have acknowledged of them
evidence.py   what the topics, the store and the trace hold afterwards
runner.py     progress, a blow, service again, nobody behind; row after row, then the validator
"""
