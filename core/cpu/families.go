package cpu

// The families of kernels, each of which registers itself.
import ()
