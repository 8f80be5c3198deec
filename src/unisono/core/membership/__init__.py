"""Who is in the group, agreed in ballots by those who are."""
