/* Runtime of generated networks: decoding of sparse weights, sums, rescaling, stores.
 *
 * C99, no library, no heap. Everything is static: what a network does not use is not linked.
 * Sums become int8 as in TFLite Micro: doubled high multiplication and shift, both rounded. */
#ifndef KS_RUNTIME_H
#define KS_RUNTIME_H

#include <stdint.h>

#if defined(__AVR__)
#define KS_FLASH __flash /* tables stay in program memory */
#else
#define KS_FLASH
#endif

#if defined(__GNUC__)
#define KS_KERNEL static __attribute__((noinline, unused))
#else
#define KS_KERNEL static inline
#endif

typedef const KS_FLASH uint8_t *ks_bytes;

/* Where a stream of weights is read next. */
typedef struct {
    ks_bytes next;
    uint16_t zeros; /* runs, bytes: zeros before the next stored weight */
    uint8_t bits;   /* bitmap: bits not yet used; runs: the other run of the pair */
    uint8_t left;   /* bitmap: how many bits; runs: whether the other run is next */
} ks_cursor;

/* How a window lies in memory. */
typedef struct {
    uint16_t rows;   /* of the kernel */
    uint16_t length; /* taps of a row */
    uint16_t gap;    /* bytes from the end of a row's taps to the next row's */
    uint16_t step;   /* bytes from tap to tap */
    uint16_t stride; /* bytes from an output's window to the next one's */
    uint16_t width;  /* outputs of a row */
} ks_shape;

/* How the sums of one channel become int8. */
typedef struct {
    int32_t bias;
    int32_t multiplier;
    int8_t shift;
    int8_t zero;
    int8_t low;
    int8_t high;
} ks_channel;

/* ---- rescaling ---- */

#if defined(__AVR__) || defined(__ARM_ARCH_6M__)
#define KS_NARROW 1 /* no 32 x 32 -> 64 bit multiplication */
#else
#define KS_NARROW 0
#endif

#if defined(__AVR__)
static inline uint32_t ks_product(uint16_t a, uint16_t b)
{
    uint32_t result;
    __asm__("mul %A[a], %A[b]\n\t"
            "movw %A[y], r0\n\t"
            "mul %B[a], %B[b]\n\t"
            "movw %C[y], r0\n\t"
            "mul %B[a], %A[b]\n\t"
            "add %B[y], r0\n\t"
            "adc %C[y], r1\n\t"
            "adc %D[y], %[zero]\n\t"
            "mul %A[a], %B[b]\n\t"
            "add %B[y], r0\n\t"
            "adc %C[y], r1\n\t"
            "adc %D[y], %[zero]\n\t"
            "clr r1"
            : [y] "=&r"(result)
            : [a] "r"(a), [b] "r"(b), [zero] "r"((uint8_t)0)
            : "r0");
    return result;
}
#else
static inline uint32_t ks_product(uint16_t a, uint16_t b)
{
    return (uint32_t)a * b;
}
#endif

#if KS_NARROW
/* floor((|a| * m + 2^30 - negative) / 2^31) from products of 16 bits. */
static inline uint32_t ks_high(uint32_t a, uint32_t m, uint8_t negative)
{
    const uint16_t al = (uint16_t)a, ah = (uint16_t)(a >> 16);
    const uint16_t ml = (uint16_t)m, mh = (uint16_t)(m >> 16);
    const uint32_t low = ks_product(al, ml);
    uint32_t middle = ks_product(al, mh) + (low >> 16);
    uint32_t high = 0, rest;
    if (ah != 0) {
        high = ks_product(ah, mh) + (middle >> 16);
        middle = ks_product(ah, ml) + (uint16_t)middle;
    }
    high += middle >> 16;
    rest = (middle << 16) | (uint16_t)low;
    if (negative && rest != 0) {
        rest--;
    }
    return (high << 1) + (((rest >> 30) + 1) >> 1);
}
#else
static inline uint32_t ks_high(uint32_t a, uint32_t m, uint8_t negative)
{
    return (uint32_t)(((uint64_t)a * m + (1u << 30) - negative) >> 31);
}
#endif

