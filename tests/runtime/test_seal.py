"""The seal around each datagram: what is altered, replayed, foreign or unsealed is refused before anything is read."""

from __future__ import annotations

import os
import sys
import threading
from base64 import urlsafe_b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import unisono
from unisono.core.errors import Misuse
from unisono.core.types import MemberId
from unisono.core.wire.frame import HEAD_BYTES, Frames
from unisono.runtime import seal as seals
from unisono.runtime.checksum import CHECKED_BYTES_MAX, CHECKSUM_BYTES, Checksum
from unisono.runtime.seal import (
    LIVES_MAX,
    SALTS_MAX,
    SEALED,
    UNKNOWN,
    Seal,
    claimed_address,
    find_key,
    make_key,
    overhead,
    read_key,
)

KEY = bytes(range(32))
A, B = MemberId("127.0.0.1:1", 7), MemberId("127.0.0.1:2", 9)


def pair(group: str = "g") -> tuple[Seal, Seal]:
    return Seal(group, A, KEY), Seal(group, B, KEY)


def control(member: MemberId, group: str = "g") -> bytes:
    return Frames(group, member).control(b"a message of membership")


def write_key(file: Path, text: str, mode: int = 0o600) -> None:
    file.write_text(text + "\n")
    file.chmod(mode)


def refusals(seal: Seal) -> dict[str, int]:
    return {reason: count for reason, count in seal.refused.items() if count}


def test_what_one_closes_the_other_opens() -> None:
    a, b = pair()
    frames = [Frames("g", A).stream_head + os.urandom(size) for size in (1, 100, 60_000)] + [control(A)]
    sealed = [a.close(frame) for frame in frames]
    assert [len(one) - len(frame) for one, frame in zip(sealed, frames, strict=True)] == [overhead(A.address)] * 4
    assert [b.open(one) for one in sealed] == frames
    assert not refusals(b)


def test_f1_every_prefix_and_every_flipped_bit_is_refused() -> None:
    a, b = pair()
    sealed = a.close(control(A))
    for length in range(len(sealed)):
        assert b.open(sealed[:length]) is None
    for bit in range(8 * len(sealed)):
        altered = bytearray(sealed)
        altered[bit // 8] ^= 1 << bit % 8
        assert b.open(bytes(altered)) is None
    assert not b._lives, "nothing is kept of what is not authentic"
    assert b.open(sealed) == control(A)


def test_f7_a_replay_is_refused_whatever_came_between() -> None:
    a, b = pair()
    sealed = [a.close(control(A)) for _ in range(200)]
    assert all(b.open(one) is not None for one in sealed)
    assert all(b.open(one) is None for one in sealed)
    assert refusals(b) == {"replayed": 200}


def test_f5_an_unsealed_datagram_is_refused() -> None:
    _, b = pair()
    assert b.open(control(A)) is None
    assert b.open(Frames("g", A).stream_head + b"x" * 100) is None
    assert b.open(b"") is None
    assert refusals(b) == {"unsealed": 3}


def test_another_key_and_another_group_are_told_apart() -> None:
    _, b = pair()
    assert b.open(Seal("g", A, bytes(32)).close(control(A))) is None
    assert b.open(Seal("h", A, KEY).close(control(A, "h"))) is None
    assert refusals(b) == {"seal": 1, "group": 1}


def test_a_wrong_key_is_told_from_damage() -> None:
    """Found by trying: nothing but a count told a wrong key from silence."""
    right, wrong = bytes(32), b"x" * 32
    here = Seal("g", MemberId("a", 1), right)
    sealed = Seal("g", MemberId("b", 1), wrong).close(control(MemberId("b", 1)))
    assert here.open(sealed) is None
    assert (here.reason, claimed_address(sealed)) == (UNKNOWN, "b")
    c = Seal("g", MemberId("c", 9), right)
    assert here.open(c.close(control(MemberId("c", 9)))) is not None
    damaged = bytearray(c.close(control(MemberId("c", 9))))
    damaged[-1] ^= 1
    assert here.open(bytes(damaged)) is None
    assert here.reason == "seal", "it is known, and has the right key"


def test_a_claim_is_read_from_sealed_datagrams_only_and_never_fails() -> None:
    sealed = Seal("g", A, KEY).close(control(A))
    assert claimed_address(sealed) == A.address
    for length in range(len(sealed)):
        assert claimed_address(sealed[:length]) in ("", A.address)
    for byte in range(256):
        assert isinstance(claimed_address(sealed[:6] + bytes((byte,)) + sealed[7:]), str)
    assert claimed_address(control(A)) == ""
    assert claimed_address(sealed[:31] + b"\xff" * 20 + sealed[51:]) == ""


def test_f6_another_members_name_in_an_own_box_is_refused() -> None:
    a, b = pair()
    assert b.open(a.close(control(MemberId(A.address, 8)))) is None
    assert b.open(a.close(control(MemberId("127.0.0.1:3", 7)))) is None
    assert refusals(b) == {"sender": 2}


def test_own_datagrams_that_come_back_are_refused() -> None:
    a, _ = pair()
    assert a.open(a.close(control(A))) is None
    assert refusals(a) == {"own": 1}


def test_two_lives_never_share_a_key_even_with_the_same_name() -> None:
    first, second = Seal("g", A, KEY), Seal("g", A, KEY)
    assert first.close(b"x" * 64)[-80:] != second.close(b"x" * 64)[-80:]
    b = Seal("g", B, KEY)
    assert b.open(first.close(control(A))) is not None
    assert b.open(second.close(control(A))) is not None  # the counters of another life are its own


def test_a_flood_of_strangers_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "LIVES_MAX", 4)
    b = Seal("g", B, KEY)
    for i in range(50):
        stranger = Seal("g", MemberId("127.0.0.1:1", i), bytes(32))
        assert b.open(stranger.close(control(A))) is None
    assert not b._lives
    for i in range(50):
        member = MemberId("127.0.0.1:1", i)
        assert b.open(Seal("g", member, KEY).close(control(member))) is not None
    assert len(b._lives) <= 4 < LIVES_MAX


