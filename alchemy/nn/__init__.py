"""What learning needs that knows no run: losses, curves, parameter groups."""
