"""What stands on top of groups: names, and whatever else applications share."""
