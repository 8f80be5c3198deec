"""The desk for clients with one rule broken each.

**Remember nothing.** 1. A casts an errand and crashes. 2. The client retries through B. 3. Everyone serves it a second time.

**Forget what was cast.** A client that is impatient makes its contact cast the same errand again and again.
"""

from __future__ import annotations

from unisono.core.types import MemberId
from unisono.services.client_desk import ClientDesk
from unisono.services.client_messages import Errand, Request


class RemembersNothing(ClientDesk):
    def open(self, payload: bytes) -> Errand | None:
        self._memories.clear()
        self._serving.clear()
        return super().open(payload)

    def _ask(self, client: MemberId, request: Request) -> None:
        self._memories.clear()
        super()._ask(client, request)


class CastsAndForgets(ClientDesk):
    def _ask(self, client: MemberId, request: Request) -> None:
        self._pending.clear()
        self._pending_count = 0
        super()._ask(client, request)
