/* Sums of products with weights that are decoded as they are read.
 *
 * The values of a channel are neighbours in a window, so that neighbouring outputs of a convolution
 * read neighbouring values: one weight is decoded for four of them. */
#ifndef KS_KERNELS_H
#define KS_KERNELS_H

#include "ks_rescale.h"

/* Where a stream of weights is read next. */
typedef struct {
    ks_bytes next;
    uint16_t zeros; /* runs, bytes: zeros before the next stored weight */
    uint8_t bits;   /* bitmap: bits not yet used; runs: the other run of the pair */
    uint8_t left;   /* bitmap: how many bits; runs: whether the other run is next */
} ks_cursor;

/* How a window lies in memory. */
typedef struct {
    uint16_t rows;   /* of taps */
    uint16_t length; /* taps of a row */
    uint16_t gap;    /* bytes from a row's first tap to the next row's */
    uint16_t step;   /* bytes from tap to tap */
    uint16_t stride; /* bytes from an output's window to the next one's */
    uint16_t width;  /* outputs of a row */
} ks_shape;

/* ---- one weight: for one sum, for four sums `stride` bytes apart, for four neighbours ---- */

#define KS_ONE(weight)                                                                             \
    do {                                                                                           \
        const int8_t w_ = (int8_t)(weight);                                                        \
        a0 += w_ * q[0];                                                                           \
    } while (0)

#if defined(__AVR__)
/* Sums of 24 bits, which convolutions are checked for when they are generated. */
__extension__ typedef __int24 ks_near;
#define KS_AVR_MAC(sum, place)                                                                     \
    "ld %[x], " place "\n\t"                                                                       \
    "muls %[w], %[x]\n\t"                                                                          \
    "add %A[" sum "], r0\n\t"                                                                      \
    "adc %B[" sum "], r1\n\t"                                                                      \
    "adc %C[" sum "], %[zero]\n\t"                                                                 \
    "sbrc r1, 7\n\t"                                                                               \
    "dec %C[" sum "]\n\t"
#define KS_AVR_NEXT "add r26, %A[stride]\n\tadc r27, %B[stride]\n\t"
#define KS_AVR_NEAR                                                                                \
    KS_AVR_MAC("a0", "X+") KS_AVR_MAC("a1", "X+") KS_AVR_MAC("a2", "X+") KS_AVR_MAC("a3", "X+")
#define KS_AVR_SUMS [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3)
#define KS_FAR(weight)                                                                             \
    do {                                                                                           \
        const int8_t *q_ = q;                                                                      \
        int8_t x_;                                                                                 \
        __asm__(KS_AVR_MAC("a0", "X") KS_AVR_NEXT KS_AVR_MAC("a1", "X") KS_AVR_NEXT                \
                    KS_AVR_MAC("a2", "X") KS_AVR_NEXT KS_AVR_MAC("a3", "X") "clr r1"               \
                : KS_AVR_SUMS, [q] "+x"(q_), [x] "=&d"(x_)                                         \
                : [w] "d"((int8_t)(weight)), [stride] "r"(stride), [zero] "r"((uint8_t)0)          \
                : "r0");                                                                           \
    } while (0)
#define KS_NEAR(weight)                                                                            \
    do {                                                                                           \
        const int8_t *q_ = q;                                                                      \
        int8_t x_;                                                                                 \
        __asm__(KS_AVR_NEAR "clr r1"                                                               \
                : KS_AVR_SUMS, [q] "+x"(q_), [x] "=&d"(x_)                                         \
                : [w] "d"((int8_t)(weight)), [zero] "r"((uint8_t)0)                                \
                : "r0");                                                                           \
    } while (0)
#else
typedef int32_t ks_near;
#define KS_FAR(weight)                                                                             \
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
#define KS_NEAR(weight)                                                                            \
    do {                                                                                           \
        const int8_t w_ = (int8_t)(weight);                                                        \
        a0 += w_ * q[0];                                                                           \
        a1 += w_ * q[1];                                                                           \
        a2 += w_ * q[2];                                                                           \
        a3 += w_ * q[3];                                                                           \
    } while (0)
#define KS_NEAR6(weight)                                                                           \
    do {                                                                                           \
        const int8_t w_ = (int8_t)(weight);                                                        \
        a0 += w_ * q[0];                                                                           \
        a1 += w_ * q[1];                                                                           \
        a2 += w_ * q[2];                                                                           \
        a3 += w_ * q[3];                                                                           \
        a4 += w_ * q[4];                                                                           \
        a5 += w_ * q[5];                                                                           \
    } while (0)
#endif

/* Where there are registers for it, six neighbours share a weight's decoding. */
#if defined(__AVR__) || defined(__ARM_ARCH_6M__)
#define KS_SIX 0
#else
#define KS_SIX 1
#endif

