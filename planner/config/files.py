"""Finds the files of a topology, reads their text and writes edits. Sizes are limited before parsing."""

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from planner.config.yaml_tree import place_of
from planner.model.diagnostic import Failure, SourceLocation, error
from runtime.contract.client.secrets import ALLOW_FILES, USUAL_FOLDERS, Allowances, is_made_up

MAX_BYTES = 32 * 2**20
MAX_FILES = 2_000
SUFFIXES = (".yaml", ".yml")
VARIABLE_SUFFIXES = (".vars.yaml", ".vars.yml")
# Longest first: the mark of UTF-32 begins like that of UTF-16.
ENCODINGS = (
    (b"\xff\xfe\x00\x00", "utf-32-le"),
    (b"\x00\x00\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
    (b"\xef\xbb\xbf", "utf-8"),
)
_DECLARATION = re.compile(r"""^[{\s]*["']?apiVersion["']?\s*:\s*["']?repl/""", re.MULTILINE)
_WINDOWS = "\r\n"
_ONLY_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.EXDEV)


def topology_files(path: Path, not_these: Iterable[Path] = ()) -> tuple[Path, ...]:
    """Returns the file itself, or every .yaml and .yml of a folder and its folders, without hidden ones.

    Files of variables (`….vars.yaml`, and those named by --var-file) are not part of the topology.
    """
    if not path.exists():
        raise Failure(error(f"{path}: no such file or folder", "name the topology's file or folder"))
    if not path.is_dir():
        _refuse_links_elsewhere([path], None)
        _refuse_folders_elsewhere(path.parent)
        return (path,)
    _refuse_folders_elsewhere(path)
    excluded = {other.resolve() for other in not_these}
    files = sorted(file for file in _walk(path) if not (excluded and file.resolve() in excluded))
    if not files:
        what = f"{path}: no .yaml or .yml file in this folder"
        raise Failure(error(what, "name the topology's file or folder, or start one with `repl init`"))
    if len(files) > MAX_FILES:
        what = f"{path}: more than {MAX_FILES:,} YAML files in this folder"
        raise Failure(error(what, "name the topology's own folder"))
    _refuse_links_elsewhere(files, (path, *(Path(folder) for folder in USUAL_FOLDERS)))
    return tuple(files)


def _refuse_links_elsewhere(files: Iterable[Path], folders: tuple[Path, ...] | None) -> None:
    """Refuses links out of the topology: an error shows parts of its file, so a link could disclose a file.

    `folders` are where links may lead if REPL_ALLOW_FILES is not set; None stands for every folder.
    """
    allowed = Allowances.of(os.environ)
    for file in files:
        if file.is_symlink() and not is_made_up(file.parent) and not allowed.allows_file(file, folders):
            raise Failure(
                error(
                    f"{file} is a link to a file outside the topology's folder",
                    f"put the file itself there; or the operator adds its folder to {ALLOW_FILES}",
                )
            )


def _refuse_folders_elsewhere(folder: Path) -> None:
    """Refuses a link to a folder outside the current one, unless the operator allows what it leads to.

    A checkout may have a link in the place of the folder that the operator names, or of one above it that is
    below the current one. Where REPL_ALLOW_FILES is not set, every folder is allowed.
    """
    allowed, here = Allowances.of(os.environ), Path.cwd()
    for part in (folder, *folder.parents):
        checked = part is folder or (part.parent.resolve() / part.name).is_relative_to(here)
        leads_out = checked and part.is_symlink() and not part.resolve().is_relative_to(here)
        if leads_out and not allowed.allows_file(part, None):
            raise Failure(
                error(
                    f"{part} is a link to a folder outside the current one",
                    f"name the folder itself; or the operator adds it to {ALLOW_FILES}",
                )
            )


def _walk(folder: Path) -> Iterable[Path]:
    def unreadable(wrong: OSError) -> None:
        # Leaving a folder out in silence would take what it declares out of the topology.
        raise Failure(error(f"{wrong.filename}: {wrong.strerror}", "make it readable, or name a file"))

    for here, folders, names in os.walk(folder, onerror=unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(here) / name for name in names if is_topology_file(Path(name)))


def is_topology_file(path: Path) -> bool:
    """Returns whether a file belongs to a topology by its name: YAML, not hidden, not a file of variables."""
    name = path.name.lower()
    return name.endswith(SUFFIXES) and not name.startswith(".") and not name.endswith(VARIABLE_SUFFIXES)


def declares_topology(path: Path) -> bool:
    """Returns whether a file that can be read says in a line of its own that it is part of a topology."""
    try:
        return is_topology_file(path) and path.is_file() and bool(_DECLARATION.search(read_text(path)))
    except Failure:
        return False


def read_text(path: Path) -> str:
    """Returns the text of one file. Raises a Failure if it can't be read, is not text, or is too large."""
    return decoded(read_bytes(path), str(path))


