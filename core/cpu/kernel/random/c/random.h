// Random numbers. Each number is a function of (seed, offset) and the element's position; see plait_philox.h. Outputs
// are contiguous.
#ifndef PLAITK_RANDOM_H
#define PLAITK_RANDOM_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

enum plaitk_distribution {
  PLAITK_UNIFORM = 0,     // in [a, b)
  PLAITK_NORMAL = 1,      // mean a, standard deviation b
  PLAITK_EXPONENTIAL = 2, // rate a
  PLAITK_LOG_NORMAL = 3,  // exp of a normal with mean a, standard deviation b
  PLAITK_CAUCHY = 4,      // median a, scale b
  PLAITK_GEOMETRIC = 5,   // number of trials until the first success, of probability a
  PLAITK_TRUNC_NORMAL = 6, // mean a, standard deviation b, between c and d
};

typedef struct {
  int64_t distribution;
  uint64_t seed, offset;
  double a, b, c, d;
} plaitk_random;

// Writes the words of blocks of the sequence, with vectors of at most `bytes` bytes. For tests.
void plaitk_random_words(int64_t bytes, uint32_t *w, int64_t blocks, uint64_t seed, uint64_t counter);

// Fills n elements of a floating-point dtype. float64 uses two words per element (normals: four words per two
// elements), other dtypes one. 16-bit floats are computed in float32 and rounded.
void plaitk_random_fill(plait_pool *pool, const plaitk_random *r, void *out, int64_t dtype, int64_t n);

// Fills n elements of any dtype with integers from low to low + range - 1. A range of 0 stands for 2^64. Each element
// uses two words.
void plaitk_random_integers(plait_pool *pool, uint64_t seed, uint64_t offset, void *out, int64_t dtype, int64_t n, int64_t low,
                            uint64_t range);

// Fills n elements of any dtype with 1 with probability p, else 0. If `probabilities` is not NULL, it has p for each
// element, in dtype pdtype. Returns -1, or the first position where p is outside [0, 1]; then nothing is written.
int64_t plaitk_random_bernoulli(plait_pool *pool, uint64_t seed, uint64_t offset, void *out, int64_t dtype, int64_t n, double p,
                                const void *probabilities, int64_t pdtype);

// Fills n elements of a floating-point dtype with Poisson variables of the rates, which have that dtype: inf where a rate is. The first two
// words are the seed of a sequence of its own, of which each element has as many blocks as it needs. Returns -1, or the first position of a
// rate that is negative or NaN, which *bad then is.
int64_t plaitk_random_poisson(plait_pool *pool, uint64_t seed, uint64_t offset, void *out, const void *rates, int64_t dtype, int64_t n,
                              double *bad);

// Writes a permutation of 0, ..., n-1: the order of n random 64-bit keys. Equal keys keep the order of their positions.
// scratch has plaitk_random_permutation_scratch(n) bytes.
int64_t plaitk_random_permutation_scratch(int64_t n);
void plaitk_random_permutation(plait_pool *pool, uint64_t seed, uint64_t offset, int64_t *out, int64_t n, void *scratch);

// Samples `count` positions from each of `rows` rows of n weights (dtype float16 to float64). With replacement, sample
// j of row r is inverse transform sampling with uniform number r count + j. Without, weight i of row r gets the key
// -log(u) / weight from uniform number r n + i, and the samples are the positions of the smallest keys in order
// (Efraimidis and Spirakis 2006). A uniform number uses two words. scratch has plaitk_random_multinomial_scratch bytes.
// Returns -1, or the first bad row and a *reason: 1 for a weight that is negative or not finite, 2 for no positive
// weight, 3 for fewer positive weights than samples without replacement.
int64_t plaitk_random_multinomial_scratch(int64_t rows, int64_t n, int64_t count);
int64_t plaitk_random_multinomial(plait_pool *pool, uint64_t seed, uint64_t offset, int64_t *out, const void *weights, int64_t dtype,
                                  int64_t rows, int64_t n, int64_t count, int64_t replacement, void *scratch, int64_t *reason);

#endif
