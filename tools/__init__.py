"""What `./dev` does in Python."""
