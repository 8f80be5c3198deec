"""What stands on top of groups: state transfer, and clients outside."""
