"""Many rows at once: files and topics through packages and policies, without the loop, and the loop's log as files."""
