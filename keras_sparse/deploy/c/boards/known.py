"""The boards: their memory, how firmware is built for them and what emulates them."""

from typing import NamedTuple

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion")
SECTIONS = ("-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections")
CORTEX_M_C = ("-std=c99", "-O2", "-ffreestanding", "-nostdlib")
_CORTEX_M = (*CORTEX_M_C, "-mthumb", "-fno-tree-loop-distribute-patterns")
_STM32 = 0x08000000
_PACKAGES_ARM = "gcc-arm-none-eabi qemu-system-arm"


class Board(NamedTuple):
    """A board.

    Attributes:
        name: As in `run_on_board`.
        chip: What is on it.
        ram: Bytes of RAM; 0 for no limit.
        flash: Bytes of flash; 0 for no limit.
        word: Alignment of 32-bit values in bytes.
        prefix: Of the tools, such as "avr-".
        flags: Of the compiler.
        main: Source with the `main` function, and what it needs.
        libraries: That the linker needs.
        tools: Programs that must be installed.
        packages: Debian packages that have them.
        shift: An emulated instruction takes 2^shift ns, where QEMU runs it.
        cpu: Of a Cortex-M, else empty.
        origin: Address of its flash.
    """

    name: str
    chip: str
    ram: int
    flash: int
    word: int
    prefix: str
    flags: tuple[str, ...]
    main: tuple[str, ...]
    libraries: tuple[str, ...]
    tools: tuple[str, ...]
    packages: str
    shift: int = 0
    cpu: str = ""
    origin: int = 0


def _cortex_m(
    name: str, chip: str, ram: int, flash: int, cpu: str, shift: int, origin: int
) -> Board:
    return Board(
        name,
        chip,
        ram,
        flash,
        4,
        "arm-none-eabi-",
        (*_CORTEX_M, f"-mcpu={cpu}", *SECTIONS, "-T", f"{name}.ld"),
        ("main_cortex_m.c", "startup_cortex_m.c"),
        ("-lgcc",),
        ("arm-none-eabi-gcc", "qemu-system-arm"),
        _PACKAGES_ARM,
        shift,
        cpu,
        origin,
    )


_ALL = (
    Board(
        "host",
        "this computer",
        0,
        0,
        4,
        "",
        ("-std=c99", "-O2"),
        ("main_host.c",),
        (),
        ("gcc",),
        "gcc",
    ),
    Board(
        "uno",
        "ATmega328P, 8-bit AVR, 16 MHz",
        2048,
        32768,
        1,
        "avr-",
        ("-std=gnu99", "-O2", "-mmcu=atmega328p", *SECTIONS),
        ("main_uno.c",),
        (),
        ("avr-gcc", "gcc", "simavr"),
        "gcc gcc-avr avr-libc simavr libsimavr-dev libelf-dev",
    ),
    _cortex_m("microbit", "nRF51822, Cortex-M0", 16 << 10, 256 << 10, "cortex-m0", 8, 0),
    _cortex_m(
        "stm32vldiscovery", "STM32F100RB, Cortex-M3", 8 << 10, 128 << 10, "cortex-m3", 8, _STM32
    ),
    _cortex_m(
        "netduinoplus2", "STM32F405RG, Cortex-M4", 128 << 10, 1 << 20, "cortex-m4", 5, _STM32
    ),
)

BOARDS = {board.name: board for board in _ALL}
