package handle

import "unsafe"

// addressOf returns where the elements of values lie.
func addressOf[T any](values []T) int64 { return int64(uintptr(unsafe.Pointer(&values[0]))) }
