// A newer glibc gives hypot a new version, which differs in errno alone. With the old one, a module that was built there
// also loads where glibc is older. setup.py's link sends calls of hypot here.
#include <features.h>

#ifdef __GLIBC__
__asm__(".symver plait_old_hypot, hypot@GLIBC_2.2.5");
double plait_old_hypot(double x, double y);
double __wrap_hypot(double x, double y);

double __wrap_hypot(double x, double y) { return plait_old_hypot(x, y); }
#endif
