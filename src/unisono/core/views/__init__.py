"""The engine of one view: batches, ordering, the gate for safe messages, and the three steps of a view change."""
