"""Kafka behind one door: consumers, producers, readers outside groups, topics."""
