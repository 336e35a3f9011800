#ifndef PLAITK_VMATH_H
#define PLAITK_VMATH_H

#include <stdint.h>

int plaitk_vmath_supported(int variant);
const char *plaitk_vmath_name(int function, int *arguments);
void plaitk_vmath_apply(int function, int variant, float *y, const float *a, const float *b, int64_t n);
void plaitk_vmath_reference(int function, double *y, const float *a, const float *b, int64_t n);
double plaitk_vmath_double(int function, double a, double b);
double plaitk_vmath_worst(const float *got, const double *want, int64_t n, double slack, int64_t *at);

// The functions that also vectorise for doubles. Their errors are measured against long double.
const char *plaitk_vmath_double_name(int function, int *arguments);
void plaitk_vmath_double_apply(int function, int variant, double *y, const double *a, const double *b, int64_t n);
double plaitk_vmath_double_worst(int function, const double *got, const double *a, const double *b, int64_t n, int64_t *at);

#endif
