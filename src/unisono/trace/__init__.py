"""Traces: what a run recorded, and whether it kept its promises.

- `schema`   the one definition of a trace's columns; standard library only, so that other programs may take it alone
- `recorder` turns the notes of a member's turns into events; `sinks` keep them in memory or in a folder
- `reader`   reads a folder of traces back; `digest` names a whole trace by one hash
- `promises` which properties an order owes; `checks` judges them, one file a property
- `story`    traces written by hand, a line an event

Nothing is imported here: a reader of traces should not have to load the group communication core.
"""
