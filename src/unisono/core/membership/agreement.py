"""What all members of a group have in common, how a joiner that differs is told, and what an observer knows of it.

Versions, orders, policies and settings are compared by value, and the hooks of the applications by which of them are given. So a
refusal names each difference with both values. It is written for the joiner: "this member" is the one that reads it.

An **observer** gives no hooks and joins whatever the members give. It may coordinate a view all the same, and must not take in two
members whose hooks differ. So it goes by the hooks that the members of its view have told it in their greetings:

- a member of its view that is no observer has told its hooks: these are the group's;
- all others in its view are observers: the group has none yet. The first joiner's count for `contact_ns`, so that of two
  joiners that differ and come together only one is taken in;
- none of them has told, and not all are known to be observers: it asks them, and leaves strangers unanswered until it knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress

from unisono.core.config import describe_numbers
from unisono.core.membership.context import Context
from unisono.core.types import MemberId, View
from unisono.core.wire import GroupSettings, HookSet
from unisono.core.wire.control import Hello

TEXT_LETTERS_MAX = 40
"""Maximum number of characters that a refusal repeats of the name of an order or policy."""


class Agreement:
    """What one member compares greetings with."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._own: GroupSettings = context.settings.agreed(context.order, context.config)
        self._told: dict[MemberId, GroupSettings] = {}  # an observer's: by whom, in this view or since
        self._hooks: HookSet | None = self._own.hooks  # of the group
        self._is_told = not self._own.is_observer  # by a member of the view; else they are what was last known
        self._awaited: HookSet | None = None  # an observer's: of a joiner that will perhaps be the first member …
        self._awaited_until = 0  # … until then

    @property
    def settings(self) -> GroupSettings:
        """What a greeting says."""
        return self._own._replace(hooks=self._hooks)

    def difference(self, theirs: GroupSettings) -> str:
        """Why a greeting with these settings is refused; "": it is not."""
        mine = self.settings
        if mine.hooks is None and self._context.now < self._awaited_until:
            mine = mine._replace(hooks=self._awaited)
        return describe_difference(mine, theirs)

    def hear(self, sender: MemberId, hello: Hello, view: View | None) -> None:
        """A greeting fits. An observer remembers who gives which hooks."""
        if not self._own.is_observer:
            return
        theirs, context = hello.settings, self._context
        self._told.pop(sender, None)
        self._told[sender] = theirs
        while len(self._told) > context.settings.addresses_max:
            del self._told[next(iter(self._told))]
        if theirs.hooks is not None:
            self._awaited, self._awaited_until = theirs.hooks, context.now + context.settings.contact_ns
        self.enter(view)

    def enter(self, view: View | None) -> None:
        """Find the hooks of the view that this member is in."""
        if not self._own.is_observer:
            return
        others = () if view is None else tuple(member for member in view.members if member != self._context.id)
        told = [self._told[member] for member in others if member in self._told]
        by_members = [settings.hooks for settings in told if not settings.is_observer]
        self._is_told = bool(by_members)
        if by_members:
            self._hooks = by_members[0]
        elif len(told) == len(others):
            self._hooks = None
        elif self._hooks is None:
            self._hooks = next((settings.hooks for settings in told if settings.hooks is not None), None)

    def unknown(self, view: View | None) -> list[MemberId]:
        """The members to ask before a stranger's hooks can be compared; none, if this member knows the group's."""
        if self._is_told or view is None:
            return []
        return [member for member in view.members if member != self._context.id and member not in self._told]


def describe_difference(group: GroupSettings, joiner: GroupSettings) -> str:
    """What a joiner must change to be taken in, in sentences; "": nothing."""
    if group.version != joiner.version:
        return (
            f"the group speaks version {group.version} of the wire format, this member version {joiner.version}: "
            "run the same version of unisono."
        )
    differs = [mine != theirs for mine, theirs in zip(_values_of(group), _values_of(joiner), strict=True)]
    said = []
    if any(differs):
        mine, theirs = (_listed(list(compress(_words_of(side), differs))) for side in (group, joiner))
        said.append(f"the group uses {mine}, this member {theirs}; join with the same settings.")
    if group.hooks is not None and joiner.hooks is not None and group.hooks != joiner.hooks:
        said += _hook_sentences(group.hooks, joiner.hooks, joiner.is_observer)
    return " ".join(one if i == 0 else one[0].upper() + one[1:] for i, one in enumerate(said))


def _values_of(settings: GroupSettings) -> tuple[object, ...]:
    return (settings.order, settings.policy, *settings.config)


def _words_of(settings: GroupSettings) -> list[str]:
    order, policy = settings.order[:TEXT_LETTERS_MAX], settings.policy[:TEXT_LETTERS_MAX]
    return [f"order={order!r}", f"policy={policy!r}", *describe_numbers(settings.config)]


_STATE_HOOKS = {"state": ("snapshot", "restore"), "merge": ("merge",)}


def _hook_sentences(group: HookSet, joiner: HookSet, is_observer: bool) -> Iterable[str]:
    if is_observer:
        yield (
            f"this member observes a group whose members give {_given(joiner)}, and the members here give {_given(group)}: "
            "give the same hooks at all members."
        )
        return
    carried, lacked = _names_of(group, state_only=True), _without(group, joiner, state_only=True)
    if lacked:
        yield f"the group carries its state with {_quoted(carried)}, this member has no {_hooks(lacked)}: {_give(lacked)}"
    if group.answer and not joiner.answer:
        yield f"the group answers clients with `answer`, this member has no {_hooks(['answer'])}: {_give(['answer'])}"
    extra = _without(joiner, group)
    if extra:
        it = "it" if len(extra) == 1 else "them"
        yield f"this member gives {_quoted(extra)}, the group does not: leave {it} out, or give {it} at all members."


def _names_of(hooks: HookSet, state_only: bool = False) -> list[str]:
    names = [name for field, names in _STATE_HOOKS.items() if getattr(hooks, field) for name in names]
    return names + (["answer"] if hooks.answer and not state_only else [])


def _without(these: HookSet, others: HookSet, state_only: bool = False) -> list[str]:
    absent = _names_of(others)
    return [name for name in _names_of(these, state_only) if name not in absent]


def _given(hooks: HookSet) -> str:
    return _quoted(_names_of(hooks)) or "no hooks"


def _hooks(names: Sequence[str]) -> str:
    return f"{_quoted(names)} hook{'s' if len(names) > 1 else ''}"


def _give(names: Sequence[str]) -> str:
    return f"give {'it' if len(names) == 1 else 'them'}, or join as an observer."


def _quoted(names: Sequence[str]) -> str:
    return _listed([f"`{name}`" for name in names])


def _listed(items: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(items[:-1]), *items[-1:]]))
