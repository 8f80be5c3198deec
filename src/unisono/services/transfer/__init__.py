"""State transfer: to members that join, and between parts that merge."""
