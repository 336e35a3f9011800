// The optimizers' update rules over n elements. step.c includes this file for each REAL, with REAL, NAME, SQRT and ABS
// defined. x has the float attributes of the parameter. All rules start with
//   x[0] the sign of the gradient: -1 to maximize
//   x[1] weight decay that is added to the gradient (coupled)
//   x[2] factor of the parameter before the update (decoupled weight decay)
// Below, g is the gradient after x[0] and x[1].

#define RULE(name) PLAIT_CLONES static void NAME(name)(REAL *restrict p, const REAL *restrict grad, REAL *restrict a, REAL *restrict b, REAL *restrict c, int64_t n, const REAL *x)
#define UNUSED(...) (void)sizeof((const void *[]){__VA_ARGS__})
#define EACH _Pragma("omp simd") for (int64_t i = 0; i < n; i++)
#define GRADIENT                   \
  REAL w = p[i];                   \
  REAL g = sign * grad[i] + l2 * w; \
  w *= keep;
#define COMMON const REAL sign = x[0], l2 = x[1], keep = x[2];

// x[3] learning rate.
RULE(sgd) {
  UNUSED(a, b, c);
  COMMON
  const REAL rate = x[3];
  EACH {
    GRADIENT
    p[i] = w - rate * g;
  }
}

// The momentum buffer becomes x[4] buffer + x[5] g. The parameter changes by -x[3] (x[6] g + x[7] buffer).
RULE(momentum) {
  UNUSED(b, c);
  COMMON
  const REAL rate = x[3], decay = x[4], take = x[5], direct = x[6], through = x[7];
  EACH {
    GRADIENT
    REAL v = decay * a[i] + take * g;
    a[i] = v;
    p[i] = w - rate * (direct * g + through * v);
  }
}

// x[3] learning rate divided by the first bias correction, x[4] 1 - beta1, x[5] beta2, x[6] 1 - beta2, x[7] square root
// of the second bias correction, x[8] epsilon.
RULE(adam) {
  UNUSED(c);
  COMMON
  const REAL rate = x[3], take1 = x[4], beta2 = x[5], take2 = x[6], root = x[7], eps = x[8];
  EACH {
    GRADIENT
    REAL m = a[i] + take1 * (g - a[i]);
    REAL v = beta2 * b[i] + take2 * g * g;
    a[i] = m;
    b[i] = v;
    p[i] = w - rate * m / (SQRT(v) / root + eps);
  }
}

// Like adam, with the running maximum of the second moment in the denominator.
RULE(amsgrad) {
  COMMON
  const REAL rate = x[3], take1 = x[4], beta2 = x[5], take2 = x[6], root = x[7], eps = x[8];
  EACH {
    GRADIENT
    REAL m = a[i] + take1 * (g - a[i]);
    REAL v = beta2 * b[i] + take2 * g * g;
    REAL most = LARGER(c[i], v);
    a[i] = m;
    b[i] = v;
    c[i] = most;
    p[i] = w - rate * m / (SQRT(most) / root + eps);
  }
}

// x[3] learning rate divided by the bias correction, x[4] 1 - beta1, x[5] beta2, x[6] epsilon.
RULE(adamax) {
  UNUSED(c);
  COMMON
  const REAL rate = x[3], take1 = x[4], beta2 = x[5], eps = x[6];
  EACH {
    GRADIENT
    REAL m = a[i] + take1 * (g - a[i]);
    REAL u = LARGER(beta2 * b[i], ABS(g) + eps);
    a[i] = m;
    b[i] = u;
    p[i] = w - rate * m / u;
  }
}

// x[3] factor of the gradient, x[4] 1 - beta1, x[5] beta2, x[6] 1 - beta2, x[7] second bias correction, x[8] epsilon, x[9] factor
// of the first moment.
RULE(nadam) {
  UNUSED(c);
  COMMON
  const REAL direct = x[3], take1 = x[4], beta2 = x[5], take2 = x[6], correction = x[7], eps = x[8], through = x[9];
  EACH {
    GRADIENT
    REAL m = a[i] + take1 * (g - a[i]);
    REAL v = beta2 * b[i] + take2 * g * g;
    a[i] = m;
    b[i] = v;
    p[i] = w - (direct * g + through * m) / (SQRT(v / correction) + eps);
  }
}

// x[3] factor of the first moment, x[4] 1 - beta1, x[5] beta2, x[6] 1 - beta2, x[7] square root of the second bias
// correction, or 0 if the variance is not tractable, x[8] epsilon.
RULE(radam) {
  UNUSED(c);
  COMMON
  const REAL rate = x[3], take1 = x[4], beta2 = x[5], take2 = x[6], root = x[7], eps = x[8];
  const REAL flat = root == 0 ? 1 : 0;
  EACH {
    GRADIENT
    REAL m = a[i] + take1 * (g - a[i]);
    REAL v = beta2 * b[i] + take2 * g * g;
    a[i] = m;
    b[i] = v;
    p[i] = w - rate * m * (flat + root / (SQRT(v) + eps));
  }
}

