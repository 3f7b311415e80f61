"""OrtSyncStream: queues of work on a plugin's device, for plugins that are aware of them."""

from __future__ import annotations

from intarsia.providers.plugin.interface.handles import HostObject, find
from intarsia.providers.plugin.interface.host_tables import entry
from intarsia.providers.plugin.interface.members import Members


class SyncStream(HostObject):
    """OrtSyncStream: a stream of a plugin's device, which its provider releases."""

    def __init__(self, address: int, provider: str) -> None:
        super().__init__()
        self.members = Members("OrtSyncStreamImpl", address, provider)
        self.sync_id = 0

    @property
    def native(self) -> int:
        """The device's own handle of it."""
        return self.members.call_if_there("GetHandle") or 0

    def flush(self) -> None:
        """Wait until all of its work is done."""
        self.sync_id += 1
        self.members.call_if_there("Flush")

    def end_run(self) -> None:
        """Say that a run has ended."""
        self.members.call_if_there("OnSessionRunEnd")


@entry("OrtApi", "SyncStream_GetHandle")
def _get_handle(handle: int) -> int:
    return find(handle, SyncStream).native


@entry("OrtEpApi", "SyncStream_GetImpl")
def _get_impl(handle: int) -> int:
    return find(handle, SyncStream).members.address


@entry("OrtEpApi", "SyncStream_GetSyncId")
def _get_sync_id(handle: int) -> int:
    return find(handle, SyncStream).sync_id


@entry("OrtEpApi", "GetSyncIdForLastWaitOnSyncStream")
def _get_last_wait(producer: int, consumer: int) -> int:
    """0: no stream here waits for another."""
    find(producer, SyncStream)
    find(consumer, SyncStream)
    return 0
