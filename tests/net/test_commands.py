"""`unisono node`, `chat`, `status`, `members`, `explain`, `keygen` as people use them: real processes on loopback."""

from __future__ import annotations

import json
import re
import signal
import stat
from pathlib import Path

import pytest

import unisono
from tests.net.programs import Done, Program, addresses
from unisono.core.text import shorten


def node(folder: Path, listen: str, peers: list[str], *more: str) -> Program:
    return Program("node", "lab", "--listen", listen, "--peers", ",".join(peers), "--pace", "0.3", *more, folder=folder)


def test_nodes_cast_deliver_and_leave(folder: Path) -> None:
    peers = addresses(2)
    with (
        node(folder, peers[0], peers, "--min-members", "2") as a,
        node(folder, peers[1], peers, "--min-members", "2", "--json") as b,
    ):
        a.expect(r"view 1@\S+ of 2: ")
        view = json.loads(b.expect(r'\{"event": "view".*\}\n')[0])
        assert len(view["members"]) == 2
        a.say("hello \x1b[31m")
        delivered = json.loads(b.expect(r'\{"event": "delivery".*\}\n')[0])
        assert delivered["payload"] == "hello \x1b[31m"
        assert delivered["sender"].startswith(peers[0])
        a.expect(r":0 hello \\x1b\[31m")  # nothing that others cast may colour a terminal
        b.say("last words")
        assert b.finish() == 0  # the end of the input: it leaves
        a.expect(r"\S+:0 last words")
        a.expect(r"gone: \S+ \(left\)")
        assert a.finish(signal.SIGTERM) == 0


def test_a_member_that_is_told_to_stay_outlives_its_input(folder: Path) -> None:
    with node(folder, addresses(1)[0], [], "--stay") as a:
        a.expect("view 1@")
        a.end_input()
        assert Done("status", folder=folder).code == 0
        assert a.finish(signal.SIGINT) == 0


def test_a_member_that_its_group_does_not_take_says_why(folder: Path) -> None:
    peers = addresses(2)
    with node(folder, peers[0], peers, "--order", "toto") as a:
        a.expect("view 1@")
        with node(folder, peers[1], peers) as b:
            b.expect(
                rf"unisono: \S+ has no view: {peers[0]}#\w+ does not take it in, because "
                r"the group uses order='toto', this member order='causal-"
            )
            assert b.finish(signal.SIGINT) == 0
        again = Done("node", "lab", "--listen", peers[1], "--peers", peers[0], "--timeout", "1s", folder=folder)
        assert again.code == 1
        assert "the group uses order='toto', this member order='causal-total'; join with the same settings" in again.err
        assert a.finish(signal.SIGINT) == 0


def test_a_node_observes_a_group_that_carries_a_state_and_a_chat_is_refused(folder: Path) -> None:
    peers = addresses(3)
    with (
        unisono.sync.join(
            "lab", listen=peers[0], peers=peers, pace=0.3, snapshot=lambda: b"", restore=lambda state: None
        ) as member,
        node(folder, peers[1], peers) as observer,
    ):
        observer.expect(r"view \S+ of 2: ")
        member.cast(b"kept")
        observer.expect(":0 kept")
        observer.say("seen")
        observer.expect(":0 seen")
        with Program("chat", "lab", "--listen", peers[2], "--peers", peers[0], folder=folder) as chat:
            chat.expect(
                r"because the group carries its state with `snapshot` and `restore`, this member has no `snapshot`"
            )
        assert observer.finish(signal.SIGTERM) == 0