/* ---- formats ---- */

#define KS_DENSE(MAC)                                                                              \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        const int8_t *row = q;                                                                     \
        const ks_size step = g->step;                                                              \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            ks_size n = g->length;                                                                 \
            do {                                                                                   \
                MAC(*p);                                                                           \
                p++;                                                                               \
                q += step;                                                                         \
            } while (--n);                                                                         \
            row += g->gap;                                                                         \
            q = row;                                                                               \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
    } while (0)

/* The taps whose bits are set in `now`; the first is at q. */
#if defined(__thumb2__)
#define KS_BITS(MAC)                                                                               \
    const int8_t *const first = q;                                                                 \
    while (now) {                                                                                  \
        q = first + (uint32_t)__builtin_ctz(now) * step;                                           \
        __asm__("" : "+r"(q)); /* one address that all loads of MAC share */                       \
        MAC(*p);                                                                                   \
        p++;                                                                                       \
        now &= now - 1;                                                                            \
    }
#elif defined(__ARM_ARCH_6M__)
#define KS_BITS(MAC)                                                                               \
    if (now) {                                                                                     \
        q -= step;                                                                                 \
        do {                                                                                       \
            __asm__(".syntax unified\n"                                                            \
                    "1: add %0, %2\n"                                                              \
                    "lsrs %1, %1, #1\n"                                                            \
                    "bcc 1b\n"                                                                     \
                    : "+l"(q), "+l"(now)                                                           \
                    : "r"(step)                                                                    \
                    : "cc");                                                                       \
            MAC(*p);                                                                               \
            p++;                                                                                   \
        } while (now);                                                                             \
    }
#else
#define KS_BITS(MAC)                                                                               \
    while (now) {                                                                                  \
        if (now & 1) {                                                                             \
            MAC(*p);                                                                               \
            p++;                                                                                   \
        }                                                                                          \
        now >>= 1;                                                                                 \
        q += step;                                                                                 \
    }
#endif

#define KS_BITMAP(MAC)                                                                             \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        const int8_t *row = q;                                                                     \
        uint8_t bits = c->bits, left = c->left;                                                    \
        const ks_size step = g->step;                                                              \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            ks_size n = g->length;                                                                 \
            do {                                                                                   \
                const int8_t *end;                                                                 \
                ks_bits now;                                                                       \
                uint8_t m;                                                                         \
                if (left == 0) {                                                                   \
                    bits = *p++;                                                                   \
                    left = 8;                                                                      \
                }                                                                                  \
                m = (uint8_t)(left < n ? left : n);                                                \
                n = (ks_size)(n - m);                                                              \
                left = (uint8_t)(left - m);                                                        \
                end = q + (ks_size)(m * step);                                                     \
                now = (ks_bits)(bits & ((1u << m) - 1u));                                          \
                bits = (uint8_t)(bits >> m);                                                       \
                KS_BITS(MAC)                                                                       \
                q = end;                                                                           \
            } while (n);                                                                           \
            row += g->gap;                                                                         \
            q = row;                                                                               \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
        c->bits = bits;                                                                            \
        c->left = left;                                                                            \
    } while (0)

/* The same where every row is of whole bytes. */
#define KS_BITMAP8(MAC)                                                                            \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        const int8_t *row = q;                                                                     \
        const ks_size step = g->step;                                                              \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            ks_size n = g->length / 8u;                                                            \
            do {                                                                                   \
                const int8_t *const end = q + (ks_size)(8u * step);                                \
                ks_bits now = *p++;                                                                \
                KS_BITS(MAC)                                                                       \
                q = end;                                                                           \
            } while (--n);                                                                         \
            row += g->gap;                                                                         \
            q = row;                                                                               \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
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
        const int8_t *row = q;                                                                     \
        ks_size zeros = c->zeros;                                                                  \
        uint8_t bits = c->bits, left = c->left;                                                    \
        const ks_size step = g->step;                                                              \
        uint16_t rows = g->rows;                                                                   \
        do {                                                                                       \
            ks_size n = g->length;                                                                 \
            while (zeros < n) {                                                                    \
                n = (ks_size)(n - zeros - 1u);                                                     \
                q += (ks_size)(zeros * step);                                                      \
                MAC(*p);                                                                           \
                p++;                                                                               \
                q += step;                                                                         \
                NEXT                                                                               \
            }                                                                                      \
            zeros = (ks_size)(zeros - n);                                                          \
            row += g->gap;                                                                         \
            q = row;                                                                               \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
        c->zeros = (uint16_t)zeros;                                                                \
        c->bits = bits;                                                                            \
        c->left = left;                                                                            \
    } while (0)

