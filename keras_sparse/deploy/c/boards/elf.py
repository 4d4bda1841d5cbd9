"""What a linked program takes, read from its ELF file: no other tool is needed for that."""

import struct
from pathlib import Path
from typing import NamedTuple

_WIDE = 2  # class of 64-bit files
_SYMBOLS, _NO_BITS = 2, 8  # types of sections
_OBJECT, _FUNCTION = 1, 2  # types of symbols
_WRITABLE, _ALLOCATED = 1, 2  # flags of sections


class _Section(NamedTuple):
    type: int
    flags: int
    offset: int
    size: int
    link: int


class _Symbol(NamedTuple):
    name: str
    type: int
    address: int
    size: int


class Sizes(NamedTuple):
    """Bytes of a program.

    Attributes:
        text: Code and constants.
        data: Initialized variables.
        bss: Zeroed variables.
        objects: Bytes of every named variable and table.
        functions: Address and bytes of every function.
    """

    text: int
    data: int
    bss: int
    objects: dict[str, int]
    functions: dict[str, tuple[int, int]]


def sizes(path: Path) -> Sizes:
    """Reads a little-endian ELF file of 32 or 64 bits."""
    content = path.read_bytes()
    wide = content[4] == _WIDE
    sections = _sections(content, wide)
    text = data = bss = 0
    symbols: list[_Symbol] = []
    for section in sections:
        if section.type == _SYMBOLS:
            symbols += _symbols(content, section, sections[section.link], wide)
        if not section.flags & _ALLOCATED:
            continue
        if not section.flags & _WRITABLE:
            text += section.size
        elif section.type == _NO_BITS:
            bss += section.size
        else:
            data += section.size
    objects = {symbol.name: symbol.size for symbol in symbols if symbol.type == _OBJECT}
    functions = {s.name: (s.address, s.size) for s in symbols if s.type == _FUNCTION}
    return Sizes(text, data, bss, objects, functions)


def _sections(content: bytes, wide: bool) -> list[_Section]:
    (place,) = struct.unpack_from("<Q" if wide else "<I", content, 40 if wide else 32)
    step, count = struct.unpack_from("<2H", content, 58 if wide else 46)
    result = []
    for number in range(count):
        _, kind, flags, _, offset, size, link = struct.unpack_from(
            "<2I4QI" if wide else "<7I", content, place + number * step
        )
        result.append(_Section(kind, flags, offset, size, link))
    return result


def _symbols(content: bytes, table: _Section, names: _Section, wide: bool) -> list[_Symbol]:
    result = []
    for place in range(table.offset, table.offset + table.size, 24 if wide else 16):
        if wide:
            name, info, _, _, address, size = struct.unpack_from("<I2BH2Q", content, place)
        else:
            name, address, size, info = struct.unpack_from("<3IB", content, place)
        begin = names.offset + name
        text = content[begin : content.index(b"\0", begin)].decode()
        result.append(_Symbol(text, info & 15, address, size))
    return result
