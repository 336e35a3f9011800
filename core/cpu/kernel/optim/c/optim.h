// Fused optimizer steps: one call updates a whole list of parameters and their states.
#ifndef PLAITK_OPTIM_H
#define PLAITK_OPTIM_H

#include "../../../include/plait_kernel.h"
#include "../../../include/plait_pool.h"

enum plaitk_rule {
  PLAITK_SGD = 0,
  PLAITK_MOMENTUM,
  PLAITK_ADAM,
  PLAITK_AMSGRAD,
  PLAITK_ADAMAX,
  PLAITK_NADAM,
  PLAITK_RADAM,
  PLAITK_ADAGRAD,
  PLAITK_ADADELTA,
  PLAITK_RMSPROP,
  PLAITK_RMSPROP_MOMENTUM,
  PLAITK_RMSPROP_CENTERED,
  PLAITK_RMSPROP_CENTERED_MOMENTUM,
  PLAITK_RPROP,
  PLAITK_LION,
  PLAITK_ASGD,
  PLAITK_RULES,
};

// Elements of a chunk.
#define PLAITK_OPTIM_CHUNK 16384

// The maximum number of states, and of float attributes, per parameter.
#define PLAITK_OPTIM_STATES 3
#define PLAITK_OPTIM_NUMBERS 10

// A parameter, its gradient and its states. The gradient has the parameter's dtype. States are float64 for a float64
// parameter and otherwise float32. All are contiguous with n elements. A 16-bit parameter may have a float32 master
// copy. Then the rule updates the copy, and the parameter gets its rounded value.
typedef struct {
  char *param;
  const char *grad;
  char *state[PLAITK_OPTIM_STATES];
  float *master;
  int64_t rule, dtype, n;
  int64_t first; // the parameter's first chunk; plaitk_optim_step sets it
} plaitk_optim_tensor;

// Updates count parameters, each by its rule. numbers has PLAITK_OPTIM_NUMBERS for each parameter; rules.h has their
// meaning.
void plaitk_optim_step(plait_pool *pool, plaitk_optim_tensor *tensors, int64_t count, const double *numbers);

// A contiguous tensor of a list.
typedef struct {
  char *data;
  int64_t dtype, n;
  int64_t first; // the tensor's first chunk; the functions below set it
} plaitk_optim_span;

// Returns the sum of |x|^p over a list of floating-point tensors, in float64. For p = inf it returns the largest |x|,
// for p = -inf the smallest. partial has a double for each chunk of each tensor.
double plaitk_optim_power_sum(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double p, double *partial);

// Multiplies a list of floating-point tensors by a factor. Each product is rounded once.
void plaitk_optim_scale(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double factor);

// Multiplies a list of floating-point tensors by a factor. Sets *found to 1 if an element was not finite.
void plaitk_optim_unscale(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double factor, float *found);

// Clamps a list of floating-point tensors to [-limit, limit]. NaN stays NaN.
void plaitk_optim_clamp(plait_pool *pool, plaitk_optim_span *spans, int64_t count, double limit);

#endif