def read_bytes(path: Path) -> bytes:
    """Returns the bytes of one file. Raises a Failure if it can't be read or is too large."""
    try:
        with path.open("rb") as opened:
            size = os.fstat(opened.fileno()).st_size
            content = b"" if size > MAX_BYTES else opened.read(MAX_BYTES + 1)
    except OSError as wrong:
        raise Failure(error(f"{path}: {wrong.strerror}", "make it readable, or name another")) from None
    if size > MAX_BYTES or len(content) > MAX_BYTES:
        what = f"{path}: larger than {MAX_BYTES // 2**20} MiB"
        raise Failure(error(what, "that is no topology; split it into several files if it is one"))
    return content


def text_to_edit(content: bytes, path: Path) -> str:
    """Returns a file's text with plain line ends, whatever the file has; `in_form_of` restores them."""
    return decoded(content, str(path)).replace(_WINDOWS, "\n")


def in_form_of(before: bytes, text: str) -> bytes:
    """Returns an edited text in the file's encoding and line ends. All bytes outside the edit stay."""
    mark, encoding = _form(before)
    old = before[len(mark) :].decode(encoding)
    plain = old.replace(_WINDOWS, "\n")
    start = _same_characters(plain, text)
    end = _same_characters(plain[start:][::-1], text[start:][::-1])
    edit = text[start : len(text) - end]
    if "\n" in old and old.count("\n") == old.count(_WINDOWS):
        edit = edit.replace("\n", _WINDOWS)
    head, tail = old[: _behind(old, start)], old[_behind(old, len(plain) - end) :]
    return mark + f"{head}{edit}{tail}".encode(encoding)


def _same_characters(first: str, other: str) -> int:
    """Returns how many characters two texts begin with alike."""
    differs = (at for at, (left, right) in enumerate(zip(first, other, strict=False)) if left != right)
    return next(differs, min(len(first), len(other)))


def _behind(text: str, characters: int) -> int:
    """Returns the place behind so many characters, where a Windows line end counts as one."""
    ends = 0
    line_end = text.find(_WINDOWS)
    while line_end >= 0 and line_end - ends < characters:
        ends += 1
        line_end = text.find(_WINDOWS, line_end + 1)
    return characters + ends


def write_edited(before: Mapping[Path, bytes], after: Mapping[Path, bytes]) -> None:
    """Replaces each file in one step and keeps its mode, its owner and its symbolic link.

    Raises a Failure if a file changed since it was read, or can't be written.
    """
    try:
        for path, content in before.items():
            if path.read_bytes() != content:
                what = f"{path} was edited meanwhile, so nothing was changed"
                raise Failure(error(what, "look at it, then run the same command again"))
        for path, content in after.items():
            _replace(path.resolve(), content)
    except OSError as wrong:
        what = f"{wrong.filename} can't be written: {wrong.strerror}"
        raise Failure(error(what, "make it writable; then run the same command again")) from None


def _replace(path: Path, content: bytes) -> None:
    """Replaces one file; in place if the folder takes no new file, or the file is a mount."""
    try:
        written = _beside(path, content)
    except OSError as wrong:
        if wrong.errno not in _ONLY_IN_PLACE:
            raise
        path.write_bytes(content)
        return
    try:
        written.replace(path)
    except OSError as wrong:
        written.unlink()
        if wrong.errno not in _ONLY_IN_PLACE:
            raise
        path.write_bytes(content)


def _beside(path: Path, content: bytes) -> Path:
    """A hidden file in the same folder, which no reader of the folder takes for a part of the topology."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    written = Path(name)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(opened.fileno())
        shutil.copymode(path, written)
        owner, mine = path.stat(), written.stat()
        if (owner.st_uid, owner.st_gid) != (mine.st_uid, mine.st_gid):
            os.chown(written, owner.st_uid, owner.st_gid)
    except OSError:
        written.unlink()
        raise
    return written


def decoded(content: bytes, file: str) -> str:
    mark, encoding = _form(content)
    body = content[len(mark) :]
    try:
        text = body.decode(encoding)
    except UnicodeDecodeError as wrong:
        before = body[: wrong.start].decode(encoding, errors="replace")
        line, column = place_of(before, len(before))
        what = f"not text in UTF-8 (byte 0x{body[wrong.start]:02x})"
        raise Failure(
            error(what, "save the file as UTF-8", source=SourceLocation(file, line, column))
        ) from None
    if "\x00" in text:
        line, column = place_of(text, text.index("\x00"))
        what = "not a text file (it holds a zero byte)"
        raise Failure(
            error(what, "save the topology as text in UTF-8", source=SourceLocation(file, line, column))
        )
    return text


def _form(content: bytes) -> tuple[bytes, str]:
    """The mark that it begins with, and its encoding."""
    return next((form for form in ENCODINGS if content.startswith(form[0])), (b"", "utf-8"))
