"""A run as a space-time diagram."""
