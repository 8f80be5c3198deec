"""The judge of a running group: view by view, from facts (`scan`).

The judge is plain Python and small: its state is text, so that a stream can keep it (`watch`), and
it never looks at rows. It says of each view that it is open, or closed and free of doubt (PASS), or
that its **rows** must be looked at (`looks`): of an open view for what is certain already (`look`),
of a closed one for everything that a view decides.

- A view is **closed** when each of its members has left it, has ended, or has gone past it without
  ever installing it.
- A view without a doubt keeps what digests decide, for the same reasons as a whole run does
  (`verify`).
- Rows of an open view are looked at when a scan is suspicious, when members disagree about the
  view's list or order, and when two members that went the same way delivered different things.
- A view that some members have left and others have not, for longer than the time limit, is UNKNOWN
  until the rest comes.

The facts of a life are taken strictly in the order of its rows; parts that come too early wait.
What a part assumed of the rows before it is held against what those have reached. `doubts` asks this judge about
whole runs, too.

The state is bounded for views that stay open for weeks: blocks of ordered deliveries that every
member has completed are compared and forgotten, blocks that wait for a slow member become longer
instead of more, and everything else is a sum by member and origin.
Lives that have ended, and views that are closed, go. So does a group that does not end properly,
once nothing has come of it for long. If it goes on after all, its lives begin in the middle: a view
that a life may have installed in rows that the judge does not know cannot pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from unisono.pipeline.scan import BLOCK, DECIDED_BY_DIGESTS, Fact
from unisono.trace.checks.properties import PROPERTIES
from unisono.trace.promises import PROMISES, SHOWN, owed_by_all, services_of, unknown_in, unordered_in
from unisono.trace.schema import CUT, END, TOTAL, view_number

BY_THE_RUN = SHOWN | {"P18"}
"""What a view alone does not decide: it is asked when the run has ended."""
BY_THE_WAYS = frozenset({"P15"})
"""What is decided by where the members of a view went, and with whom; the rows of the view are not asked."""
PARTIES_TOLD = 5
"""Maximum number of members of one view whose transitional sets are reported."""
ROWS_DECIDE = frozenset(
    {"P0", "P1", "P3", "P8", "P11", "fifo", "views", "special", "apart", "casts", "own", "lists", "orders", "overlap"}
)
"""The suspicions that the rows of a view explain or dispel. Any other one keeps the view from passing."""
ROWS_MAX = 200_000
"""Views of at most this many rows are looked at in one task, larger ones on Spark."""
BLOCKS_MAX = 512
"""Maximum number of blocks of one member that wait for the others. Beyond it, neighbours are merged in pairs."""
ENDED_MAX = 1_000
"""Maximum number of ended lives that are remembered."""
FILES_MAX = 1_000
"""Maximum number of files remembered for a view; for a view with more, all files of its run are searched."""
VIEWS_MAX = 64
"""Maximum number of overdue views, and of views in which an own cast was not delivered, that are remembered."""
FORGET_LIMITS = 144
"""Time limits without facts after which a group is forgotten if all its views are UNKNOWN, unless told otherwise (a
day, with ten minutes as limit). Until then, late rows can still correct them."""
IDLE_FACTOR = 7
"""A group with a view that no member has left may be idle. It is forgotten after this many times as long (a week)."""


@dataclass(frozen=True)
class Said:
    """What the judge says of a view at one moment."""

    view: str
    status: str
    """`open`; `look`: open, but rows may show a violation; `rows`: closed, rows decide; PASS; UNKNOWN."""
    order: str = ""
    why: str = ""
    asked: tuple[str, ...] = ()
    """The properties that rows are asked for, or that hold."""
    best: str = "PASS"
    """The verdict if the rows show no violation."""
    spans: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """By life: the local indices from its VIEW row to the row that closes its stay, both included; -1: no end yet."""
    endings: Mapping[str, str] = field(default_factory=dict)
    """How lives have ended after they had left the view, where that matters (P4)."""
    files: tuple[str, ...] | None = ()
    """Those that may hold the rows; None: too many to tell."""
    violations: tuple[tuple[str, str, str], ...] = ()
    """Certain without a look at rows: property, member and sentence."""
    rows: int = 0
    """How many rows these local indices are, as far as they are known."""


@dataclass
class _View:
    """What is known of one view that is not closed."""

    lists: dict[str, str] = field(default_factory=dict)  # by list of members: who said so first
    orders: dict[str, str] = field(default_factory=dict)
    entered: dict[str, int] = field(default_factory=dict)  # by life: local index of its VIEW row
    stays: dict[str, list[Any]] = field(default_factory=dict)  # by life: its way, and where it ended
    stayed: list[str] = field(default_factory=list)  # lives that came to their END here, with nothing under way
    blocks: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # by life and block: count, xor, sum
    stride: int = 1  # how many blocks are added up as one
    folded: int = 0  # blocks below were complete everywhere, and compared
    complete: dict[str, int] = field(default_factory=dict)  # by life: how many blocks it has completed
    origins: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # by life and "service origin"
    casts: dict[str, dict[str, list[int]]] = field(default_factory=dict)  # by life and service
    suspects: dict[str, str] = field(default_factory=dict)
    files: list[str] | None = field(default_factory=list)  # None: too many
    looked: list[str] = field(default_factory=list)  # the suspicions for which rows were looked at already
    left_ms: int | None = None  # when the first member left
    overdue: bool = False

    @property
    def members(self) -> list[str]:
        return sorted({who for text in self.lists for who in text.split(",") if who})

    def suspect(self, what: str, note: str) -> None:
        self.suspects.setdefault(what, note)


@dataclass
class _LifeState:
    """How far the rows of one life have been taken in."""

    reached: dict[str, int] = field(default_factory=lambda: {"local": 0})
    seen: dict[str, str] = field(default_factory=dict)  # by name in `reached`: the view in which it was reached
    view: str | None = None
    protocol: str | None = None
    early: dict[str, list[Fact]] = field(default_factory=dict)  # by part: facts that wait for those before
    waits_ms: int | None = None  # since when some wait
    uncertain: list[dict[str, Any]] = field(default_factory=list)  # views in which an own cast was not delivered

    def __post_init__(self) -> None:
        self.early = {part: [Fact(*fact) for fact in facts] for part, facts in self.early.items()}


class GroupJudge:
    """Judges the views of one group of one run as facts come."""

    def __init__(
        self,
        limit_ms: int,
        spine: str | None = None,
        views: Mapping[str, str] | None = None,
        forget_ms: int | None = None,
    ) -> None:
        """`forget_ms`: how long a group that does not end properly is remembered; None: `FORGET_LIMITS`."""
        self._limit_ms = limit_ms
        self._forget_after_ms = FORGET_LIMITS * limit_ms if forget_ms is None else forget_ms
        self._idle_ms = IDLE_FACTOR * self._forget_after_ms
        said = json.loads(spine) if spine else {}
        self._lives = {who: _LifeState(**life) for who, life in said.get("lives", {}).items()}
        self._ended: dict[str, str] = said.get("ended", {})
        self._behind: dict[str, str | None] = said.get("behind", {})
        """By life of which rows are missing: the first view that it is known to have installed behind them."""
        self._heard_ms: int = said.get("heard_ms", 0)  # when the last facts came
        self._views = {view: _View(**json.loads(text)) for view, text in (views or {}).items()}
        self._has_doubt = False

    # State.

    @property
    def spine(self) -> str | None:
        """What is kept beside the views; None: nothing has been under way for long, and all may be forgotten."""
        if not self._lives and not self._views and not self._ended:
            return None
        lives = {who: asdict(life) for who, life in self._lives.items()}
        return json.dumps({"lives": lives, "ended": self._ended, "behind": self._behind, "heard_ms": self._heard_ms})

    @property
    def is_complete(self) -> bool:
        """Whether every life has ended and every view is closed, and since this judge was made no row was told of twice, and
        exactly those came to a view from another whom each of them names."""
        return not self._lives and not self._views and not self._has_doubt

    @property
    def views(self) -> dict[str, str]:
        return {name: json.dumps(asdict(view)) for name, view in self._views.items()}

    def due_ms(self) -> int | None:
        """When `expire` will have something to do."""
        times = [self._overdue_ms(view) for view in self._views.values() if not view.overdue]
        times += [life.waits_ms + self._limit_ms for life in self._lives.values() if life.waits_ms is not None]
        forget_ms = self._forget_ms()
        times += [] if forget_ms is None else [forget_ms]
        return min(times, default=None)

    def _overdue_ms(self, view: _View) -> int:
        if view.left_ms is None:
            return self._heard_ms + self._idle_ms
        return view.left_ms + self._limit_ms

    def _forget_ms(self) -> int | None:
        """When all may be forgotten; None: something is under way, or there is nothing to forget."""
        if not self._lives and not self._views:
            return self._heard_ms + self._limit_ms if self._ended else None
        if any(life.waits_ms is not None for life in self._lives.values()):
            return None
        if not all(view.overdue for view in self._views.values()):
            return None
        return self._heard_ms + self._forget_after_ms

    # What comes in.

    def take(self, facts: Iterable[tuple[str, Fact]], now_ms: int) -> list[Said]:
        """Facts of any parts, each part complete and with a name of its own."""
        said: list[Said] = []
        self._heard_ms = now_ms
        parts: dict[tuple[str, str], list[Fact]] = {}
        files: list[str] = []
        for part, fact in facts:
            if fact.what == "file":
                files.append(fact.path or "")
            else:
                parts.setdefault((fact.who or "", part), []).append(fact)
        unplaced = [key for key, some in parts.items() if all(fact.what not in ("edge", "life") for fact in some)]
        doubts = [fact for key in unplaced for fact in parts.pop(key) if fact.what == "suspect"]
        for (who, part), some in parts.items():
            if who in self._ended and who not in self._lives:
                said.append(self._goes_on(who))
                continue
            life = self._lives.setdefault(who, _LifeState())
            life.early.setdefault(part, []).extend(some)
        known = set(self._views)
        for who in dict.fromkeys(who for who, _ in parts):
            if who in self._lives:
                said += self._advance(who, now_ms)
        for view in self._views.values():
            _add_files(view, files)
            for fact in doubts:  # of rows that cannot be read: they may belong to any view
                view.suspect(fact.suspicion or "?", f"{fact.who}: {fact.reason}")
        said += self._conclude(known)
        return said

    def _conclude(self, known: set[str]) -> list[Said]:
        said = [Said(view, "open", self._order(state)) for view, state in self._views.items() if view not in known]
        said += self._close()
        said += self._looks()
        self._forget()
        return said

    def expire(self, now_ms: int) -> list[Said]:
        """Views that members have left longer than the limit ago, without the others; then forget what is over."""
        said: list[Said] = []
        known = set(self._views)
        for who, life in list(self._lives.items()):
            if life.waits_ms is not None and now_ms >= life.waits_ms + self._limit_ms:
                self._skip(who, life)
                said += self._advance(who, now_ms)
        said += self._conclude(known)
        for name, view in self._views.items():
            if view.overdue or now_ms < self._overdue_ms(view):
                continue
            view.overdue = True
            missing = [who for who in view.members if not self._has_left(who, name, view)]
            why = f"{', '.join(missing)} did not say how it left the view within {self._limit_ms / 1000:g} s"
            if view.left_ms is None:
                why = f"no rows of the group came for {self._idle_ms / 1000:g} s"
            said.append(Said(name, "UNKNOWN", self._order(view), why, spans=_spans(view), files=_files(view)))
        forget_ms = self._forget_ms()
        if forget_ms is not None and now_ms >= forget_ms:
            self._lives, self._views, self._ended, self._behind = {}, {}, {}, {}
        return said

    def _skip(self, who: str, life: _LifeState) -> None:
        """Rows that did not come in time: go on behind them."""
        if (view := self._view(life.view)) is not None:
            view.suspect("missing", f"{who}: rows from local {life.reached['local']} on are missing")
        life.reached = {"local": min(_start(facts) for facts in life.early.values())}
        life.seen, life.view, life.waits_ms = {}, None, None
        self._behind[who] = None

    # A life's parts, in order.

    def _goes_on(self, who: str) -> Said:
        why = f"{who} goes on after its {self._ended[who]}"
        return Said("", "look", why=why, asked=("P0",), spans={who: (0, -1)})

    def _advance(self, who: str, now_ms: int) -> Iterator[Said]:
        life = self._lives[who]
        while True:
            starts = {part: _start(facts) for part, facts in life.early.items()}
            ready = [part for part, start in starts.items() if start <= life.reached["local"]]
            if not ready:
                if not life.early:
                    life.waits_ms = None
                elif life.waits_ms is None:
                    life.waits_ms = now_ms
                return
            part = min(ready, key=lambda part: starts[part])
            facts = life.early.pop(part)
            if who in self._ended:
                yield self._goes_on(who)
            if starts[part] < life.reached["local"]:
                self._overlap(life, facts)
                facts = _new_ones(facts, life.reached["local"])
            yield from self._take_part(who, life, facts, now_ms)
            if who in self._ended:
                yield from self._say_with_ending(who, life)
                if not life.early:
                    del self._lives[who]
                    return

    def _overlap(self, life: _LifeState, facts: list[Fact]) -> None:
        """Rows that were taken in before, or two of one index: digests cannot tell them apart, so rows must decide."""
        self._has_doubt = True
        for name in {life.view, *(fact.view for fact in facts)}:
            if (view := self._view(name)) is not None:
                view.suspect("overlap", "rows were taken in twice")

    def _take_part(self, who: str, life: _LifeState, facts: list[Fact], now_ms: int) -> Iterator[Said]:
        """Facts of one part, in any order: a shuffle may have mixed them."""
        by: dict[str, list[Fact]] = {}
        for fact in facts:
            by.setdefault(fact.what, []).append(fact)
        inherited, before = life.view, life.reached["local"]
        edges = by.get("edge", ())
        protocol = next((fact.protocol for fact in edges), life.protocol)
        if life.protocol not in (None, protocol):
            note = f"its rows name the protocols {life.protocol} and {protocol}"
            by.setdefault("suspect", []).append(
                facts[0]._replace(what="suspect", view=None, suspicion="P0", reason=note)
            )
        life.protocol = protocol
        for fact in edges:
            if fact.relation != "reached" and not self._holds(who, life, fact, inherited):
                yield from self._seam(who, fact, inherited)
        for fact in sorted(by.get("order", ()), key=lambda fact: fact.local_index or 0):
            yield from self._enter(who, life, fact)
        for fact in by.get("came", ()):
            self._came_from(who, fact, inherited)
        for fact in by.get("stay", ()):
            self._leave(who, fact, inherited, now_ms)
        for what in ("block", "origin", "cast"):
            for fact in by.get(what, ()):
                self._add(who, fact)
        for fact in by.get("suspect", ()):
            yield from self._suspect(who, fact, fact.view or inherited)
            if fact.suspicion in (
                "P0",
                "P15",
            ):  # of the part, or of the view that it installs: not only of the one that it left
                for entered in by.get("order", ()):
                    self._views[entered.view or ""].suspect(fact.suspicion, f"{who}: {fact.reason}")
        for fact in edges:
            if fact.relation == "reached" and fact.edge not in (None, "view"):
                self._reach(who, life, fact)
        life.reached["local"] = max(before, _end(facts))
        for fact in by.get("life", ()):
            self._end(who, fact)
        for view in self._views.values():
            _fold(view)
            _thin_out(view)

    def _suspect(self, who: str, fact: Fact, name: str | None) -> Iterator[Said]:
        view = self._view(name)
        if fact.suspicion == "kinds":
            return  # rows of properties that a view does not decide
        if view is not None:
            view.suspect(fact.suspicion or "?", f"{who}: {fact.reason}")
        elif fact.suspicion == "P0":
            yield Said("", "look", why=f"{who}: {fact.reason}", asked=("P0",), spans={who: (0, -1)})

    def _reach(self, who: str, life: _LifeState, fact: Fact) -> None:
        assert fact.edge is not None
        life.reached[fact.edge] = fact.value or 0
        if fact.view is not None:
            life.seen[fact.edge] = fact.view
        view = self._view(life.view)
        if fact.edge == f"ordinal {TOTAL}" and view is not None and who not in view.stays:
            view.complete[who] = (fact.value or 0) // BLOCK

    def _enter(self, who: str, life: _LifeState, fact: Fact) -> Iterator[Said]:
        assert fact.view is not None
        if life.view is not None and view_number(fact.view) <= view_number(life.view):
            witness = {"what": "backwards", "local": fact.local_index, "before": life.view}
            sentence = PROPERTIES["P12"].tell((who,), fact.view, witness)
            yield Said(fact.view, "FAIL", fact.order or "", violations=(("P12", who, sentence),))
        life.view = fact.view
        if who in self._behind and self._behind[who] is None:
            self._behind[who] = fact.view
        life.reached = {name: value for name, value in life.reached.items() if not name.startswith("ordinal ")}
        view = self._views.setdefault(fact.view, _View())
        view.entered.setdefault(who, fact.local_index or 0)
        view.lists.setdefault(fact.members or "", who)
        view.orders.setdefault(fact.order or "", who)
        if len(view.lists) > 1:
            view.suspect("lists", f"members disagree about the members of {fact.view}")
        if len(view.orders) > 1:
            view.suspect("orders", f"members disagree about the order of {fact.view}")

    def _came_from(self, who: str, fact: Fact, inherited: str | None) -> None:
        """A VIEW row names the view before it, which lies in an earlier part."""
        if fact.previous_view == inherited or (inherited is None and who in self._behind):
            return
        for view in (self._view(fact.view), self._view(inherited)):
            if view is not None:
                view.suspect(
                    "P15",
                    f"{who}: it installs {fact.view} and says that it came from {fact.previous_view or 'nowhere'}",
                )

    def _leave(self, who: str, fact: Fact, inherited: str | None, now_ms: int) -> None:
        view, before = self._view(fact.view or inherited), self._view(inherited)
        if before is not None and fact.view not in (None, inherited) and (view is None or who not in view.entered):
            before.suspect("views", f"{who}: it leaves {fact.view}, which it did not install")
        if view is not None:
            view.stays[who] = [fact.way, fact.local_index]
            view.left_ms = now_ms if view.left_ms is None else view.left_ms
            view.complete.pop(who, None)

    def _end(self, who: str, fact: Fact) -> None:
        self._ended[who] = fact.ending or "?"
        if fact.ending == END and fact.reason != CUT and who not in self._behind:
            for view in self._views.values():
                if view.stays.get(who, [None])[0] == END:
                    view.stayed.append(who)

    def _add(self, who: str, fact: Fact) -> None:
        view = self._view(fact.view)
        if view is None:
            return
        if fact.what == "block":
            number = int(fact.block or 0)
            if number >= view.folded:
                _sum(view.blocks.setdefault(who, {}).setdefault(str(number // view.stride), [0, 0, 0]), fact)
            else:
                view.suspect("unclear", f"{who}: an early stretch of its deliveries came late")
            return
        if fact.what == "origin":
            if fact.origin not in view.members:
                view.suspect("P3", f"{who} delivered a message of {fact.origin}, which is not in the view")
            _sum(view.origins.setdefault(who, {}).setdefault(f"{fact.service} {fact.origin}", [0, 0, 0]), fact)
        else:
            _sum(view.casts.setdefault(who, {}).setdefault(fact.service or "", [0, 0, 0]), fact)

    # Seams between parts.

    def _holds(self, who: str, life: _LifeState, fact: Fact, inherited: str | None) -> bool:
        name, value = fact.edge or "", fact.value or 0
        known = life.reached.get(name)
        match fact.relation:
            case "=":
                return value == (known or 0)
            case ">=":
                return known is not None and known >= value
            case "<=":
                return known is None or known <= value
            case "follows":  # without a gap inside a view; from view to view some may be left out
                if known is None:
                    return True
                in_one_view = (fact.view or inherited) == inherited and life.seen.get(name) == inherited
                return value == known if in_one_view else value >= known
            case "installed":
                return fact.view == inherited or (inherited is None and who in self._behind)
        raise AssertionError(fact.relation)

    def _seam(self, who: str, fact: Fact, inherited: str | None) -> Iterator[Said]:
        view, what = self._view(fact.view) or self._view(inherited), fact.edge or ""
        if view is None:
            if who not in self._behind:
                why = f"{who}: {what} does not fit the rows before"
                yield Said("", "look", why=why, asked=("P0",), spans={who: (0, -1)})
        elif fact.relation == "installed":
            view.suspect("views", f"{who}: its rows name {fact.view}, which it did not install last")
        elif what.startswith("next "):
            in_view = (fact.view or inherited) == inherited and self._lives[who].seen.get(what) == inherited
            view.suspect("fifo" if in_view else "indices", f"{who}: messages of {what[5:]} do not follow those before")
        elif fact.relation == "<=":
            view.suspect("indices", f"{who}: it casts an index twice")
        else:
            view.suspect("P0" if what.startswith("ordinal ") else "P1", f"{who}: {what} does not fit the rows before")

    # Closing.

    def _has_left(self, who: str, name: str, view: _View) -> bool:
        if who in view.stays or who in self._ended:
            return True
        life = self._lives.get(who)
        return (
            who not in view.entered
            and life is not None
            and life.view is not None
            and view_number(life.view) > view_number(name)
        )

    def _may_have_installed(self, who: str, name: str) -> bool:
        """Whether rows are missing that may hold the life's VIEW row of this view."""
        if who not in self._behind:
            return False
        behind = self._behind[who]
        return behind is None or view_number(name) <= view_number(behind)

    def _close(self) -> list[Said]:
        said: list[Said] = []
        for name, view in sorted(self._views.items(), key=lambda item: view_number(item[0])):
            members = view.members
            if members and view.stays and all(self._has_left(who, name, view) for who in members):
                said += self._judge_ways(name, view)
                said.append(self._verdict(name, view))
                del self._views[name]
        return said

    def _judge_ways(self, name: str, view: _View) -> Iterator[Said]:
        """Whether those that came along are those that say so (P15); a violation is one of the view that they went to."""
        for next_view, along in _parties(view).items():
            state = self._views.get(next_view)
            orders = view.orders if state is None else state.orders
            if not owed_by_all(orders) >= BY_THE_WAYS:
                continue
            self._has_doubt = self._has_doubt or any(some != along.keys() for some in along.values())
            if all(not some for some in along.values()):
                wrong, doubt = {}, f"nobody says with whom it went to {next_view}"
            else:
                may = view.members if state is None else set(view.members).intersection(state.members)
                wrong, doubt = _contradictions(along, may, view.stayed), _separation(along)
            if wrong:
                told = tuple(
                    ("P15", who, PROPERTIES["P15"].tell((who,), next_view, {"previous_view": name, **witness}))
                    for who, witness in list(wrong.items())[:PARTIES_TOLD]
                )
                yield Said(next_view, "FAIL", min(orders, default=""), violations=told)
            elif doubt:
                view.suspect("parties", doubt)
                if state is not None:
                    state.suspect("parties", doubt)
                else:
                    yield Said(next_view, "UNKNOWN", min(orders, default=""), doubt)

    def _verdict(self, name: str, view: _View) -> Said:
        order = self._order(view)
        for who in view.members:
            if who not in view.entered and self._may_have_installed(who, name):
                view.suspect("missing", f"{who}: rows are missing, in which it may have been in the view")
        _compare_ways(view)
        _compare_all(view)
        _compare_casts(view)
        asked = owed_by_all(view.orders) - BY_THE_RUN - BY_THE_WAYS
        services = {key.split(" ")[0] for some in view.origins.values() for key in some}
        services |= {service for some in view.casts.values() for service in some}
        for one in view.orders:
            if any(unordered_in(one, service) for service in services):
                view.suspect("order", f"there are messages of a service of which the order {one} is not judged")
            carried = services_of([one])
            if carried is not None and not services <= carried:
                view.suspect("P0", f"{min(services - carried)} messages, which the order {one} does not carry")
        undecided = asked - DECIDED_BY_DIGESTS - ({"P8"} if services <= {TOTAL} else set())
        rows = self._rows(view)
        if not services <= {TOTAL} and rows <= ROWS_MAX:
            undecided |= asked & {"P1"}  # circles of casts
        elif not services <= {TOTAL} and not view.suspects and not undecided:
            asked -= {"P1"}  # in a large view that needs no look, they are looked for when the run has ended
        hard = {what: note for what, note in view.suspects.items() if what not in ROWS_DECIDE}
        best, why = "PASS", "; ".join([*hard.values(), *view.suspects.values()][:1])
        if unknown := [reason for one in sorted(view.orders) if (reason := unknown_in(one, name))]:
            best, why = "UNKNOWN", unknown[0]
        elif hard:
            best = "UNKNOWN"
        if not view.suspects and not undecided and best == "PASS":
            return Said(name, "PASS", order, asked=tuple(sorted(asked)), spans=_spans(view), files=_files(view))
        said = Said(name, "rows", order, why, tuple(sorted(asked)), best, _spans(view), files=_files(view), rows=rows)
        return self._await_endings(said, view)

    def _await_endings(self, said: Said, view: _View) -> Said:
        """Own casts that were not delivered are a violation (P4) only if the life ends well: wait for its end."""
        endings = {}
        for who, (way, _) in view.stays.items():
            if way in (None, "END") or _delivered_own(view, who):
                continue
            if who in self._ended:
                endings[who] = self._ended[who]
            elif who in self._lives:
                uncertain = self._lives[who].uncertain
                uncertain.append(asdict(said))
                del uncertain[:-VIEWS_MAX]
                why = f"{who} did not deliver all that it had cast, and owes it if it ends with END or LEAVE"
                said = replace(said, best="UNKNOWN", why=why)
        return replace(said, endings=endings)

    def _say_with_ending(self, who: str, life: _LifeState) -> Iterator[Said]:
        """The end of a life tells what it owed."""
        for one in life.uncertain:
            said = Said(**one)
            spans = {name: (start, end) for name, (start, end) in said.spans.items()}
            files = None if said.files is None else tuple(said.files)
            yield replace(said, spans=spans, files=files, endings={**said.endings, who: self._ended[who]})

    def _looks(self) -> list[Said]:
        """Open views for which something new speaks."""
        said = []
        for name, view in self._views.items():
            _compare_ways(view)
            for who in view.stays:
                if self._ended.get(who) in ("END", "LEAVE") and not _delivered_own(view, who):
                    view.suspect("own", f"{who} did not deliver all that it had cast")
            new = [what for what in view.suspects if what not in view.looked and what != "special"]
            if not new:
                continue
            view.looked += new
            order = self._order(view)
            asked = owed_by_all(view.orders) - BY_THE_RUN - BY_THE_WAYS
            if any(len(PROMISES.get(one, ())) != 1 for one in view.orders):
                asked -= {"P7"}  # a message whose CAST is still to come may be of a service that does not owe it
            said.append(
                Said(
                    name,
                    "look",
                    order,
                    view.suspects[new[0]],
                    tuple(sorted(asked)),
                    spans=_spans(view),
                    files=_files(view),
                    rows=self._rows(view),
                )
            )
        return said

    def _forget(self) -> None:
        """Keep only what may still matter."""
        for who in list(self._ended)[:-ENDED_MAX]:
            del self._ended[who]
        self._behind = {who: view for who, view in self._behind.items() if who in self._lives or who in self._ended}
        overdue = sorted((name for name, view in self._views.items() if view.overdue), key=view_number)
        for name in overdue[:-VIEWS_MAX]:
            del self._views[name]
        for life in self._lives.values():
            known = {
                f"next {who}"
                for who in (*self._lives, *(self._views[life.view].members if life.view in self._views else ()))
            }
            for name in [name for name in life.reached if name.startswith("next ") and name not in known]:
                del life.reached[name]
                life.seen.pop(name, None)

    # Asking.

    def _view(self, name: str | None) -> _View | None:
        return self._views.get(name) if name is not None else None

    def _rows(self, view: _View) -> int:
        """How many rows its members have from their VIEW rows on to those that close their stays, as far as is known."""
        count = 0
        for who, (start, end) in _spans(view).items():
            if end < 0 and who in self._lives:
                end = self._lives[who].reached["local"] - 1
            count += max(0, end - start + 1)
        return count

    def _order(self, view: _View) -> str:
        return min(view.orders, default="")


