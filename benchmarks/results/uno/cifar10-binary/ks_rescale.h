/* Sums become int8 as in TFLite Micro: doubled high multiplication and shift, both rounded. */
#ifndef KS_RESCALE_H
#define KS_RESCALE_H

#include <stdint.h>

#if defined(__AVR__)
#define KS_FLASH __flash /* tables stay in program memory */
typedef uint16_t ks_size; /* of pointers */
typedef uint8_t ks_bits;
#else
#define KS_FLASH
typedef uint32_t ks_size; /* of registers */
typedef uint32_t ks_bits;
#endif

#if defined(__GNUC__)
#define KS_KERNEL static __attribute__((noinline, unused))
#else
#define KS_KERNEL static inline
#endif

typedef const KS_FLASH uint8_t *ks_bytes;

/* How the sums of one channel become int8. */
typedef struct {
    int32_t bias;
    int32_t multiplier;
    int8_t shift;
    int8_t zero;
    int8_t low;
    int8_t high;
} ks_channel;

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
    /* By the byte: an AVR shifts 32 bits by 30 in 210 cycles. */
    return (high << 1) + (uint8_t)(((uint8_t)((uint8_t)(rest >> 24) >> 6) + 1) >> 1);
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

/* The absolute value of ks_multiply(…), or any number above 255 if it is above 255. */
#if defined(__AVR__)
static inline uint16_t ks_scaled(uint32_t size, int8_t shift)
{
    uint16_t small;
    for (; shift < -8; shift = (int8_t)(shift + 8)) { /* bytes move for free, bits do not */
        size >>= 8;
    }
    if (size > UINT16_MAX) {
        return UINT16_MAX; /* more than 255 after at most 8 shifts */
    }
    small = (uint16_t)size;
    if (shift < 0) {
        small = (uint16_t)(small >> (uint8_t)(-shift - 1));
        small = (uint16_t)((small >> 1) + (small & 1));
    }
    return small;
}
#else
static inline uint32_t ks_scaled(uint32_t size, int8_t shift)
{
    return shift < 0 ? ((size >> (-shift - 1)) + 1) >> 1 : size;
}
#endif

/* The same as ks_multiply, plus the zero point, as int8. */
KS_KERNEL int8_t ks_rescale(int32_t sum, const ks_channel *k)
{
    const int8_t shift = k->shift;
    uint8_t negative = 0;
    const uint32_t size = ks_magnitude(sum, shift, &negative);
    const ks_size small = ks_scaled(ks_high(size, (uint32_t)k->multiplier, negative), shift);
    int16_t value;
    if (small > 255) {
        return negative ? k->low : k->high;
    }
    value = (int16_t)((negative ? -(int16_t)small : (int16_t)small) + k->zero);
    return value < k->low ? k->low : value > k->high ? k->high : (int8_t)value;
}

/* n of them. */
KS_KERNEL void ks_rescale_sums(int8_t *line, const int32_t *sums, uint8_t n, const ks_channel *k)
{
    const uint8_t is_relu = k->shift <= 0 && k->low == k->zero;
    uint8_t i;
    for (i = 0; i < n; i++) {
        /* Behind a ReLU more than half of all sums end here, without a call. */
        line[i] = is_relu && sums[i] <= 0 ? k->low : ks_rescale(sums[i], k);
    }
}

#endif
