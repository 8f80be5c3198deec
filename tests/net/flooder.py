"""A stranger's flood: `flooder.py PORT DATAGRAMS_A_SECOND SECONDS GROUP_TAG VERSION`. It says "go" when it begins.

Each datagram is as short as one can be, names the right group, and invents a life and a box. It imports nothing of unisono, so
that it begins at once.
"""

from __future__ import annotations

import os
import socket
import struct
import sys
import time

UDP_SEGMENT, SEGMENTS = (17, 103), 64
IDENTITY_BYTES = 37


def main(port: int, rate: float, seconds: float, group_tag: bytes, version: int) -> None:
    head = bytes((version, 0)) + group_tag + bytes((IDENTITY_BYTES,))

    def datagram() -> bytes:
        return head + os.urandom(IDENTITY_BYTES - 9) + b"1.2.3.4:5" + (1).to_bytes(8, "little") + os.urandom(16)

    runs = [b"".join(datagram() for _ in range(SEGMENTS)) for _ in range(100)]
    how = [(*UDP_SEGMENT, struct.pack("=H", len(runs[0]) // SEGMENTS))]
    target = ("127.0.0.1", port)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        print("go", flush=True)
        begin, sent = time.monotonic(), 0
        while (passed := time.monotonic() - begin) < seconds:
            while sent * SEGMENTS < passed * rate:
                udp.sendmsg([runs[sent % len(runs)]], how, 0, target)
                sent += 1
            time.sleep(0.0005)
    print(sent * SEGMENTS, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), bytes.fromhex(sys.argv[4]), int(sys.argv[5]))