def test_many_clients_do_not_push_out_a_member_that_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by reading: the life that was heard first was forgotten first, however much it spoke."""
    monkeypatch.setattr(seals, "LIVES_MAX", 4)
    a, b = pair()
    sealed = [a.close(control(A)) for _ in range(20)]
    for i, one in enumerate(sealed):
        assert b.open(one) is not None
        client = MemberId("127.0.0.1:3", i)
        assert b.open(Seal("g", client, KEY).close(control(client))) is not None
    assert all(b.open(one) is None for one in sealed)
    assert refusals(b) == {"replayed": 20}


# Salts.


def nonce(datagram: bytes) -> bytes:
    """The key and the counter that a box was closed with: all that stands before it."""
    return datagram[: 7 + datagram[6] + 8]


def test_a_new_salt_is_another_key_and_the_earlier_boxes_stay_refused() -> None:
    a, b = pair()
    before = [a.close(control(A)) for _ in range(20)]
    late = a.close(control(A))
    assert all(b.open(one) is not None for one in before)
    a.resalt()
    after = [a.close(control(A)) for _ in range(20)]
    assert all(b.open(one) is not None for one in after)
    assert b.open(late) is not None, "a datagram that was under way is none the worse"
    assert all(b.open(one) is None for one in (*before, late, *after))
    assert refusals(b) == {"replayed": 41}
    assert len({nonce(one) for one in (*before, late, *after)}) == 41


def test_f17_a_salt_is_changed_before_its_counters_are_used_up() -> None:
    a, b = Seal("g", A, KEY, boxes_max=7), Seal("g", B, KEY)
    sealed = [a.close(control(A)) for _ in range(22)]
    assert a.salts == 4
    assert len({nonce(one) for one in sealed}) == 22
    assert max(int.from_bytes(nonce(one)[-8:], "little") for one in sealed) == 7
    assert all(b.open(one) is not None for one in sealed)


def test_a_member_with_many_salts_has_one_place_among_the_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "LIVES_MAX", 4)
    b, quiet = Seal("g", B, KEY), MemberId("127.0.0.1:3", 1)
    once = Seal("g", quiet, KEY).close(control(quiet))
    assert b.open(once) is not None
    a, sealed = Seal("g", A, KEY), []
    for _ in range(50):
        sealed += [a.close(control(A)) for _ in range(3)]
        a.resalt()
    assert all(b.open(one) is not None for one in sealed)
    assert len(b._lives) <= 1 + SALTS_MAX
    assert b.open(once) is None
    assert all(b.open(one) is None for one in sealed), "also those whose window is not kept"
    assert refusals(b) == {"replayed": 151}


def test_a_captured_head_does_not_keep_an_old_salt_alive() -> None:
    """Its window is empty, so boxes of that salt would open once more."""
    a, b = pair()
    first = a.close(control(A))
    assert b.open(nonce(first) + bytes(40)) is None  # the key is derived, and nothing opens
    for _ in range(SALTS_MAX + 1):
        a.resalt()
        assert b.open(a.close(control(A))) is not None
    assert b.open(first) is None
    assert refusals(b) == {"seal": 1, "replayed": 1}


def test_f17_threads_that_close_at_once_never_share_a_counter() -> None:
    a = Seal("g", A, KEY, boxes_max=100)
    sealed: list[bytes] = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [
            threading.Thread(target=lambda: sealed.extend([a.close(b"x") for _ in range(2_000)])) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len({nonce(one) for one in sealed}) == len(sealed) == 8_000


# Strangers.


def count_derivations(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """From now on, the salts that a key is derived for."""
    derived: list[bytes] = []
    derive = Seal._derive

    def noted(self: Seal, salt: bytes, name: bytes) -> Any:
        derived.append(salt)
        return derive(self, salt, name)

    monkeypatch.setattr(Seal, "_derive", noted)
    return derived


def test_an_invented_life_costs_no_key_derivation(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair()
    derived = count_derivations(monkeypatch)
    true = a.close(control(A))
    at, end = 7, 7 + true[6]
    for _ in range(500):
        invented = true[:at] + os.urandom(28) + true[at + 28 : end] + os.urandom(24)
        assert b.open(invented) is None
    assert refusals(b) == {"seal": 500}
    assert not derived
    assert not b._candidates
    assert b.open(true) is not None
    assert len(derived) == 1


def test_a_captured_head_with_invented_boxes_costs_one_derivation(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair()
    derived = count_derivations(monkeypatch)
    true = a.close(control(A))
    assert all(b.open(nonce(true) + os.urandom(40)) is None for _ in range(100))
    assert len(derived) == 1
    assert not b._lives
    assert b.open(true) is not None
    assert not b._candidates


def test_an_insiders_identity_that_is_none_is_refused() -> None:
    _, b = pair()
    for life in (b"", b"x" * 3, b"x" * 24, b"x" * 24 + b"\xff"):
        identity = b._check(life) + life
        assert b.open(bytes((SEALED, 0)) + b._tag + bytes((len(identity),)) + identity + bytes(40)) is None
    assert refusals(b) == {"identity": 4}


def test_candidates_are_few_whatever_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seals, "CANDIDATES_MAX", 4)
    b = Seal("g", B, KEY)
    for i in range(50):
        captured = Seal("g", MemberId("127.0.0.1:1", i), KEY).close(b"x")
        assert b.open(nonce(captured) + bytes(40)) is None
    assert len(b._candidates) == 4


def test_a_datagram_of_the_earlier_format_is_told_from_one_without_a_seal() -> None:
    a, b = pair()
    assert b.open(b"\2" + a.close(control(A))[1:]) is None
    assert refusals(b) == {"version": 1}


def test_a_seal_that_does_not_check_counters_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("unisono.core.wire.envelope.ReplayWindow.fresh", lambda self, counter: True)
    with pytest.raises(AssertionError):
        test_f7_a_replay_is_refused_whatever_came_between()


def test_keys_come_from_bytes_text_files_and_the_environment(tmp_path: Path) -> None:
    text = make_key()
    key = read_key(text, "the test")
    assert len(key) == 32
    file = tmp_path / "group.key"
    write_key(file, text)
    assert find_key(key) == find_key(text) == find_key(file) == find_key(str(file)) == key
    assert find_key(None, {"UNISONO_KEY": text}) == key
    other = make_key()
    write_key(tmp_path / "other.key", other)
    elsewhere = {"UNISONO_KEY_FILE": str(tmp_path / "other.key")}
    assert find_key(None, elsewhere) == read_key(other, "")
    assert find_key(None, {"UNISONO_KEY": text} | elsewhere) == key, "the key itself comes before a file"
    assert find_key(None, {"UNISONO_KEY": ""} | elsewhere) == read_key(other, "")
    assert find_key(file, {"UNISONO_KEY": other} | elsewhere) == key, "what is given comes first"
    assert find_key(None, {"UNISONO_KEY_FILE": ""}) is None
    assert find_key(None, {}) is None
    assert make_key() != text


def test_what_is_no_key_is_refused_with_a_cure(tmp_path: Path) -> None:
    file = tmp_path / "empty.key"
    write_key(file, "")
    with pytest.raises(Misuse, match=r"empty.key holds no group key: `unisono keygen`"):
        find_key(file)
    with pytest.raises(Misuse, match="cannot be read"):
        find_key(tmp_path / "none.key")
    with pytest.raises(Misuse, match="32 bytes, not 5"):
        find_key(b"short")
    with pytest.raises(Misuse, match="UNISONO_KEY holds no group key"):
        find_key(None, {"UNISONO_KEY": "swordfish"})
    with pytest.raises(Misuse, match=r"none.key cannot be read"):
        find_key(None, {"UNISONO_KEY_FILE": str(tmp_path / "none.key")})
    with pytest.raises(Misuse, match="cannot be read"):
        find_key("a\0b")
    with pytest.raises(Misuse, match="holds no group key"):
        find_key("/dev/zero")  # which has no end


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o602, 0o666, 0o601])
def test_a_key_file_that_every_user_can_open_is_refused(mode: int, tmp_path: Path) -> None:
    file = tmp_path / "group.key"
    write_key(file, make_key(), mode)
    with pytest.raises(Misuse, match=f"every user of this machine can open .*`chmod 600 {file}`"):
        find_key(file)
    with pytest.raises(Misuse, match="chmod 600"):
        find_key(None, {"UNISONO_KEY_FILE": str(file)})


@pytest.mark.parametrize(("mode", "warnings"), [(0o600, 0), (0o400, 0), (0o640, 1), (0o660, 1)])
def test_a_key_file_that_its_group_can_open_is_a_warning(
    mode: int, warnings: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, text = tmp_path / "group.key", make_key()
    write_key(file, text, mode)
    assert find_key(file) == read_key(text, "")
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(said) == warnings
    assert all(f"chmod 600 {file}" in one and text not in one for one in said)


def test_a_key_of_one_repeated_byte_is_refused(tmp_path: Path) -> None:
    for byte in (0, 255, ord("x")):
        key = bytes((byte,)) * 32
        text = "unisono-key-1:" + urlsafe_b64encode(key).decode()
        write_key(tmp_path / "weak.key", text)
        for given in (key, text, tmp_path / "weak.key"):
            with pytest.raises(Misuse, match="one byte 32 times"):
                find_key(given)
        with pytest.raises(Misuse, match="UNISONO_KEY holds one byte 32 times"):
            find_key(None, {"UNISONO_KEY": text})
    assert find_key(bytes(31) + b"\1") is not None


def test_no_repr_and_no_error_shows_a_key() -> None:
    text = make_key()
    key, secret = read_key(text, ""), text.partition(":")[2][:20]
    seal = Seal("g", A, key)
    joining, client = unisono.join("g", key=text), unisono.client("g", contacts=["127.0.0.1:1"], key=text)
    options = joining.options
    for thing in (seal, joining, client, options, replace(options, key=key), vars(seal)["_own"]):
        assert secret not in repr(thing)
        assert repr(key) not in repr(thing)
    with pytest.raises(Misuse) as caught:
        find_key(text[:-3])
    assert secret not in str(caught.value)


# Without a key.


@pytest.mark.parametrize("size", [0, 1, 100, CHECKED_BYTES_MAX, 60_000])
def test_a_checksum_lets_whole_datagrams_pass_and_finds_every_wrong_bit_that_a_network_could_make(size: int) -> None:
    checksum = Checksum("g")
    frame = Frames("g", A).stream_head + os.urandom(size)
    datagram = checksum.close(frame)
    assert len(datagram) == len(frame) + CHECKSUM_BYTES
    assert checksum.open(memoryview(datagram)) == frame
    bits = [
        *range(8, 16),
        *range(8 * HEAD_BYTES, 8 * min(len(frame), CHECKED_BYTES_MAX)),
        8 * len(frame),
        8 * len(datagram) - 1,
    ]
    for bit in bits[:: max(1, len(bits) // 500)]:
        wrong = bytearray(datagram)
        wrong[bit // 8] ^= 1 << bit % 8
        assert checksum.open(bytes(wrong)) is None, bit
    assert checksum.open(datagram[:-1]) is None
    assert checksum.open(datagram + b"\0") is None


def test_a_checksum_leaves_what_is_of_another_group_to_whoever_knows_groups() -> None:
    foreign = Checksum("other").close(Frames("other", A).stream_head + b"x")
    assert Checksum("g").open(foreign) == foreign
    assert Checksum("g").open(b"") == b""
