"""What lies directly in a directory of a storage service, also where pyarrow tells of half of it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


def children(filesystem: "FileSystem", directory: str, *, allow_not_found: bool) -> "tuple[list[FileInfo], int]":
    """Objects and directories directly in `directory`, in no order, and of how many the service told for that.

    Raises OSError, as the file system does.

    On Google's storage pyarrow names only directories that have a marker object, which `gsutil` and most others do not make
    (Arrow's issue 35993). So there everything below is listed, and the directories are worked out from the objects' names.
    """
    from pyarrow.fs import FileInfo, FileSelector, FileType

    if filesystem.type_name != "gcs":
        found = filesystem.get_file_info(FileSelector(directory, recursive=False, allow_not_found=allow_not_found))
        return found, len(found)
    prefix = directory.rstrip("/") + "/"
    direct, directories = [], set()
    found = filesystem.get_file_info(FileSelector(directory, recursive=True, allow_not_found=allow_not_found))
    for info in found:
        name, slash, _ = info.path.removeprefix(prefix).partition("/")
        if slash and name:
            directories.add(prefix + name)
        elif info.type == FileType.Directory:
            directories.add(info.path)
        else:
            direct.append(info)
    return [*direct, *(FileInfo(path, FileType.Directory) for path in directories)], len(found)
