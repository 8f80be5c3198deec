"""One member put together, and what it tells of itself."""