def _spans(view: _View) -> dict[str, tuple[int, int]]:
    return {who: (local, view.stays[who][1] if who in view.stays else -1) for who, local in view.entered.items()}


def _files(view: _View) -> tuple[str, ...] | None:
    return None if view.files is None else tuple(view.files)


def _add_files(view: _View, files: list[str]) -> None:
    if view.files is not None:
        view.files = list(dict.fromkeys([*view.files, *files]))
        if len(view.files) > FILES_MAX:
            view.files = None


def _start(facts: list[Fact]) -> int:
    for fact in facts:
        if (fact.what, fact.edge, fact.relation) == ("edge", "local", "="):
            return fact.value or 0
    return 0


def _new_ones(facts: list[Fact], reached: int) -> list[Fact]:
    """What a part that overlaps rows before it may still tell: suspicions, and what lies behind those rows.

    A segment that is taken in again must not install its views again.
    """
    if _end(facts) <= reached:
        return [fact for fact in facts if fact.what == "suspect"]
    return [fact for fact in facts if _lies_behind(fact, reached)]


def _lies_behind(fact: Fact, reached: int) -> bool:
    if fact.what in ("order", "stay"):
        return (fact.local_index or 0) >= reached
    return fact.what not in ("block", "origin", "cast")


def _end(facts: list[Fact]) -> int:
    for fact in facts:
        if fact.what == "edge" and fact.edge == "local" and fact.relation == "reached":
            return fact.value or 0
    return next((fact.rows or 0 for fact in facts if fact.what == "life"), 0)


