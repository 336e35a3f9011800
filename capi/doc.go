// Package capi exports package bind as C functions, which plait.h declares. Command libplait makes a shared library of
// them; the extension module of the Python package carries them too.
package capi
