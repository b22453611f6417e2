"""The common query over columns, in C; whatever is unusual goes to the kernels in `streams.operators`, in order."""