def test_a_running_member_answers(folder: Path) -> None:
    peers = addresses(2)
    with (
        node(folder, peers[0], peers, "--min-members", "2") as a,
        node(folder, peers[1], peers, "--min-members", "2") as b,
    ):
        a.expect("view 1@")
        b.expect("view 1@")
        a.say("one")
        b.expect(":0 one")
        every = json.loads(Done("status", "--all", "--json", folder=folder).out)
        assert sorted(one["member"].partition("#")[0] for one in every) == sorted(peers)
        unclear = Done("status", folder=folder)
        assert unclear.code == 2
        assert all(peer in unclear.err for peer in peers)
        assert unclear.err.count("\n") == 1
        status = Done("status", "--member", peers[0], folder=folder)
        assert status.code == 0
        assert "of 2" in status.out
        members = json.loads(Done("members", "--group", "lab", "--member", peers[0], "--json", folder=folder).out)
        assert sorted(one["self"] for one in members) == [False, True]
        with Program("status", "-m", peers[0], "--watch", "50ms", "--json", folder=folder) as watch:
            first, second = (json.loads(watch.expect(r"\{.*\}\n")[0]) for _ in range(2))
            assert first["member"] == second["member"]
            assert watch.finish(signal.SIGINT) == 0
        key = next(one["member"] for one in members if one["self"]) + ":0"
        explained = Done("explain", key, "--member", peers[1], "--long", folder=folder)
        assert f"{key} is delivered at" in explained.out
        shown = shorten(key)  # what people were shown is what they may write
        assert shown != key
        assert f"{shown} is delivered at" in Done("explain", shown, "--member", peers[1], folder=folder).out
        assert "of this view is" in Done("explain", f"{peers[0]}#ffff:0", "--member", peers[1], folder=folder).err
        b.process.kill()
        b.process.wait()
        assert json.loads(Done("status", "--json", folder=folder).out)["member"].startswith(
            peers[0]
        )  # b's socket is stale
        a.expect("gone: ")
    assert "no member runs here" in Done("status", folder=folder).err
    assert list((folder / "unisono").iterdir()) == []  # what the killed left behind is gone


def test_incarnations_are_short_for_people_and_whole_for_programs(folder: Path) -> None:
    here = addresses(1)[0]
    with node(folder, here, []) as a:
        short = a.expect(rf"view 1@({here}#[0-9a-f]{{3}}) of 1: \1\b")[1]
        whole = json.loads(Done("status", "--json", folder=folder).out)["member"]
        assert re.fullmatch(rf"{here}#\d{{19}}", whole)
        assert shorten(whole) == short
        for command in (("status",), ("members",), ("status", "--member", short)):
            assert short in Done(*command, folder=folder).out
            assert whole in Done(*command, "--long", folder=folder).out
    with node(folder, here, [], "--long") as a:
        a.expect(rf"view 1@{here}#\d{{19}} of 1")


def test_status_without_a_view_says_what_it_waits_for(folder: Path) -> None:
    """Found by trying: it said `None of 0, not primary`."""
    with node(folder, addresses(1)[0], [], "--min-members", "2") as a:
        a.expect("2 members must be there")
        said = " ".join(Done("status", folder=folder).out.split())
        assert re.search(r"view none yet: \S+ has no view: it has met 0 others, and 2 members must be there", said)
        assert "looking for its group" in said
        assert "None" not in said


def test_people_chat_and_the_prompt_survives(folder: Path) -> None:
    peers = addresses(2)
    options = ("--peers", ",".join(peers), "--pace", "0.3")
    with Program("chat", "lounge", "--name", "ann", *options, folder=folder, terminal=True) as ann:
        ann.expect("You are in 'lounge' as ann")
        ann.expect("ann> ")
        with Program("chat", "lounge", "--name", "bob", *options, folder=folder) as bob:
            bob.expect("is here|You are in")
            ann.expect("is here")
            ann.type("I am in the middle of")
            ann.expect("I am in the middle of")
            bob.say("hi")
            ann.expect(r"\r\x1b\[Kbob: hi\r\n")
            ann.expect("ann> I am in the middle of")  # what was being typed is there again
            ann.type(" it\n")
            bob.expect("ann: I am in the middle of it")
            bob.say("/who")
            bob.expect(r"here: (ann|bob), (ann|bob)")
            bob.say("/quit")
            assert bob.wait() == 0
        ann.expect("bob is gone: left")
        assert ann.finish(signal.SIGINT) == 0


