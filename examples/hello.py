"""The smallest member: says hello, then prints what the group delivers. It is the program of the README."""

import unisono

PEERS = ["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]


async def main() -> None:
    async with unisono.join("chat", peers=PEERS, min_members=2) as group:
        receipt = await group.cast(f"hello from {group.id.address}".encode())
        await receipt.stable(timeout=5)  # each member delivers it, unless that member crashes
        async for event in group:  # deliveries and views, in one ordered stream
            match event:
                case unisono.Delivery(sender, payload):
                    print(sender.address, payload.decode())
                case unisono.View(number, members, _, left):
                    print(f"view {number}: {len(members)} members", *map(str, left.values()))


unisono.run(main())
