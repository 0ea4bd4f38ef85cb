"""Old import path of distributed training."""