#if defined(__AVR__)
/* m bits, the lowest first, for four neighbouring sums. */
#define KS_AVR_BITS                                                                                \
    int8_t w_, x_;                                                                                 \
    __asm__("1: lsr %[bits]\n\t"                                                                   \
            "brcc 2f\n\t"                                                                          \
            "lpm %[w], Z+\n\t" KS_AVR_NEAR                                                         \
            "add r26, %A[rest]\n\t"                                                                \
            "adc r27, %B[rest]\n\t"                                                                \
            "dec %[m]\n\t"                                                                         \
            "brne 1b\n\t"                                                                          \
            "rjmp 3f\n\t"                                                                          \
            "2: add r26, %A[step]\n\t"                                                             \
            "adc r27, %B[step]\n\t"                                                                \
            "dec %[m]\n\t"                                                                         \
            "brne 1b\n\t"                                                                          \
            "3: clr r1"                                                                            \
            : KS_AVR_SUMS, [q] "+x"(q), [p] "+z"(p), [bits] "+r"(bits), [m] "+r"(m),               \
              [w] "=&d"(w_), [x] "=&d"(x_)                                                         \
            : [step] "r"(step), [rest] "r"(rest), [zero] "r"((uint8_t)0)                           \
            : "r0");
#define KS_NEAR_BITMAP                                                                             \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        const int8_t *row = q;                                                                     \
        uint8_t bits = c->bits, left = c->left;                                                    \
        const uint16_t step = g->step, rest = (uint16_t)(step - 4u);                               \
        uint8_t rows = (uint8_t)g->rows;                                                           \
        do {                                                                                       \
            uint16_t n = g->length;                                                                \
            do {                                                                                   \
                uint8_t m;                                                                         \
                if (left == 0) {                                                                   \
                    bits = *p++;                                                                   \
                    left = 8;                                                                      \
                }                                                                                  \
                m = (uint8_t)(left < n ? left : n);                                                \
                n = (uint16_t)(n - m);                                                             \
                left = (uint8_t)(left - m);                                                        \
                {                                                                                  \
                    KS_AVR_BITS                                                                    \
                }                                                                                  \
            } while (n);                                                                           \
            row += g->gap;                                                                         \
            q = row;                                                                               \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
        c->bits = bits;                                                                            \
        c->left = left;                                                                            \
    } while (0)
#define KS_NEAR_BITMAP8                                                                            \
    do {                                                                                           \
        ks_bytes p = c->next;                                                                      \
        const int8_t *row = q;                                                                     \
        const uint16_t step = g->step, rest = (uint16_t)(step - 4u);                               \
        uint8_t rows = (uint8_t)g->rows;                                                           \
        do {                                                                                       \
            uint8_t n = (uint8_t)(g->length / 8u);                                                 \
            do {                                                                                   \
                uint8_t bits = *p++, m = 8;                                                        \
                KS_AVR_BITS                                                                        \
            } while (--n);                                                                         \
            row += g->gap;                                                                         \
            q = row;                                                                               \
        } while (--rows);                                                                          \
        c->next = p;                                                                               \
    } while (0)
#else
#define KS_NEAR_BITMAP KS_BITMAP(KS_NEAR)
#define KS_NEAR_BITMAP8 KS_BITMAP8(KS_NEAR)
#endif

/* ---- a row of one channel of a convolution; fully connected layers ---- */

#define KS_DEFINE(NAME, BODY)                                                                      \
    KS_KERNEL int32_t ks_dot_##NAME(ks_cursor *c, const int8_t *q, const ks_shape *g, int32_t a0)  \
    {                                                                                              \
        BODY;                                                                                      \
        return a0;                                                                                 \
    }                                                                                              \
    /* Sums may need 32 bits. */                                                                   \
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

#define KS_DEFINE_FOUR(NAME, BODY)                                                                 \
    KS_KERNEL void ks_four_##NAME(ks_cursor *c, const int8_t *q, const ks_shape *g, int32_t *a)    \
    {                                                                                              \
        const ks_size stride = g->stride;                                                          \
        ks_near a0 = (ks_near)a[0], a1 = a0, a2 = a0, a3 = a0;                                     \
        BODY;                                                                                      \
        a[0] = a0;                                                                                 \
        a[1] = a1;                                                                                 \
        a[2] = a2;                                                                                 \
        a[3] = a3;                                                                                 \
        (void)stride; /* neighbours need none */                                                   \
    }

