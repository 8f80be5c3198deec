"""How packets, datagrams and control messages look on the wire.

| module     | what it describes                                                                                 |
|------------|---------------------------------------------------------------------------------------------------|
| `fields`   | fields: measured, written, and read from untrusted bytes                                          |
| `codec`    | packets of a table of `Layout`s, to bytes and back                                                |
| `control`  | the messages of membership, and the records that travel in pieces                                 |
| `envelope` | datagrams of the streams: head, acknowledgements, requests, body. Its `struct`s are the streams' own |
| `frame`    | the outermost bytes of every datagram: which group, and which kind                                |
"""

from unisono.core.wire.codec import ALL as ALL
from unisono.core.wire.codec import BATCH as BATCH
from unisono.core.wire.codec import BLOB as BLOB
from unisono.core.wire.codec import EACH as EACH
from unisono.core.wire.codec import FLAG as FLAG
from unisono.core.wire.codec import LIST as LIST
from unisono.core.wire.codec import MAYBE as MAYBE
from unisono.core.wire.codec import RANK as RANK
from unisono.core.wire.codec import RANKS as RANKS
from unisono.core.wire.codec import ROW as ROW
from unisono.core.wire.codec import SLOT as SLOT
from unisono.core.wire.codec import SLOTS as SLOTS
from unisono.core.wire.codec import STAMP as STAMP
from unisono.core.wire.codec import STAMPS as STAMPS
from unisono.core.wire.codec import TEXT as TEXT
from unisono.core.wire.codec import U8 as U8
from unisono.core.wire.codec import U16 as U16
from unisono.core.wire.codec import U32 as U32
from unisono.core.wire.codec import U64 as U64
from unisono.core.wire.codec import VECTOR as VECTOR
from unisono.core.wire.codec import BatchField as BatchField
from unisono.core.wire.codec import Codec as Codec
from unisono.core.wire.codec import Layout as Layout
from unisono.core.wire.control import Charter as Charter
from unisono.core.wire.control import ClosingCut as ClosingCut
from unisono.core.wire.control import ControlCodec as ControlCodec
from unisono.core.wire.control import GroupSettings as GroupSettings
from unisono.core.wire.control import HeldState as HeldState
from unisono.core.wire.control import HookSet as HookSet
from unisono.core.wire.control import Part as Part
from unisono.core.wire.control import Standing as Standing
from unisono.core.wire.control import part_of as part_of
from unisono.core.wire.envelope import Octets as Octets
from unisono.core.wire.envelope import Refusal as Refusal
from unisono.core.wire.envelope import ReplayWindow as ReplayWindow
from unisono.core.wire.envelope import view_tag as view_tag
from unisono.core.wire.fields import Reason as Reason
from unisono.core.wire.frame import Frames as Frames
from unisono.core.wire.frame import group_tag as group_tag
