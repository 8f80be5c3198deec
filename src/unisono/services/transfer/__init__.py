"""State transfer to members that join, and between parts that merge.

`Transfer` is the heart of the room; its module's docstring specifies the protocol.
"""

from unisono.services.transfer.observer import Decliner as Decliner
from unisono.services.transfer.settings import Application as Application
from unisono.services.transfer.settings import Ledger as Ledger
from unisono.services.transfer.settings import MemberPort as MemberPort
from unisono.services.transfer.settings import TransferSettings as TransferSettings
from unisono.services.transfer.transfer import Status as Status
from unisono.services.transfer.transfer import Transfer as Transfer
