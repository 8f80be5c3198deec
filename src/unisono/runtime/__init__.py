"""The only code that knows the operating system: sockets, clocks, files, and the asyncio interface on top of a member."""
