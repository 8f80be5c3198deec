"""The explorer: every state that a small model can reach, with the objects that ship.

One search (`search`) visits the states of a model breadth first. A model says what can happen in a state, where that leads, and
what is asked of each state and of each end; so the first violation comes with a shortest schedule. There are two models, one
in each room:

- `orders`: a few members in one view cast a few messages. Any message may take any time, and in every state any members may crash.
- `views`: a few members change their view: casts, crashes, joins, suspicions, losses, cuts, and time, each a number of times.

A model is made of members, and works the same way in both rooms::

    Search ── steps, judge ──> Model ──> Side, one a member ──> the real engine, or the real membership over it
                                 │
                                 └──> Judge, which asks the checkers of `trace.checks`

    state      one situation a member, packed into an integer (`situations`)
    situation  a local state, and what is on its way to the member
    local      all that a member holds, frozen into a value (`freeze`), with its history

A turn depends on one member alone. So each local state, situation and turn is computed once and numbered, in however many
states it occurs, and a step of the whole is a few additions of integers.
"""
