"""Fetching and producing over aiokafka's public interface: always there, for whichever aiokafka."""
