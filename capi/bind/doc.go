// Package bind is Plait as flat functions over integers, for other languages: the extension module of the Python package
// wraps it, and the C functions of package capi call it.
//
// Handles name tensors and other objects (see package handle). A function that makes one returns its handle, or a
// negative status: [Busy], or the handle of an error, whose kind and message [ErrorKind] and [ErrorMessage] tell and which
// [ErrorRelease] frees. Functions without a result return 0 or a negative status: gopy gives those that
// return nothing at all another form. Lists go by address and length.
//
// Most functions only enqueue work and never wait, so that a caller may hold a lock of its own, such as Python's global
// interpreter lock. Those marked plait:waits may wait; call them without such a lock.
//
// The functions in files named gen_ are made from the registry of operations by go generate.
package bind

// The types of arguments and results. They are aliases, so that generators see what an integer means.
type (
	// Tensor is the handle of a tensor; 0 stands for none.
	Tensor = int64
	// Object is the handle of an object that is not a tensor.
	Object = int64
	// Ints is the address of an array of int64.
	Ints = int64
	// Floats is the address of an array of float64.
	Floats = int64
	// Tensors is the address of an array of handles of tensors.
	Tensors = int64
	// Bytes is the address of bytes.
	Bytes = int64
	// IntsOut is the address of an array of int64 that the function writes.
	IntsOut = int64
	// FloatsOut is the address of an array of float64 that the function writes.
	FloatsOut = int64
	// TensorsOut is the address of an array of handles of tensors that the function writes.
	TensorsOut = int64
	// BytesOut is the address of bytes that the function writes.
	BytesOut = int64
	// DType is the number of a dtype, as [DTypeName] knows it; -1 stands for the default.
	DType = int64
	// Device is the number of an open device, as [DeviceOpen] returns it; -1 stands for the default.
	Device = int64
	// Status is 0 or positive on success, and otherwise negative.
	Status = int64
)