// x[3] learning rate, x[4] epsilon.
RULE(adagrad) {
  UNUSED(b, c);
  COMMON
  const REAL rate = x[3], eps = x[4];
  EACH {
    GRADIENT
    REAL s = a[i] + g * g;
    a[i] = s;
    p[i] = w - rate * g / (SQRT(s) + eps);
  }
}

// x[3] learning rate, x[4] rho, x[5] 1 - rho, x[6] epsilon.
RULE(adadelta) {
  UNUSED(c);
  COMMON
  const REAL rate = x[3], rho = x[4], take = x[5], eps = x[6];
  EACH {
    GRADIENT
    REAL s = rho * a[i] + take * g * g;
    REAL step = SQRT(b[i] + eps) / SQRT(s + eps) * g;
    a[i] = s;
    b[i] = rho * b[i] + take * step * step;
    p[i] = w - rate * step;
  }
}

// x[3] learning rate, x[4] alpha, x[5] 1 - alpha, x[6] epsilon, x[7] momentum.
RULE(rmsprop) {
  UNUSED(b, c);
  COMMON
  const REAL rate = x[3], alpha = x[4], take = x[5], eps = x[6];
  EACH {
    GRADIENT
    REAL s = alpha * a[i] + take * g * g;
    a[i] = s;
    p[i] = w - rate * g / (SQRT(s) + eps);
  }
}

RULE(rmsprop_momentum) {
  UNUSED(c);
  COMMON
  const REAL rate = x[3], alpha = x[4], take = x[5], eps = x[6], decay = x[7];
  EACH {
    GRADIENT
    REAL s = alpha * a[i] + take * g * g;
    REAL v = decay * b[i] + g / (SQRT(s) + eps);
    a[i] = s;
    b[i] = v;
    p[i] = w - rate * v;
  }
}

// The variance of the gradients is their mean square minus the square of their mean. Rounding can make it negative.
RULE(rmsprop_centered) {
  UNUSED(c);
  COMMON
  const REAL rate = x[3], alpha = x[4], take = x[5], eps = x[6];
  EACH {
    GRADIENT
    REAL s = alpha * a[i] + take * g * g;
    REAL m = b[i] + take * (g - b[i]);
    a[i] = s;
    b[i] = m;
    p[i] = w - rate * g / (SQRT(LARGER(s - m * m, (REAL)0)) + eps);
  }
}

RULE(rmsprop_centered_momentum) {
  COMMON
  const REAL rate = x[3], alpha = x[4], take = x[5], eps = x[6], decay = x[7];
  EACH {
    GRADIENT
    REAL s = alpha * a[i] + take * g * g;
    REAL m = b[i] + take * (g - b[i]);
    REAL v = decay * c[i] + g / (SQRT(LARGER(s - m * m, (REAL)0)) + eps);
    a[i] = s;
    b[i] = m;
    c[i] = v;
    p[i] = w - rate * v;
  }
}

// x[3] eta minus, x[4] eta plus, x[5] and x[6] the smallest and largest step size. a is the previous gradient and b the
// step size. If the gradient changed its sign, the step size shrinks and the step is skipped.
RULE(rprop) {
  UNUSED(c);
  COMMON
  const REAL minus = x[3], plus = x[4], least = x[5], most = x[6];
  EACH {
    GRADIENT
    REAL turn = g * a[i];
    REAL factor = PICK(turn > 0, plus, PICK(turn < 0, minus, (REAL)1));
    REAL step = b[i] * factor;
    step = PICK(step < least, least, PICK(step > most, most, step));
    g = PICK(turn < 0, (REAL)0, g);
    a[i] = g;
    b[i] = step;
    p[i] = w - PICK(g > 0, step, PICK(g < 0, -step, g));
  }
}

// x[3] learning rate, x[4] 1 - beta1, x[5] 1 - beta2.
RULE(lion) {
  UNUSED(b, c);
  COMMON
  const REAL rate = x[3], take1 = x[4], take2 = x[5];
  EACH {
    GRADIENT
    REAL u = a[i] + take1 * (g - a[i]);
    a[i] = a[i] + take2 * (g - a[i]);
    p[i] = w - PICK(u > 0, rate, PICK(u < 0, -rate, u));
  }
}

// x[3] learning rate, x[4] weight of the new value in the running mean a.
RULE(asgd) {
  UNUSED(b, c);
  COMMON
  const REAL rate = x[3], part = x[4];
  EACH {
    GRADIENT
    REAL v = w - rate * g;
    a[i] = PICK(part == 1, v, a[i] + part * (v - a[i]));
    p[i] = v;
  }
}

static void (*const NAME(rules)[PLAITK_RULES])(REAL *restrict, const REAL *restrict, REAL *restrict, REAL *restrict, REAL *restrict, int64_t,
                                               const REAL *) = {
    NAME(sgd),     NAME(momentum), NAME(adam),    NAME(amsgrad),          NAME(adamax),           NAME(nadam),
    NAME(radam),   NAME(adagrad),  NAME(adadelta), NAME(rmsprop),         NAME(rmsprop_momentum), NAME(rmsprop_centered),
    NAME(rmsprop_centered_momentum), NAME(rprop), NAME(lion), NAME(asgd),
};

#undef RULE
#undef UNUSED
#undef EACH
#undef GRADIENT
#undef COMMON
