/* Cortex-M board with a debugger or emulator: images from the file `images.bin`, results to
 * `results.bin`, by semihosting. At the end `report.bin` gets four 32-bit numbers: timer ticks of
 * 30,000 instructions, ticks of the network in two halves, and the deepest stack in bytes. */
#include <stdint.h>

#include "model.h"

extern uint32_t stack_limit[], stack_top[];

#define TIMER_CONTROL (*(volatile uint32_t *)0xE000E010u)
#define TIMER_RELOAD (*(volatile uint32_t *)0xE000E014u)
#define TIMER_NOW (*(volatile uint32_t *)0xE000E018u)
#define TIMER_MASK 0xFFFFFFu
#define PAINT 0xC5C5C5C5u

enum { OPEN = 1, CLOSE = 2, WRITE = 5, READ = 6, EXIT = 0x18 };

static uintptr_t host(uintptr_t operation, const void *arguments)
{
    register uintptr_t r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = arguments;
    __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static uintptr_t open_file(const char *name, uintptr_t length, uintptr_t mode)
{
    uintptr_t arguments[3];
    arguments[0] = (uintptr_t)name;
    arguments[1] = mode;
    arguments[2] = length;
    return host(OPEN, arguments);
}

/* Bytes that could not be read or written. */
static uintptr_t transfer(uintptr_t operation, uintptr_t file, const void *data, uintptr_t size)
{
    uintptr_t arguments[3];
    arguments[0] = file;
    arguments[1] = (uintptr_t)data;
    arguments[2] = size;
    return host(operation, arguments);
}

static uint32_t ticks_of_known_loop(void)
{
    uint32_t count = 10000, begin = TIMER_NOW;
    __asm__ volatile(".syntax unified\n"
                     "1: subs %0, %0, #1\n"
                     "cmp %0, #0\n"
                     "bne 1b\n"
                     : "+l"(count)
                     :
                     : "cc");
    return (begin - TIMER_NOW) & TIMER_MASK;
}

int main(void)
{
    uint32_t *word;
    uint32_t report[4];
    uint64_t ticks = 0;
    uintptr_t images, results, file;
    int8_t pixel[MODEL_CHANNELS];
    for (word = stack_limit; word < (uint32_t *)__builtin_frame_address(0) - 32; word++) {
        *(volatile uint32_t *)word = PAINT;
    }
    TIMER_RELOAD = TIMER_MASK;
    TIMER_NOW = 0;
    TIMER_CONTROL = 5; /* on, processor clock, no interrupt */
    report[0] = ticks_of_known_loop();
    images = open_file("images.bin", 10, 1);
    results = open_file("results.bin", 11, 5);
    model_reset();
    while (transfer(READ, images, pixel, sizeof pixel) == 0) {
        const uint32_t begin = TIMER_NOW;
        const uint8_t done = model_push(pixel);
        ticks += (begin - TIMER_NOW) & TIMER_MASK;
        if (done) {
            transfer(WRITE, results, model_output(), MODEL_OUTPUTS);
            model_reset();
        }
    }
    host(CLOSE, &results);
    report[1] = (uint32_t)ticks;
    report[2] = (uint32_t)(ticks >> 32);
    for (word = stack_limit; *word == PAINT; word++) {
    }
    report[3] = (uint32_t)((uintptr_t)stack_top - (uintptr_t)word);
    file = open_file("report.bin", 10, 5);
    transfer(WRITE, file, report, sizeof report);
    host(CLOSE, &file);
    host(EXIT, (const void *)0x20026);
    for (;;) {
    }
}