def lines_above_the_prompt(one: Program) -> list[str]:
    """What people said, as a terminal shows it: each line where it was delivered."""
    return [line for line in re.findall(r"\r\x1b\[K([^\r\n]*)\r\n", one.text) if re.match(r"(ann|bob): ", line)]


def test_two_people_see_one_order_and_own_lines_where_they_were_delivered(folder: Path) -> None:
    """Found by trying: own lines stayed where they were typed, so two people saw two conversations."""
    peers = addresses(2)
    options = ("--peers", ",".join(peers), "--pace", "0.3")
    with (
        Program("chat", "lounge", "--name", "ann", *options, folder=folder, terminal=True) as ann,
        Program("chat", "lounge", "--name", "bob", *options, folder=folder, terminal=True) as bob,
    ):
        ann.expect(r"\* bob is here")
        bob.expect(r"\* ann is here")
        for number in range(5):
            ann.say(f"ann's {number}")
            bob.say(f"bob's {number}")
        for one in (ann, bob):
            one.see("ann: ann's 4")
            one.see("bob: bob's 4")
        said = lines_above_the_prompt(ann)
        assert said == lines_above_the_prompt(bob)
        assert sorted(said) == [f"{name}: {name}'s {number}" for name in ("ann", "bob") for number in range(5)]
        assert not re.search(r"> ann's \d\r?\n", ann.text), "a line does not stay where it was typed"
        assert ann.finish(signal.SIGINT) == 0
        assert bob.finish(signal.SIGINT) == 0


def test_names_are_known_before_a_word_is_said(folder: Path) -> None:
    """Found by trying: a name was known only after its owner's first line."""
    peers = addresses(3)
    options = ("--peers", ",".join(peers), "--pace", "0.3")
    with (
        Program("chat", "lounge", "--name", "ann", *options, folder=folder) as ann,
        Program("chat", "lounge", "--name", "bob", *options, folder=folder) as bob,
    ):
        ann.expect(r"\* bob is here")
        bob.expect(r"\* ann is here")
        bob.say("/who")
        bob.expect(r"here: (ann, bob|bob, ann)\n")
        with Program("node", "lounge", *options, folder=folder) as silent:
            silent.expect("of 3")
            ann.expect(rf"\* {peers[2]} is here")  # a program without a name is called by its address
        assert ann.finish() == 0
        bob.expect("ann is gone: left")


def test_a_node_without_a_view_ends_at_the_end_of_its_input(folder: Path) -> None:
    """Found by trying: it waited for its first view for ever, with nothing to cast."""
    peers = addresses(2)
    with node(folder, peers[0], peers, "--min-members", "2") as a:
        a.end_input()
        a.expect("the input has ended with nothing to cast, and --stay is not given: no view. .* 2 members must be")
        assert a.wait() == 1
    with node(folder, peers[0], peers, "--min-members", "2") as a:
        a.say("what is to be cast is cast first")
        a.end_input()
        with node(folder, peers[1], peers, "--min-members", "2") as b:
            b.expect(":0 what is to be cast is cast first")
            assert a.wait() == 0


def test_a_node_whose_lines_wait_for_a_view_in_vain_ends_and_says_so(folder: Path) -> None:
    """Found by trying: `echo hi | unisono node --min-members 2` never ended."""
    peers = addresses(2)
    with node(folder, peers[0], peers, "--min-members", "2") as a:
        a.say("hi")
        a.end_input()
        a.expect("the input has ended with 1 lines that were not cast, and --stay is not given: no view")
        assert a.wait() == 1


