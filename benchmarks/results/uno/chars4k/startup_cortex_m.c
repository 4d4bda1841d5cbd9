/* What a Cortex-M needs before main: vectors and zeroed variables. */
#include <stdint.h>

extern uint32_t bss_begin[], bss_end[], data_begin[], data_end[], data_image[], stack_top[];

int main(void);
void reset_handler(void);
void fault_handler(void);

void reset_handler(void)
{
    uint32_t *to;
    const uint32_t *from = data_image;
    for (to = data_begin; to < data_end; to++) {
        *to = *from++;
    }
    for (to = bss_begin; to < bss_end; to++) {
        *(volatile uint32_t *)to = 0;
    }
    main();
    for (;;) {
    }
}

void fault_handler(void)
{
    for (;;) {
    }
}

typedef union {
    uint32_t *stack;
    void (*handler)(void);
} vector;

extern const vector vectors[16];
__attribute__((section(".vectors"), used)) const vector vectors[16] = {
    {.stack = stack_top},         {.handler = reset_handler},   {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler},   {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler},   {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler},   {.handler = fault_handler},
    {.handler = fault_handler},   {.handler = fault_handler},   {.handler = fault_handler},
    {.handler = fault_handler},
};
