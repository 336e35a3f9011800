// Every file of vector loops includes this first. It says that floating-point exceptions are not observed; only then
// does the compiler vectorise conditions and roundings in a loop. Results do not change.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif
