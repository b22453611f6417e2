# The draw of `policies.draw` in C: BLAKE2b (RFC 7693) with a digest of 8 bytes, of one block of up to 128 bytes.

from libc.stdint cimport uint8_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    static const uint64_t BLAKE2B_BEGIN[8] = {
        0x6a09e667f3bcc908ULL, 0xbb67ae8584caa73bULL, 0x3c6ef372fe94f82bULL, 0xa54ff53a5f1d36f1ULL,
        0x510e527fade682d1ULL, 0x9b05688c2b3e6c1fULL, 0x1f83d9abfb41bd6bULL, 0x5be0cd19137e2179ULL};
    static const uint8_t BLAKE2B_WORDS[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0}};

    static inline uint64_t turned(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

    static inline void mixed(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
        v[a] += v[b] + x; v[d] = turned(v[d] ^ v[a], 32); v[c] += v[d]; v[b] = turned(v[b] ^ v[c], 24);
        v[a] += v[b] + y; v[d] = turned(v[d] ^ v[a], 16); v[c] += v[d]; v[b] = turned(v[b] ^ v[c], 63);
    }

    /* The state before any text, for a use of at most 16 bytes. */
    static void draw_begin(const uint8_t *use, size_t size, uint64_t *begun) {
        uint8_t block[64] = {8, 0, 1, 1}; /* bytes of the digest, no key, one leaf, one level */
        uint64_t words[8];
        memcpy(block + 48, use, size > 16 ? 16 : size);
        memcpy(words, block, 64);
        for (int i = 0; i < 8; i++) begun[i] = BLAKE2B_BEGIN[i] ^ words[i];
    }

    /* A number in [0, 1) of a text of at most 128 bytes. */
    static double draw_of(const uint8_t *text, size_t size, const uint64_t *begun) {
        uint64_t m[16] = {0}, v[16];
        memcpy(m, text, size);
        memcpy(v, begun, 64);
        memcpy(v + 8, BLAKE2B_BEGIN, 64);
        v[12] ^= (uint64_t)size;
        v[14] = ~v[14];
        for (int round = 0; round < 12; round++) {
            const uint8_t *w = BLAKE2B_WORDS[round % 10];
            mixed(v, 0, 4, 8, 12, m[w[0]], m[w[1]]); mixed(v, 1, 5, 9, 13, m[w[2]], m[w[3]]);
            mixed(v, 2, 6, 10, 14, m[w[4]], m[w[5]]); mixed(v, 3, 7, 11, 15, m[w[6]], m[w[7]]);
            mixed(v, 0, 5, 10, 15, m[w[8]], m[w[9]]); mixed(v, 1, 6, 11, 12, m[w[10]], m[w[11]]);
            mixed(v, 2, 7, 8, 13, m[w[12]], m[w[13]]); mixed(v, 3, 4, 9, 14, m[w[14]], m[w[15]]);
        }
        return (double)((begun[0] ^ v[0] ^ v[8]) >> 11) * 0x1p-53;
    }
    """
    void draw_begin(const uint8_t* use, size_t size, uint64_t* begun) noexcept nogil
    double draw_of(const uint8_t* text, size_t size, const uint64_t* begun) noexcept nogil

cdef enum:
    MOST_DRAWN = 128  # bytes of a text: one block
