"""The tapes of a trace, played on fresh kernels."""
