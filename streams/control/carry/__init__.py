"""What the control role carries on: promotions and plans."""