/* |x| * 2^shift and the sign, in 32 bits as TFLite Micro has it. */
static inline uint32_t ks_magnitude(int32_t x, int8_t shift, uint8_t *negative)
{
    uint32_t size = (uint32_t)x;
    if (shift > 0) {
        size <<= shift;
    }
    *negative = (uint8_t)(size >> 31);
    return *negative ? 0u - size : size;
}

/* x * multiplier * 2^(shift - 31). */
KS_KERNEL int32_t ks_multiply(int32_t x, int32_t multiplier, int8_t shift)
{
    uint8_t negative = 0;
    uint32_t size = ks_magnitude(x, shift, &negative);
    size = ks_high(size, (uint32_t)multiplier, negative);
    if (shift < 0) {
        size = ((size >> (-shift - 1)) + 1) >> 1;
    }
    return negative ? -(int32_t)size : (int32_t)size;
}

static inline int8_t ks_clamped(int32_t x, int8_t low, int8_t high)
{
    return x < low ? low : x > high ? high : (int8_t)x;
}

/* The same as ks_multiply, plus the zero point, as int8. */
KS_KERNEL int8_t ks_rescale(int32_t sum, const ks_channel *k)
{
    int8_t shift = k->shift;
    uint8_t negative = 0;
    uint32_t size;
    uint16_t small;
    int16_t value;
    if (sum <= 0 && shift <= 0 && k->low == k->zero) {
        return k->low; /* behind a ReLU half of all sums end here */
    }
    size = ks_high(ks_magnitude(sum, shift, &negative), (uint32_t)k->multiplier, negative);
    for (; shift < -8; shift = (int8_t)(shift + 8)) {
        size >>= 8;
    }
    if (size > UINT16_MAX) {
        return negative ? k->low : k->high; /* more than 255 after at most 8 shifts */
    }
    small = (uint16_t)size;
    if (shift < 0) {
        small = (uint16_t)(small >> (uint8_t)(-shift - 1));
        small = (uint16_t)((small >> 1) + (small & 1));
    }
    if (small > 255) {
        return negative ? k->low : k->high;
    }
    value = (int16_t)((negative ? -(int16_t)small : (int16_t)small) + k->zero);
    return value < k->low ? k->low : value > k->high ? k->high : (int8_t)value;
}

/* ---- sums of products; `a` has one sum or four neighbouring ones ---- */

#define KS_ONE(weight)                                                                             \
    do {                                                                                           \
        const int8_t w_ = (int8_t)(weight);                                                        \
        a0 += w_ * q[0];                                                                           \
    } while (0)

/* Sums of four outputs that lie `stride` bytes apart. On an AVR they have 24 bits, which convolutions
 * are checked for when they are generated. */
#if defined(__AVR__)
__extension__ typedef __int24 ks_near;
#define KS_AVR_MAC(sum)                                                                            \
    "ld %[x], X\n\t"                                                                               \
    "muls %[w], %[x]\n\t"                                                                          \
    "add %A[" sum "], r0\n\t"                                                                      \
    "adc %B[" sum "], r1\n\t"                                                                      \
    "adc %C[" sum "], %[zero]\n\t"                                                                 \
    "sbrc r1, 7\n\t"                                                                               \
    "dec %C[" sum "]\n\t"
#define KS_AVR_NEXT "add r26, %A[stride]\n\tadc r27, %B[stride]\n\t"
#define KS_FOUR(weight)                                                                            \
    do {                                                                                           \
        const int8_t *q_ = q;                                                                      \
        int8_t x_;                                                                                 \
        __asm__(KS_AVR_MAC("a0") KS_AVR_NEXT KS_AVR_MAC("a1") KS_AVR_NEXT KS_AVR_MAC("a2")         \
                    KS_AVR_NEXT KS_AVR_MAC("a3") "clr r1"                                          \
                : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [q] "+x"(q_),        \
                  [x] "=&d"(x_)                                                                    \
                : [w] "d"((int8_t)(weight)), [stride] "r"(stride), [zero] "r"((uint8_t)0)          \
                : "r0");                                                                           \
    } while (0)
