"""Notifications about finished runs."""
