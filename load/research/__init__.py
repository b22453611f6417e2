"""Research beside the product: other systems, the paper's figures, the account of CPU time."""