#else
typedef int32_t ks_near;
#define KS_FOUR(weight)                                                                            \
    do {                                                                                           \
        const int8_t w_ = (int8_t)(weight);                                                        \
        const int8_t *q_ = q;                                                                      \
        a0 += w_ * *q_;                                                                            \
        q_ += stride;                                                                              \
        a1 += w_ * *q_;                                                                            \
        q_ += stride;                                                                              \
        a2 += w_ * *q_;                                                                            \
        q_ += stride;                                                                              \
        a3 += w_ * *q_;                                                                            \
    } while (0)
#endif

#define KS_DENSE(MAC)                                                                              \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            uint16_t n = g->length;                                                                \
            do {                                                                                   \
                MAC(*p);                                                                           \
                p++;                                                                               \
                q += g->step;                                                                      \
            } while (--n);                                                                         \
            q += g->gap;                                                                           \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
    } while (0)

/* The next m bits. */
#define KS_BITS(MAC)                                                                               \
    const int8_t *end = q + (uint16_t)(m * step);                                                  \
    uint8_t now = (uint8_t)(bits & ((1u << m) - 1u));                                              \
    bits = (uint8_t)(bits >> m);                                                                   \
    while (now) {                                                                                  \
        if (now & 1) {                                                                             \
            MAC(*p);                                                                               \
            p++;                                                                                   \
        }                                                                                          \
        now = (uint8_t)(now >> 1);                                                                 \
        q += step;                                                                                 \
    }                                                                                              \
    q = end;

#define KS_BITMAP(MAC)                                                                             \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        uint8_t bits = c->bits, left = c->left;                                                    \
        const uint16_t step = g->step;                                                             \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            uint16_t n = g->length;                                                                \
            do {                                                                                   \
                uint8_t m;                                                                         \
                if (left == 0) {                                                                   \
                    bits = *p++;                                                                   \
                    left = 8;                                                                      \
                }                                                                                  \
                m = (uint8_t)(left < n ? left : n);                                                 \
                n = (uint16_t)(n - m);                                                             \
                left = (uint8_t)(left - m);                                                        \
                KS_BITS(MAC)                                                                       \
            } while (n);                                                                           \
            q += g->gap;                                                                           \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
        c->bits = bits;                                                                            \
        c->left = left;                                                                            \
    } while (0)

#define KS_NEXT_PAIR                                                                               \
    if (left) {                                                                                    \
        zeros = bits;                                                                              \
        left = 0;                                                                                  \
    } else {                                                                                       \
        bits = *p++;                                                                               \
        zeros = bits & 15;                                                                         \
        bits = bits >> 4;                                                                          \
        left = 1;                                                                                  \
    }

#define KS_NEXT_BYTE zeros = *p++;

#define KS_RUNS(MAC, NEXT)                                                                         \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        uint16_t zeros = c->zeros;                                                                 \
        uint8_t bits = c->bits, left = c->left;                                                    \
        const uint16_t step = g->step;                                                             \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            uint16_t n = g->length;                                                                \
            while (zeros < n) {                                                                    \
                n = (uint16_t)(n - zeros - 1);                                                     \
                q += (uint16_t)(zeros * step);                                                     \
                MAC(*p);                                                                           \
                p++;                                                                               \
                q += step;                                                                         \
                NEXT                                                                               \
            }                                                                                      \
            zeros = (uint16_t)(zeros - n);                                                         \
            q += (uint16_t)(n * step) + g->gap;                                                    \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
        c->zeros = zeros;                                                                          \
        c->bits = bits;                                                                            \
        c->left = left;                                                                            \
    } while (0)

