"""Models, tasks and backward handlers of older projects, adapted once, at the entrance."""