def test_keys_are_made_once_and_needed(folder: Path) -> None:
    assert Done("keygen", "group.key", folder=folder).code == 0
    path = folder / "group.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_text()
    again = Done("keygen", "group.key", folder=folder)
    assert again.code == 2
    assert "there already" in again.err
    assert path.read_text() == before
    Done("keygen", "other.key", folder=folder)
    peers = addresses(3)
    keyed = ("--key", "group.key", "--min-members", "2")
    with node(folder, peers[0], peers, *keyed) as a, node(folder, peers[1], peers, *keyed) as b:
        a.expect("of 2: ")
        a.say("under seal")
        b.expect(":0 under seal")
        with node(folder, peers[2], peers, "--key", "other.key", "--min-members", "2", "--timeout", "1s") as stranger:
            stranger.expect("do they have the same key")
            assert stranger.wait() == 1
        drops = json.loads(Done("status", "--member", peers[0], "--json", folder=folder).out)["drops"]
        assert drops["seal: seal"] > 0


def test_who_begins_alone_is_told_and_who_has_another_key_is_named(folder: Path) -> None:
    """Found by trying: two nodes with different keys each said `view … of 1` and nothing else, for ever."""
    peers = addresses(2)
    for name in ("one.key", "other.key"):
        assert Done("keygen", name, folder=folder).code == 0
    with node(folder, peers[0], peers, "--key", "one.key") as a:
        a.expect(f"no answer from {peers[1]}: this member starts alone")
        with node(folder, peers[1], peers, "--key", "other.key") as b:
            b.expect(f"no answer from {peers[0]}: this member starts alone")
            said = Done("explain", "--member", peers[0], folder=folder).out
            assert f"that claim to be from {peers[1]} failed authentication; does it use a different key?" in said


@pytest.mark.parametrize("command", ["node", "chat"])
def test_members_of_a_view_are_told_who_is_kept_away_by_another_key(folder: Path, command: str) -> None:
    """Found by trying: only a member alone was told, and only `node`; those with the right key saw nothing."""
    peers = addresses(3)
    for name in ("one.key", "other.key"):
        assert Done("keygen", name, folder=folder).code == 0
    start = [(command, "lab", "--listen", one, "--peers", ",".join(peers), "--pace", "0.2", "--key") for one in peers]
    with Program(*start[0], "one.key", folder=folder) as a, Program(*start[1], "one.key", folder=folder) as b:
        a.expect("of 2: " if command == "node" else "is here")
        with Program(*start[2], "other.key", folder=folder) as c:
            for member in (a, b):
                member.expect(f"from {peers[2]} failed authentication; does it use a different key")
            c.expect(f"no answer from {peers[0]}, {peers[1]}: this member starts alone")
            c.expect(f"from ({peers[0]}|{peers[1]}) failed authentication; does it use a different key")


def test_a_member_without_a_key_hears_of_the_key_and_not_of_another_version(folder: Path) -> None:
    """Found by trying: what it was sent under seal was also called another version of the wire format."""
    peers = addresses(2)
    assert Done("keygen", "one.key", folder=folder).code == 0
    with node(folder, peers[0], peers, "--key", "one.key") as a, node(folder, peers[1], peers) as b:
        a.expect(f"{peers[1]} uses no key, and this member does")
        b.expect(f"{peers[0]} sends sealed datagrams, and this member has no key")
        said = Done("explain", "--member", peers[1], folder=folder).out
        assert "sends sealed datagrams" in said
        assert "version" not in said


def test_a_port_that_is_taken_is_said(folder: Path) -> None:
    here = addresses(1)[0]
    with node(folder, here, []) as a:
        a.expect("view 1@")
        taken = Done("node", "lab", "--listen", here, folder=folder)
        assert taken.code == 2
        assert f"{here} is taken" in taken.err


def test_a_line_that_is_too_large_is_told_and_the_rest_is_cast(folder: Path) -> None:
    """Found by reading: it was not cast, and the exit code said that all was well."""
    with node(folder, addresses(1)[0], []) as a:
        a.expect("view 1@")
        a.say("x" * (16 * 2**20 + 1))
        a.expect("unisono: .*16777217")
        a.say("short")
        a.expect(":0 short")
        assert a.finish() == 1