#if defined(__AVR__)
/* The same as KS_BITMAP(KS_FOUR) where taps are neighbours. */
#define KS_AVR_BITMAP                                                                              \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        uint8_t bits = c->bits, left = c->left;                                                    \
        const uint16_t back = (uint16_t)(3 * stride);                                              \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            uint16_t n = g->length;                                                                \
            do {                                                                                   \
                uint8_t m;                                                                         \
                int8_t w_, x_;                                                                     \
                if (left == 0) {                                                                   \
                    bits = *p++;                                                                   \
                    left = 8;                                                                      \
                }                                                                                  \
                m = (uint8_t)(left < n ? left : n);                                                 \
                n = (uint16_t)(n - m);                                                             \
                left = (uint8_t)(left - m);                                                        \
                __asm__("1: lsr %[bits]\n\t"                                                       \
                        "brcc 2f\n\t"                                                              \
                        "lpm %[w], Z+\n\t" KS_AVR_MAC("a0") KS_AVR_NEXT KS_AVR_MAC("a1") KS_AVR_NEXT\
                            KS_AVR_MAC("a2") KS_AVR_NEXT KS_AVR_MAC("a3")                          \
                        "sub r26, %A[back]\n\t"                                                    \
                        "sbc r27, %B[back]\n\t"                                                    \
                        "2: adiw r26, 1\n\t"                                                       \
                        "dec %[m]\n\t"                                                             \
                        "brne 1b\n\t"                                                              \
                        "clr r1"                                                                   \
                        : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [q] "+x"(q), \
                          [p] "+z"(p), [bits] "+r"(bits), [m] "+r"(m), [w] "=&d"(w_), [x] "=&d"(x_)\
                        : [stride] "r"(stride), [back] "r"(back), [zero] "r"((uint8_t)0)           \
                        : "r0");                                                                   \
            } while (n);                                                                           \
            q += g->gap;                                                                           \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
        c->bits = bits;                                                                            \
        c->left = left;                                                                            \
    } while (0)
#define KS_BITMAP4                                                                                 \
    do {                                                                                           \
        if (g->step == 1) {                                                                        \
            KS_AVR_BITMAP;                                                                         \
        } else {                                                                                   \
            KS_BITMAP(KS_FOUR);                                                                    \
        }                                                                                          \
    } while (0)
#else
#define KS_BITMAP4 KS_BITMAP(KS_FOUR)
#endif

