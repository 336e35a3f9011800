// Normalisation of floating dtypes. Statistics (mean, rstd) are float64 for float64 data, else float32. Weights, biases
// and running statistics have their own dtype wdtype. Pointers to weights, biases and results of a backward may be
// NULL. All arrays are contiguous. scratch has the size that the function's ..._scratch twin returns.
#ifndef PLAITK_NORM_H
#define PLAITK_NORM_H

#include <stdint.h>

#include "../../../include/plait_pool.h"

// Normalises each of `rows` rows of n elements, multiplies by w[n] and adds b[n]. With rms, it divides by the root mean
// square and does not use the mean. mean[rows] and rstd[rows] may be NULL. The backward adds arrived, if it is not
// NULL, to dx.
void plaitk_norm_layer_forward(plait_pool *pool, int dtype, int wdtype, int rms, const void *x, const void *w,
                               const void *b, void *y, void *mean, void *rstd, int64_t rows, int64_t n, double eps,
                               void *scratch);
void plaitk_norm_layer_backward(plait_pool *pool, int dtype, int wdtype, int rms, const void *x, const void *dy,
                                const void *w, const void *mean, const void *rstd, const void *arrived, void *dx, void *dw,
                                void *db, int64_t rows, int64_t n, void *scratch);
int64_t plaitk_norm_layer_scratch(int64_t rows, int64_t n);

// Normalises each of the `groups` groups of channels of each sample of x [batch, channels, inner]. mean and rstd have
// batch*groups elements.
void plaitk_norm_group_forward(plait_pool *pool, int dtype, int wdtype, const void *x, const void *w, const void *b,
                               void *y, void *mean, void *rstd, int64_t batch, int64_t channels, int64_t inner,
                               int64_t groups, double eps, void *scratch);
void plaitk_norm_group_backward(plait_pool *pool, int dtype, int wdtype, const void *x, const void *dy, const void *w,
                                const void *mean, const void *rstd, void *dx, void *dw, void *db, int64_t batch,
                                int64_t channels, int64_t inner, int64_t groups, void *scratch);
int64_t plaitk_norm_group_scratch(int64_t batch, int64_t channels, int64_t inner, int64_t groups);

// Normalises the channels of x [batch, channels, inner]: in training by the batch's statistics, otherwise by the
// running statistics, which have dtype wdtype too. mean and rstd [channels] get the statistics that were used, for the
// backward. var, which may be NULL, gets the variance of rstd.
void plaitk_norm_batch_forward(plait_pool *pool, int dtype, int wdtype, int training, const void *x, const void *w,
                               const void *b, const void *running_mean, const void *running_var, void *y, void *mean,
                               void *rstd, void *var, int64_t batch, int64_t channels, int64_t inner, double eps,
                               void *scratch);
void plaitk_norm_batch_backward(plait_pool *pool, int dtype, int wdtype, int training, const void *x, const void *dy,
                                const void *w, const void *mean, const void *rstd, void *dx, void *dw, void *db,
                                int64_t batch, int64_t channels, int64_t inner, void *scratch);
// Updates running statistics of dtype rdtype by mean and var, with momentum. mean and var belong to data of dtype
// `dtype`. var, of `count` values, is made unbiased first.
void plaitk_norm_batch_running(int dtype, int rdtype, const void *mean, const void *var, void *running_mean,
                               void *running_var, int64_t channels, double count, double momentum);
int64_t plaitk_norm_batch_scratch(int64_t batch, int64_t channels, int64_t inner);

#endif
