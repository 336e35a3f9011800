// Included first by every file of vector loops: floating-point exceptions are not observed here, and only without them
// does the compiler turn conditions and roundings inside a loop into vector instructions. Results stay the same.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