#define KS_DEFINE(NAME, BODY1, BODY4)                                                              \
    KS_KERNEL int32_t ks_dot_##NAME(ks_cursor *c, const int8_t *q, const ks_shape *g, int32_t a0)  \
    {                                                                                              \
        BODY1;                                                                                     \
        return a0;                                                                                 \
    }                                                                                              \
    KS_KERNEL void ks_dots_##NAME(ks_cursor *c, const int8_t *q, const ks_shape *g, int32_t *a)    \
    {                                                                                              \
        const uint16_t stride = g->stride;                                                         \
        ks_near a0 = (ks_near)a[0], a1 = a0, a2 = a0, a3 = a0;                                     \
        BODY4;                                                                                     \
        a[0] = a0;                                                                                 \
        a[1] = a1;                                                                                 \
        a[2] = a2;                                                                                 \
        a[3] = a3;                                                                                 \
    }                                                                                              \
    /* A row of one channel of a convolution whose sums may need 32 bits. */                       \
    KS_KERNEL void ks_conv_wide_##NAME(ks_cursor *c, const int8_t *window, const ks_shape *g,      \
                                       const ks_channel *k, int8_t *line)                          \
    {                                                                                              \
        const ks_cursor start = *c;                                                                \
        uint16_t x;                                                                                \
        for (x = 0; x < g->width; x++) {                                                           \
            *c = start;                                                                            \
            line[x] = ks_rescale(ks_dot_##NAME(c, window, g, k->bias), k);                         \
            window += g->stride;                                                                   \
        }                                                                                          \
    }                                                                                              \
    /* The same for sums of at most 24 bits. */                                                    \
    KS_KERNEL void ks_conv_##NAME(ks_cursor *c, const int8_t *window, const ks_shape *g,           \
                                  const ks_channel *k, int8_t *line)                               \
    {                                                                                              \
        const ks_cursor start = *c;                                                                \
        const uint16_t width = g->width;                                                           \
        uint16_t x = 0;                                                                            \
        if (width < 4) {                                                                           \
            ks_conv_wide_##NAME(c, window, g, k, line);                                            \
            return;                                                                                \
        }                                                                                          \
        while (x < width) {                                                                        \
            int32_t sums[4];                                                                       \
            uint8_t i;                                                                             \
            if (x + 4u > width) { /* the last four overlap the ones before */                      \
                x = (uint16_t)(width - 4u);                                                        \
            }                                                                                      \
            *c = start;                                                                            \
            sums[0] = k->bias;                                                                     \
            ks_dots_##NAME(c, window + (uint16_t)(x * g->stride), g, sums);                        \
            for (i = 0; i < 4; i++) {                                                              \
                line[x++] = ks_rescale(sums[i], k);                                                \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    /* The values of a line into the accumulators of a fully connected layer. */                   \
    KS_KERNEL void ks_accumulate_##NAME(ks_cursor *c, const int8_t *line, uint16_t n,              \
                                        int32_t *sums, uint16_t outputs)                           \
    {                                                                                              \
        ks_shape g; /* no initializer, which would take RAM on an AVR */                           \
        g.rows = 1;                                                                                \
        g.length = n;                                                                              \
        g.gap = 0;                                                                                 \
        g.step = 1;                                                                                \
        do {                                                                                       \
            *sums = ks_dot_##NAME(c, line, &g, *sums);                                             \
            sums++;                                                                                \
        } while (--outputs);                                                                       \
    }

KS_DEFINE(dense, KS_DENSE(KS_ONE), KS_DENSE(KS_FOUR))
KS_DEFINE(bitmap, KS_BITMAP(KS_ONE), KS_BITMAP4)
KS_DEFINE(runs, KS_RUNS(KS_ONE, KS_NEXT_PAIR), KS_RUNS(KS_FOUR, KS_NEXT_PAIR))
KS_DEFINE(bytes, KS_RUNS(KS_ONE, KS_NEXT_BYTE), KS_RUNS(KS_FOUR, KS_NEXT_BYTE))

static inline ks_cursor ks_begin_dense(ks_bytes p)
{
    ks_cursor c = {0, 0, 0, 0};
    c.next = p;
    return c;
}

static inline ks_cursor ks_begin_bitmap(ks_bytes p)
{
    return ks_begin_dense(p);
}

static inline ks_cursor ks_begin_runs(ks_bytes p)
{
    ks_cursor c = ks_begin_dense(p + 1);
    c.zeros = *p & 15;
    c.bits = *p >> 4;
    c.left = 1;
    return c;
}

static inline ks_cursor ks_begin_bytes(ks_bytes p)
{
    ks_cursor c = ks_begin_dense(p + 1);
    c.zeros = *p;
    return c;
}

/* ---- where the values of a channel go; `step` is the distance of neighbours ---- */

KS_KERNEL void ks_store(int8_t *to, const int8_t *line, uint16_t n, uint16_t step)
{
    do {
        *to = *line++;
        to += step;
    } while (--n);
}

KS_KERNEL void ks_load(int8_t *line, const int8_t *from, uint16_t n, uint16_t step)
{
    do {
        *line++ = *from;
        from += step;
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
        const int8_t *q = window;
        int8_t most = INT8_MIN;
        uint16_t i, j;
        for (i = 0; i < g->rows; i++) {
            for (j = 0; j < g->length; j++) {
                most = *q > most ? *q : most;
                q += g->step;
            }
            q += g->gap;
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
        const int8_t *q = window;
        const int16_t end = (int16_t)(begin + (int16_t)g->length);
        const int16_t from = begin > left ? begin : left, to = end < right ? end : right;
        int32_t sum = 0;
        uint16_t i, j;
        for (i = 0; i < g->rows; i++) {
            for (j = 0; j < g->length; j++) {
                sum += *q;
                q += g->step;
            }
            q += g->gap;
        }
        *line++ = ks_clamped(ks_quotient(sum, (int16_t)(rows * (to - from))), low, high);
        window += g->stride;
        begin = (int16_t)(begin + pixels);
    }
}

KS_KERNEL void ks_depth_maximum(const int8_t *pixel, uint16_t n, uint16_t channels, int8_t *line)
{
    do {
        int8_t most = INT8_MIN;
        uint16_t i = channels;
        do {
            most = *pixel > most ? *pixel : most;
            pixel++;
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
