/* Runtime of generated networks: stores, poolings, additions; sums and rescaling are in the others.
 *
 * C99, no library, no heap. Everything is static: what a network does not use is not linked.
 * A window holds a few rows; in each row the values of a channel are neighbours. */
#ifndef KS_RUNTIME_H
#define KS_RUNTIME_H

#include "ks_kernels.h"

/* ---- where the values of a channel go; `step` is the distance of neighbours ---- */

KS_KERNEL void ks_store(int8_t *to, const int8_t *line, uint16_t n, uint16_t step)
{
    do {
        *to = *line++;
        to += step;
    } while (--n);
}

/* The largest of every `window` values, and unless this row is the first of what is there. */
KS_KERNEL void ks_store_maximum(int8_t *to, const int8_t *line, uint16_t n, uint16_t step,
                                uint8_t window, uint8_t first)
{
    do {
        int8_t most = first ? INT8_MIN : *to;
        uint8_t i = window;
        do {
            most = *line > most ? *line : most;
            line++;
        } while (--i);
        *to = most;
        to += step;
    } while (--n);
}

KS_KERNEL void ks_sum(int32_t *to, const int8_t *line, uint16_t n, uint16_t step, uint8_t window)
{
    do {
        uint8_t i = window;
        do {
            *to += *line++;
        } while (--i);
        to += step;
    } while (--n);
}

/* Sums divided by their count, halves away from zero. */
static inline int8_t ks_quotient(int32_t sum, int16_t count)
{
    const int16_t half = count / 2;
    return (int8_t)((sum > 0 ? sum + half : sum - half) / count);
}

/* ---- poolings with overlapping windows, depth ---- */

KS_KERNEL void ks_pool_maximum(const int8_t *window, const ks_shape *g, int8_t low, int8_t high,
                               int8_t *line)
{
    uint16_t x = g->width;
    do {
        const int8_t *row = window;
        int8_t most = INT8_MIN;
        uint16_t i, j;
        for (i = 0; i < g->rows; i++) {
            const int8_t *q = row;
            for (j = 0; j < g->length; j++) {
                most = *q > most ? *q : most;
                q += g->step;
            }
            row += g->gap;
        }
        *line++ = ks_clamped(most, low, high);
        window += g->stride;
    } while (--x);
}

/* Padding holds zeros and does not count: `rows` rows are real, columns from `left` on to `right`. */
KS_KERNEL void ks_pool_average(const int8_t *window, const ks_shape *g, int16_t rows, int16_t left,
                               int16_t right, int16_t pixels, int8_t low, int8_t high, int8_t *line)
{
    uint16_t x;
    int16_t begin = 0;
    for (x = 0; x < g->width; x++) {
        const int8_t *row = window;
        const int16_t end = (int16_t)(begin + (int16_t)g->length);
        const int16_t from = begin > left ? begin : left, to = end < right ? end : right;
        int32_t sum = 0;
        uint16_t i, j;
        for (i = 0; i < g->rows; i++) {
            const int8_t *q = row;
            for (j = 0; j < g->length; j++) {
                sum += *q;
                q += g->step;
            }
            row += g->gap;
        }
        *line++ = ks_clamped(ks_quotient(sum, (int16_t)(rows * (to - from))), low, high);
        window += g->stride;
        begin = (int16_t)(begin + pixels);
    }
}

/* Of n neighbouring pixels, whose channels lie `step` bytes apart. */
KS_KERNEL void ks_depth_maximum(const int8_t *pixel, uint16_t n, uint16_t channels, uint16_t step,
                                int8_t *line)
{
    do {
        const int8_t *q = pixel++;
        int8_t most = INT8_MIN;
        uint16_t i = channels;
        do {
            most = *q > most ? *q : most;
            q += step;
        } while (--i);
        *line++ = most;
    } while (--n);
}

/* ---- element by element ---- */

/* The sum of a line and a delayed one: multipliers and shifts of both and of the sum. */
KS_KERNEL void ks_add(int8_t *to, const int8_t *line, const int8_t *other, uint16_t n,
                      uint16_t step, const KS_FLASH int32_t *multipliers,
                      const KS_FLASH int8_t *shifts)
{
    do {
        const int32_t a = ((int32_t)*line++ - shifts[3]) * (1l << 20);
        const int32_t b = ((int32_t)*other - shifts[4]) * (1l << 20);
        const int32_t sum = ks_multiply(a, multipliers[0], shifts[0]) +
                            ks_multiply(b, multipliers[1], shifts[1]);
        const int32_t y = ks_multiply(sum, multipliers[2], shifts[2]) + shifts[5];
        *to++ = ks_clamped(y, shifts[6], shifts[7]);
        other += step;
    } while (--n);
}

KS_KERNEL void ks_rescale_line(int8_t *to, const int8_t *line, uint16_t n, const ks_channel *k)
{
    do {
        *to++ = ks_rescale((int32_t)*line++ - k->bias, k);
    } while (--n);
}

/* ---- windows ---- */

KS_KERNEL void ks_fill(int8_t *to, int8_t value, uint16_t n)
{
    do {
        *to++ = value;
    } while (--n);
}

/* Rows move up to make room for new ones. */
KS_KERNEL void ks_move(int8_t *to, uint16_t distance, uint16_t n)
{
    const int8_t *from = to + distance;
    do {
        *to++ = *from++;
    } while (--n);
}

#endif
