"""External tensor data: files beside the model, opened once each, never outside the model's folder."""

from __future__ import annotations

import functools
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from intarsia.errors import ExternalDataError
from intarsia.graph.formats.file_bytes import file_bytes
from intarsia.graph.formats.protobuf_wire import Buffer


class ExternalFiles:
    """The weight files of one model, each open as long as a constant whose data is in it.

    Args:
        folder: what locations are relative to; None where it is not known (a model given as bytes).
        model_path: the model file where there is one. If it is a symbolic link, the folder it points to counts as the
            model's folder too (as in content-addressed caches, where model and weights are links into one store).
        contents: files that are in memory, by location.
        unread: names of tensors whose data nobody will read, so that their files need not exist.
        allowed: further folders that locations may lead into, also absolute ones.
    """

    def __init__(
        self,
        folder: Path | None,
        model_path: str = "",
        contents: Mapping[str, Buffer] | None = None,
        unread: Collection[str] = (),
        allowed: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._allowed = allowed
        self._model_path = model_path
        self._opened: dict[str, Buffer] = dict(contents or {})
        self._unread = unread

    @property
    def used(self) -> tuple[str, ...]:
        """Locations of those in which a tensor's data lies."""
        return tuple(self._opened)

    @functools.cached_property
    def _roots(self) -> list[Path]:
        if self.folder is None:
            return []
        real = [self.folder.resolve()]
        return [*real, Path(self._model_path).resolve().parent] if self._model_path else real

    def view(self, tensor: str, properties: dict[str, str], needed_nbytes: int) -> tuple[Buffer, int]:
        """The file's bytes and the byte at which the data of `tensor` begins in it.

        Args:
            tensor: the tensor's name, for messages.
            properties: its `external_data` entries: location, offset, length (a checksum is not checked).
            needed_nbytes: size of the data by the tensor's shape and element type.

        Raises:
            ExternalDataError: no location, a bad offset or length, or the file is missing, outside the folder or too short.
        """
        location = properties.get("location", "")
        where = f"external data of tensor {tensor!r}"
        if tensor in self._unread:
            return b"", 0
        if not location:
            raise ExternalDataError(f"{where}: it has no 'location', expected a file name relative to the model's folder")
        offset = self._number(where, properties, "offset", 0)
        length = self._number(where, properties, "length", needed_nbytes)
        if length != needed_nbytes:
            raise ExternalDataError(
                f"{where} in {location!r}: length is {length} bytes, but its type and shape need {needed_nbytes}"
            )
        data = self._opened.get(location)
        if data is None:
            data = self._opened[location] = self._open(where, location)
        if offset + length > len(data):
            raise ExternalDataError(
                f"{where}: needs bytes {offset} to {offset + length} of {location!r} in folder {str(self.folder)!r}, "
                f"but the file has {len(data)}: it is cut short or belongs to another version of the model"
            )
        return data, offset

    @staticmethod
    def _number(where: str, properties: dict[str, str], key: str, default: int) -> int:
        given = properties.get(key)
        if not given:
            return default
        if not (given.isascii() and given.isdecimal() and len(given) < 20):
            raise ExternalDataError(f"{where}: {key} is {given!r}, expected a number of bytes")
        return int(given)

    def _open(self, where: str, location: str) -> Buffer:
        if self.folder is None:
            raise ExternalDataError(
                f"{where} is in the file {location!r}, but the model was given as bytes: pass base_dir, the folder of that file"
            )
        path = self.resolved(where, location)
        missing = f"{where}: file {location!r} is missing in folder {str(self.folder)!r}"
        try:
            # O_NONBLOCK: opening a pipe that poses as a weight file must not wait for a writer.
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
        except FileNotFoundError:
            raise ExternalDataError(f"{missing}: copy it there together with the model") from None
        except OSError as error:
            raise ExternalDataError(
                f"{where}: file {location!r} in folder {str(self.folder)!r} cannot be read: {error.strerror}"
            ) from error
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise ExternalDataError(f"{where}: {location!r} in folder {str(self.folder)!r} is not a regular file")
        return file_bytes(descriptor, f"weight file {location!r} in folder {str(self.folder)!r}", ExternalDataError, str(path))

    def _is_drive_of_ours(self, drive: str) -> bool:
        """Whether files may be on a drive (Windows; "" elsewhere and where a path names none)."""
        folders = (*self._roots, *(Path(folder).absolute() for folder in self._allowed))
        return not drive or drive.lower() in {folder.drive.lower() for folder in folders}

    def resolved(self, where: str, location: str) -> Path:
        """The path of `location`, which must not lead out of the folder."""
        assert self.folder is not None
        try:
            if "\0" in location:
                raise ValueError("it has a null character")  # which Windows would resolve
            # Another drive, or another computer's folder (\\name\folder), is not looked at: that would ask the network.
            if self._is_drive_of_ours(Path(location).drive):
                path = (self._roots[0] / location).resolve()
                absolute = Path(location).is_absolute() or location.startswith(("/", "\\"))
                inside = not absolute and any(path.is_relative_to(root) for root in self._roots)
                if inside or any(path.is_relative_to(Path(folder).resolve()) for folder in self._allowed):
                    return path
        except (ValueError, OSError, RuntimeError) as error:  # null characters, names too long, loops of links
            raise ExternalDataError(f"{where}: location {location!r} is not a valid file name: {error}") from None
        raise ExternalDataError(
            f"External data path validation failed for {where}: location {location!r} leads out of the model's folder "
            f"{str(self.folder)!r}; for safety only files in that folder are read, and in those that "
            "SessionOptions.whitelisted_data_folders names"
        )
