"""What a trace says was written, held against what kernels have made again."""
