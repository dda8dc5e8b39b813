"""What all stores have in common: each method that writes about a response is the firing of one edge of the table `stored`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from attrs import frozen

from interlock.fsm.processes.stored import StoredTrigger
from interlock.serving.store.changes import Change
from interlock.serving.store.leases import Lease
from interlock.serving.store.values import Addition, StoredResponse

__all__ = ["Writing", "Written"]


@frozen
class Written:
    """What is known of a response that was written about.

    Args:
        epoch: How many owners it has had.
        cancelled: Whether cancelling was asked for.
    """

    epoch: int
    cancelled: bool


class Writing(ABC):
    """A store, as far as responses are written; see `ResponseStore` for the methods."""

    @abstractmethod
    async def _write(self, tenant: str, response_id: str, change: Change) -> Written | None:
        """Fire the edge of a change and carry out its effects in one commit, or none of them.

        Args:
            tenant: To whom the response belongs.
            response_id: Its id.
            change: What is to be written.

        Returns:
            None if there is no such edge, for what may come too late.

        Raises:
            StoreError: It is refused; see `interlock.serving.store.changes`.
        """

    async def put(self, tenant: str, stored: StoredResponse, addition: Addition | None = None) -> None:
        """Store a response that has ended."""
        await self._write(tenant, stored.id, Change(StoredTrigger.PUT, stored=stored, addition=addition))

    async def delete(self, tenant: str, response_id: str) -> bool:
        """Delete a response."""
        return await self._write(tenant, response_id, Change(StoredTrigger.DELETE)) is not None

    async def enqueue(self, tenant: str, stored: StoredResponse, owner: str) -> Lease:
        """Store a response that is to be made."""
        await self._write(tenant, stored.id, Change(StoredTrigger.ENQUEUE, stored=stored, owner=owner))
        return Lease(tenant, stored.id, owner, epoch=1)

    async def append(self, lease: Lease, first: int, frames: Sequence[bytes]) -> bool:
        """Append events to the log of a response."""
        return await self._owned(lease, Change(StoredTrigger.APPEND, None, None, lease.owner, lease.epoch, first, frames))

    async def renew(self, lease: Lease) -> bool:
        """Renew a lease."""
        return await self._owned(lease, Change(StoredTrigger.RENEW, None, None, lease.owner, lease.epoch))

    async def finish(
        self, lease: Lease, first: int, frames: Sequence[bytes], stored: StoredResponse, addition: Addition | None = None
    ) -> None:
        """End a response."""
        await self._owned(lease, Change(StoredTrigger.FINISH, stored, addition, lease.owner, lease.epoch, first, frames))

    async def cancel(self, tenant: str, response_id: str) -> bool:
        """Ask the owner of a response to cancel it."""
        return await self._write(tenant, response_id, Change(StoredTrigger.CANCEL)) is not None

    async def adopt(self, tenant: str, response_id: str, owner: str) -> Lease | None:
        """Take over a response whose owner is lost."""
        written = await self._write(tenant, response_id, Change(StoredTrigger.ADOPT, owner=owner))
        return None if written is None else Lease(tenant, response_id, owner, written.epoch)

    async def _owned(self, lease: Lease, change: Change) -> bool:
        written = await self._write(lease.tenant, lease.response_id, change)
        return written is not None and written.cancelled
