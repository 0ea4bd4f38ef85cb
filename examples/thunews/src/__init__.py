"""The parts of the command: its flags, their translation into a config, the data, the checkpoints, the results."""
