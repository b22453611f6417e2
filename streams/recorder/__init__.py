"""Records topics of Kafka into a trace, outside any consumer group.

span       which records: from where, until where
recorder   Recorder: logs ─▶ trace, in bounded memory
role       RecordRole: the same for ever, in a process of the deployment, with reports
"""
