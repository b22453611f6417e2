"""What no calls tell: the steps of the control role, and the answers of models at hand, by what they go by."""
