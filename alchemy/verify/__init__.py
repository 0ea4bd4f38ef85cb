"""The promises, checked."""
