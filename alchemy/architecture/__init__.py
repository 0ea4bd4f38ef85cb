"""The architecture of a model: its layers with shapes, parameters and FLOPs, and the graph of their data flow."""
