"""A process that writes to a store in SQLite, and prints the ids of its acknowledged responses: python writer.py PATH NAME"""

import asyncio
import sys

from interlock.serving.store.sqlite import SqliteStore
from interlock.serving.store.values import StoredResponse


async def main(path, name):
    store = SqliteStore(path)
    number = 0
    while True:
        response_id = f"resp_{name}_{number}"
        stored = StoredResponse({"id": response_id, "output": []}, ({"id": f"msg_{name}_{number}", "type": "message"},))
        lease = await store.enqueue("", stored, name)
        await store.append(lease, 0, [b"one", b"two"])
        await store.finish(lease, 2, [b"three"], stored)
        sys.stdout.write(f"{response_id}\n")
        sys.stdout.flush()
        number += 1


asyncio.run(main(*sys.argv[1:]))
