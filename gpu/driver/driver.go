// Package driver says what the runtime of GPU devices needs of a kind of GPU. Package webgpu implements it; another implementation is all
// that another kind of GPU takes, beside a translation of the programs' text where it does not speak WGSL.
package driver

import "time"

// A Driver finds the GPUs of one kind and opens them.
type Driver interface {
	// Name is what PLAIT_GPU_DRIVER calls it.
	Name() string
	// Adapters lists its GPUs, those that compute on the CPU included.
	Adapters() []Adapter
	// Missing says why there may be no adapters: a platform or a library that is not there. Empty if that is not known.
	Missing() string
	// Open opens the adapter with the given index in the list.
	Open(index int) (GPU, error)
	// Leave lets nothing into the drivers any more, as if all GPUs were lost and none could be opened, and waits until they have done what
	// they were given, ten seconds at most. It reports whether they have. From any goroutine.
	Leave() bool
}

// A GPU is an open device with its queue. Everything of it is called from one goroutine at a time, but Lists, which belong to streams.
type GPU interface {
	Limits() Limits
	// NewBuffer makes a buffer, a multiple of 4 bytes. mapped makes it one that the host can write to at once.
	NewBuffer(usage Usage, size int, mapped bool) (Buffer, error)
	// NewPipeline compiles a program, in WGSL, which binds so many buffers and sees so many bytes of parameters at binding 0.
	NewPipeline(source string, buffers, params int) (Pipeline, error)
	// NewGroup binds whole buffers, and windows of so many bytes into the buffer of parameters.
	NewGroup(params Buffer, window int, buffers []Buffer) (Group, error)
	// NewList returns an empty list of commands.
	NewList() List
	// Submit writes data to the buffer of parameters and runs the commands. s is done when the GPU is.
	Submit(l List, params Buffer, data []byte, s Status)
	// NewStatus returns a pending status.
	NewStatus() Status
	// Poll lets what has ended say so. Pause blocks the calling thread for about d.
	Poll()
	Pause(d time.Duration)
	// TakeError returns the first error since the last call, or nil.
	TakeError() error
	// Lost reports whether the device is gone for good. Lose has it count as that from now on.
	Lost() bool
	Lose(reason string)
	// Close gives the device up. Nothing may be in flight.
	Close()
}

// A Buffer is a piece of the GPU's memory, or of the host's that the GPU copies to or from.
type Buffer interface {
	Size() int
	// Map asks for the buffer's memory, for writing or for reading; it is there when the status is done.
	Map(write bool, s Status)
	// Mapped returns the memory of a mapped buffer; Unmap ends the host's access.
	Mapped() []byte
	Unmap()
	// Release gives the buffer back. No command that uses it may come later.
	Release()
}

// A Pipeline is a compiled program.
type Pipeline interface{ Release() }

// A Group is the buffers that a program binds.
type Group interface{ Release() }

// A List is commands in the order in which the GPU runs them.
type List interface {
	// Len returns the number of commands; Reset empties the list.
	Len() int
	Reset()
	// Dispatch adds a run of a pipeline over a grid of workgroups. params is the offset of its parameters, in bytes.
	Dispatch(p Pipeline, g Group, params, x, y, z uint32)
	// Copy adds a copy between buffers; offsets and size are multiples of 4.
	Copy(to Buffer, toOffset int, from Buffer, fromOffset, size int)
	// Clear adds the setting of bytes to zero; offset and size are multiples of 4, size not 0.
	Clear(to Buffer, offset, size int)
}

// A Status tells when something that the driver was asked for has ended.
type Status interface {
	// Done reports whether it has ended, and whether without success.
	Done() (done, failed bool)
	// Free gives the status back after it is done.
	Free()
}
