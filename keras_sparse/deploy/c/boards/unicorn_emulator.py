"""Runs firmware of a Cortex-M board in unicorn: for machines without QEMU.

    python unicorn_emulator.py firmware.elf cpu flash-address ram-bytes

A program of its own, beside QEMU's: what goes wrong in it ends no other process, and it starts
without TensorFlow. It offers what `main_cortex_m.c` asks for: files by semihosting, in the working
directory, and a timer, whose tick is an instruction.
"""

import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

import unicorn
from unicorn import arm_const as arm

_CPUS = {
    "cortex-m0": arm.UC_CPU_ARM_CORTEX_M0,
    "cortex-m3": arm.UC_CPU_ARM_CORTEX_M3,
    "cortex-m4": arm.UC_CPU_ARM_CORTEX_M4,
}
_RAM = 0x20000000
_SYSTEM, _TIMER_NOW, _TIMER_MASK = 0xE000E000, 0x18, 0xFFFFFF
_OPEN, _CLOSE, _WRITE, _READ, _EXIT = 1, 2, 5, 6, 0x18
_PAGE, _LOADED = 4096, 1
_NOWHERE = 0xFFFFFFFE  # where no program ends: it asks for its end


def segments(elf: bytes) -> list[tuple[int, bytes]]:
    """Addresses and contents that a 32-bit ELF file loads, where they lie in flash."""
    (first,) = struct.unpack_from("<I", elf, 28)
    (count,) = struct.unpack_from("<H", elf, 44)
    result = []
    for number in range(count):
        kind, offset, _, address, size = struct.unpack_from("<5I", elf, first + 32 * number)
        if kind == _LOADED and size:
            result.append((address, elf[offset : offset + size]))
    return result


def instructions(code: bytes) -> int:
    """How many Thumb instructions there are: those of 32 bits begin with 0b11101 or more."""
    count = place = 0
    while place < len(code):
        place += 4 if code[place + 1] >> 3 >= 0b11101 else 2
        count += 1
    return count


class Machine:
    """A Cortex-M with flash, RAM, a timer and semihosting.

    Args:
        elf: The firmware.
        cpu: Such as "cortex-m0".
        flash: Address of the flash.
        ram: Bytes of RAM.
    """

    def __init__(self, elf: bytes, cpu: str, flash: int, ram: int) -> None:
        self.flash = flash
        self.count = 0
        self.lengths: dict[tuple[int, int], int] = {}
        self.files: list[BinaryIO] = []
        mode = unicorn.UC_MODE_THUMB | unicorn.UC_MODE_MCLASS
        self.core: Any = unicorn.Uc(unicorn.UC_ARCH_ARM, mode)
        self.core.ctl_set_cpu_model(_CPUS[cpu])
        self.core.mem_map(flash, 1 << 20)
        self.core.mem_map(_RAM, -(-ram // _PAGE) * _PAGE)
        for address, content in segments(elf):
            self.core.mem_write(address, content)
        self.core.hook_add(unicorn.UC_HOOK_BLOCK, self._on_block)
        self.core.hook_add(unicorn.UC_HOOK_INTR, self._on_breakpoint)
        self.core.mmio_map(_SYSTEM, _PAGE, self._on_read, None, self._on_write, None)

    def run(self) -> None:
        """From reset until the firmware asks for its end."""
        stack, start = self._words(self.flash, 2)
        self.core.reg_write(arm.UC_ARM_REG_SP, stack)
        self.core.emu_start(start | 1, _NOWHERE)
        for file in self.files:
            file.close()

    def _words(self, address: int, count: int) -> tuple[int, ...]:
        return struct.unpack(f"<{count}I", self.core.mem_read(address, 4 * count))

    def _on_block(self, core: Any, address: int, size: int, _: Any) -> None:
        key = address, size
        if key not in self.lengths:
            self.lengths[key] = instructions(bytes(core.mem_read(address, size)))
        self.count += self.lengths[key]

    def _on_read(self, core: Any, offset: int, size: int, _: Any) -> int:
        return -self.count & _TIMER_MASK if offset == _TIMER_NOW else 0

    def _on_write(self, core: Any, offset: int, size: int, value: int, _: Any) -> None:
        """The timer always runs."""

    def _on_breakpoint(self, core: Any, number: int, _: Any) -> None:
        operation = core.reg_read(arm.UC_ARM_REG_R0)
        arguments = core.reg_read(arm.UC_ARM_REG_R1)
        if operation == _EXIT:
            core.emu_stop()
            return
        core.reg_write(arm.UC_ARM_REG_R0, self._answer(operation, arguments))
        core.reg_write(arm.UC_ARM_REG_PC, core.reg_read(arm.UC_ARM_REG_PC) + 2 | 1)

    def _answer(self, operation: int, arguments: int) -> int:
        """What the host answers: the number of a file, or the bytes that were not transferred."""
        if operation == _CLOSE:
            self.files[self._words(arguments, 1)[0]].flush()
            return 0
        first, second, third = self._words(arguments, 3)
        if operation == _OPEN:
            name = Path(bytes(self.core.mem_read(first, third)).decode()).name
            self.files.append(open(name, "rb" if second < 4 else "wb"))  # noqa: SIM115
            return len(self.files) - 1
        if operation == _READ:
            content = self.files[first].read(third)
            self.core.mem_write(second, content)
            return third - len(content)
        if operation == _WRITE:
            return third - self.files[first].write(bytes(self.core.mem_read(second, third)))
        raise RuntimeError(f"The firmware asked for the unknown operation {operation}")


def main() -> None:
    """Runs what the command line names."""
    path, cpu, flash, ram = sys.argv[1:]
    Machine(Path(path).read_bytes(), cpu, int(flash), int(ram)).run()


if __name__ == "__main__":
    main()
