"""Where a run happens: devices and processes."""
