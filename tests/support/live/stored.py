"""What tests of stores store, and how they run a scenario."""

import asyncio

from interlock.serving.store import StoredResponse


def stored(number, *items, output=()):
    return StoredResponse({"id": f"resp_{number}", "output": [*output]}, items)


def message(number, text="Hello"):
    return {"id": f"msg_{number}", "type": "message", "content": text}


def run(store, scenario):
    """Run a scenario on a store, and close it."""

    async def main():
        try:
            return await scenario(store)
        finally:
            await store.close()

    return asyncio.run(main())
