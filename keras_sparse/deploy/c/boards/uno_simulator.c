/* Runs firmware of an Arduino Uno in simavr: pixels in, results out, cycles and stack counted.
 *
 *     uno_simulator firmware.elf images.bin results.bin channels outputs
 *
 * Prints: cycles while the network computed, all cycles, deepest stack in bytes, images. Writes to
 * profile.bin how many of the first were spent at each 16-bit word of flash, as 64-bit numbers. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <simavr/avr_uart.h>
#include <simavr/sim_avr.h>
#include <simavr/sim_elf.h>

#define GPIOR0 0x3E
#define PAINT 0xC5
#define WORDS 16384

static avr_t *avr;
static avr_irq_t *input;
static FILE *images, *results;
static unsigned channels, outputs, awaited, finished, ended;
static avr_cycle_count_t begun, computing;
static uint64_t spent[WORDS];
static int is_computing;

static void on_byte(struct avr_irq_t *irq, uint32_t value, void *parameter)
{
    (void)irq;
    (void)parameter;
    if (awaited) {
        fputc((int)value, results);
        if (--awaited == 0) {
            finished++;
        }
    } else if (value == 'o') {
        awaited = outputs;
    } else if (value == 'p') {
        unsigned i;
        for (i = 0; i < channels; i++) {
            const int byte = fgetc(images);
            if (byte == EOF) {
                ended = 1;
                return;
            }
            avr_raise_irq(input, (uint32_t)byte);
        }
    }
}

static void on_mark(struct avr_t *core, avr_io_addr_t address, uint8_t value, void *parameter)
{
    (void)parameter;
    core->data[address] = value;
    is_computing = value != 0;
    if (value) {
        begun = core->cycle;
    } else {
        computing += core->cycle - begun;
    }
}

int main(int count, char **arguments)
{
    elf_firmware_t firmware;
    uint32_t flags = 0, first, lowest;
    FILE *profile;
    if (count != 6) {
        fprintf(stderr, "five arguments are needed\n");
        return 2;
    }
    memset(&firmware, 0, sizeof firmware);
    if (elf_read_firmware(arguments[1], &firmware) != 0) {
        fprintf(stderr, "the firmware cannot be read\n");
        return 2;
    }
    images = fopen(arguments[2], "rb");
    results = fopen(arguments[3], "wb");
    channels = (unsigned)atoi(arguments[4]);
    outputs = (unsigned)atoi(arguments[5]);
    avr = avr_make_mcu_by_name("atmega328p");
    if (!images || !results || !avr) {
        fprintf(stderr, "files or simulator cannot be opened\n");
        return 2;
    }
    avr_init(avr);
    avr->log = LOG_ERROR;
    firmware.frequency = 16000000;
    avr_load_firmware(avr, &firmware);
    avr_ioctl(avr, AVR_IOCTL_UART_SET_FLAGS('0'), &flags);
    input = avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_INPUT);
    avr_irq_register_notify(
        avr_io_getirq(avr, AVR_IOCTL_UART_GETIRQ('0'), UART_IRQ_OUTPUT), on_byte, NULL);
    avr_register_io_write(avr, GPIOR0, on_mark, NULL);
    first = 0x100 + firmware.datasize + firmware.bsssize;
    memset(avr->data + first, PAINT, avr->ramend + 1 - first);
    while (!ended) {
        const avr_flashaddr_t place = avr->pc / 2;
        const avr_cycle_count_t before = avr->cycle;
        const int state = avr_run(avr);
        if (is_computing && place < WORDS) {
            spent[place] += avr->cycle - before;
        }
        if (state == cpu_Done || state == cpu_Crashed) {
            fprintf(stderr, "the firmware stopped after %u images\n", finished);
            return 1;
        }
    }
    for (lowest = first; lowest <= avr->ramend && avr->data[lowest] == PAINT; lowest++) {
    }
    fclose(results);
    profile = fopen("profile.bin", "wb");
    if (!profile || fwrite(spent, sizeof spent, 1, profile) != 1 || fclose(profile) != 0) {
        fprintf(stderr, "the profile cannot be written\n");
        return 2;
    }
    printf("%llu %llu %u %u\n", (unsigned long long)computing, (unsigned long long)avr->cycle,
           (unsigned)(avr->ramend + 1 - lowest), finished);
    return 0;
}
