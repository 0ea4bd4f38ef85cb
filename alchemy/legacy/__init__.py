"""Models, tasks and backward handlers of older projects, adapted once when the model is built."""
