"""Old import path for distributed training."""