#if KS_SIX
#define KS_DEFINE_SIX(NAME, BODY)                                                                  \
    KS_KERNEL void ks_six_##NAME(ks_cursor *c, const int8_t *q, const ks_shape *g, int32_t *a)     \
    {                                                                                              \
        int32_t a0 = a[0], a1 = a0, a2 = a0, a3 = a0, a4 = a0, a5 = a0;                            \
        BODY;                                                                                      \
        a[0] = a0;                                                                                 \
        a[1] = a1;                                                                                 \
        a[2] = a2;                                                                                 \
        a[3] = a3;                                                                                 \
        a[4] = a4;                                                                                 \
        a[5] = a5;                                                                                 \
    }
#else
#define KS_DEFINE_SIX(NAME, BODY)
#endif

/* At least four outputs, whose sums have at most 24 bits: a few at a time. */
#define KS_DEFINE_CONV(NAME, HAS_SIX, SIX)                                                         \
    KS_KERNEL void ks_conv_##NAME(ks_cursor *c, const int8_t *window, const ks_shape *g,           \
                                  const ks_channel *k, int8_t *line)                               \
    {                                                                                              \
        const ks_cursor start = *c;                                                                \
        const uint16_t width = g->width;                                                           \
        uint16_t x = 0;                                                                            \
        while (x < width) {                                                                        \
            int32_t sums[HAS_SIX ? 6 : 4];                                                         \
            uint8_t n = HAS_SIX && x + 6u <= width ? 6 : 4;                                        \
            if (x + 4u > width) { /* the last four overlap the ones before */                      \
                x = (uint16_t)(width - 4u);                                                        \
            }                                                                                      \
            *c = start;                                                                            \
            sums[0] = k->bias;                                                                     \
            if (n == 6) {                                                                          \
                SIX(c, window + (ks_size)(x * g->stride), g, sums);                                \
            } else {                                                                               \
                ks_four_##NAME(c, window + (ks_size)(x * g->stride), g, sums);                     \
            }                                                                                      \
            ks_rescale_sums(line + x, sums, n, k);                                                 \
            x = (uint16_t)(x + n);                                                                 \
        }                                                                                          \
    }

#define KS_DEFINE_FAR(NAME) KS_DEFINE_CONV(NAME, 0, ks_four_##NAME)
#if KS_SIX
#define KS_DEFINE_NEAR(NAME) KS_DEFINE_CONV(NAME, 1, ks_six_##NAME)
#else
#define KS_DEFINE_NEAR(NAME) KS_DEFINE_CONV(NAME, 0, ks_four_##NAME)
#endif

KS_DEFINE(dense, KS_DENSE(KS_ONE))
KS_DEFINE(bitmap, KS_BITMAP(KS_ONE))
KS_DEFINE(runs, KS_RUNS(KS_ONE, KS_NEXT_PAIR))
KS_DEFINE(bytes, KS_RUNS(KS_ONE, KS_NEXT_BYTE))
KS_DEFINE_FOUR(far_dense, KS_DENSE(KS_FAR))
KS_DEFINE_FOUR(far_bitmap, KS_BITMAP(KS_FAR))
KS_DEFINE_FOUR(far_bitmap8, KS_BITMAP8(KS_FAR))
KS_DEFINE_FOUR(far_runs, KS_RUNS(KS_FAR, KS_NEXT_PAIR))
KS_DEFINE_FOUR(far_bytes, KS_RUNS(KS_FAR, KS_NEXT_BYTE))
KS_DEFINE_FOUR(near_dense, KS_DENSE(KS_NEAR))
KS_DEFINE_FOUR(near_bitmap, KS_NEAR_BITMAP)
KS_DEFINE_FOUR(near_bitmap8, KS_NEAR_BITMAP8)
KS_DEFINE_FOUR(near_runs, KS_RUNS(KS_NEAR, KS_NEXT_PAIR))
KS_DEFINE_FOUR(near_bytes, KS_RUNS(KS_NEAR, KS_NEXT_BYTE))
KS_DEFINE_SIX(near_dense, KS_DENSE(KS_NEAR6))
KS_DEFINE_SIX(near_bitmap, KS_BITMAP(KS_NEAR6))
KS_DEFINE_SIX(near_bitmap8, KS_BITMAP8(KS_NEAR6))
KS_DEFINE_SIX(near_runs, KS_RUNS(KS_NEAR6, KS_NEXT_PAIR))
KS_DEFINE_SIX(near_bytes, KS_RUNS(KS_NEAR6, KS_NEXT_BYTE))
KS_DEFINE_FAR(far_dense)
KS_DEFINE_FAR(far_bitmap)
KS_DEFINE_FAR(far_bitmap8)
KS_DEFINE_FAR(far_runs)
KS_DEFINE_FAR(far_bytes)
KS_DEFINE_NEAR(near_dense)
KS_DEFINE_NEAR(near_bitmap)
KS_DEFINE_NEAR(near_bitmap8)
KS_DEFINE_NEAR(near_runs)
KS_DEFINE_NEAR(near_bytes)

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

#endif
