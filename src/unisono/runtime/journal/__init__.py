"""What a member remembers beyond its process."""