def _sum(known: list[int], fact: Fact) -> None:
    known[0] += fact.messages or 0
    known[1] ^= fact.xor or 0
    known[2] = (known[2] + (fact.sum or 0)) & 0xFFFFFFFFFFFFFFFF


def _fold(view: _View) -> None:
    """Compare and forget the blocks that every member has completed."""
    members = view.members
    if not members or any(who not in view.complete and who not in view.stays for who in members):
        return
    end = min((view.complete[who] for who in members if who in view.complete), default=view.folded) // view.stride
    for block in range(view.folded // view.stride, end):
        said = {tuple(view.blocks.get(who, {}).pop(str(block), ())) for who in members}
        if len(said) > 1:
            start = block * view.stride * BLOCK
            view.suspect("apart", f"the deliveries {start} and following differ between members")
    view.folded = max(view.folded, end * view.stride)


def _thin_out(view: _View) -> None:
    """Add up neighbouring blocks, of all members alike, while one of them is far behind the others.

    Sums of equal stretches are as good a proof as sums of their blocks. A difference is noticed when the longer
    stretch is complete. Of a stretch that is folded in part, the rest is left at every member.
    """
    while max(map(len, view.blocks.values()), default=0) > BLOCKS_MAX:
        view.stride *= 2
        for who, blocks in view.blocks.items():
            wider: dict[str, list[int]] = {}
            for block, (count, xor, total) in blocks.items():
                known = wider.setdefault(str(int(block) // 2), [0, 0, 0])
                known[0] += count
                known[1] ^= xor
                known[2] = (known[2] + total) & 0xFFFFFFFFFFFFFFFF
            view.blocks[who] = wider


def _compare_ways(view: _View) -> None:
    """Members that went the same way have delivered the same."""
    ways: dict[str, str] = {}
    for who, (way, _) in sorted(view.stays.items()):
        if way is None:
            continue
        other = ways.setdefault(way, who)
        if view.blocks.get(who, {}) != view.blocks.get(other, {}) or view.origins.get(who) != view.origins.get(other):
            view.suspect("apart", f"{other} and {who} went the same way and did not deliver the same")


def _parties(view: _View) -> dict[str, dict[str, frozenset[str]]]:
    """By next view and member that went there: with whom it says that it came."""
    parties: dict[str, dict[str, frozenset[str]]] = {}
    for who, (way, _) in sorted(view.stays.items()):
        next_view, bar, along = (way or "").partition("|")
        if bar:
            parties.setdefault(next_view, {})[who] = frozenset(filter(None, along.split(",")))
    return parties


def _contradictions(
    along: Mapping[str, frozenset[str]], may: Iterable[str], stayed: Iterable[str]
) -> dict[str, dict[str, object]]:
    """By member: how its transitional set contradicts what others of the same next view say, whichever cut each came by.

    A member of both views (`may`) that did not install the next one may be in a set, because it may have crashed on its way;
    one that stayed in the old view to its END may not.
    """
    arrived, known = along.keys(), frozenset(may)
    wrong: dict[str, dict[str, object]] = {}
    for who, mine in along.items():
        lacking = {other for other, its in along.items() if its == mine} - mine
        apart = {other for other in mine & arrived if along[other] & arrived != mine & arrived}
        if extra := (mine - known) or mine.intersection(stayed) or (set() if lacking else apart):
            wrong[who] = {"what": "set", "extra": sorted(extra)}
        elif lacking:
            wrong[who] = {"what": "set", "lacking": sorted(lacking)}
    return wrong


def _separation(along: Mapping[str, frozenset[str]]) -> str:
    """Two members that came to one view, neither of them with the other; empty: there are none.

    That is right if a partition closed the view twice. Whether it did, the cuts say, which facts do not hold.
    """
    for who, mine in along.items():
        for other in along.keys() - mine:
            return f"{who} and {other} went to the same view, and say that they did not come together"
    return ""


def _compare_all(view: _View) -> None:
    """One sequence of all members, whatever way they went, shows that causes come first (P8, P1)."""
    first, *others = sorted(view.stays)
    for who in others:
        if view.blocks.get(who, {}) != view.blocks.get(first, {}):
            view.suspect("apart", f"{first} and {who} did not deliver the same sequence")


def _delivered_own(view: _View, who: str) -> bool:
    own = {key.split(" ")[0]: sums for key, sums in view.origins.get(who, {}).items() if key.endswith(f" {who}")}
    return own == view.casts.get(who, {})


def _compare_casts(view: _View) -> None:
    """Each stay delivered of each origin what that origin cast in this view."""
    cast = {f"{service} {who}": sums for who, some in view.casts.items() for service, sums in some.items()}
    for who in view.entered:
        if view.origins.get(who, {}) != cast:
            view.suspect("casts", f"{who} did not deliver exactly what was cast in the view")
