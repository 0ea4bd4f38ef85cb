"""Parts of the command: its flags, their conversion to a config, the data, the checkpoints, the results."""
