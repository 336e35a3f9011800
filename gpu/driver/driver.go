// Package driver is the interface between the runtime of GPU devices and a GPU driver. Packages webgpu and cuda implement it. Another kind
// of GPU needs another implementation, and a [shader.Language] if it does not compile WGSL.
package driver

import (
	"time"

	"github.com/plait-ml/plait/gpu/shader"
)

// A Driver finds the GPUs of one kind and opens them.
type Driver interface {
	// Name returns the driver's value of PLAIT_GPU_DRIVER.
	Name() string
	// Adapters lists the driver's GPUs, software adapters included.
	Adapters() []Adapter
	// Missing returns why there may be no adapters, such as a library that is not installed; empty if that is not known.
	Missing() string
	// Open opens the adapter with the given index in the list.
	Open(index int) (GPU, error)
	// Shutdown makes all open GPUs count as lost and refuses to open others. It waits up to ten seconds for submitted work and reports
	// whether all of it has ended. It may be called from any goroutine.
	Shutdown() bool
}

// A GPU is an open device with its queue. It is used by one goroutine at a time, except for command lists, which belong to streams.
type GPU interface {
	Limits() Limits
	// NewBuffer allocates a buffer; size is a multiple of 4. With mapped, the buffer is mapped for writing at once.
	NewBuffer(usage Usage, size int, mapped bool) (Buffer, error)
	// Language is what programs are written in.
	Language() shader.Language
	// NewPipeline compiles a program.
	NewPipeline(p Program) (Pipeline, error)
	// NewBindGroup binds whole buffers, and a window of the parameter buffer with a dynamic offset. window is its size in bytes.
	NewBindGroup(params Buffer, window int, buffers []Buffer) (BindGroup, error)
	// NewCommandList returns an empty list of commands.
	NewCommandList() CommandList
	// Submit writes data to the parameter buffer and runs the commands. s is done when the GPU has run them.
	Submit(l CommandList, params Buffer, data []byte, s Status)
	// NewStatus returns a pending status.
	NewStatus() Status
	// Poll updates the statuses of operations that have ended. Pause blocks the calling thread for about d.
	Poll()
	Pause(d time.Duration)
	// TakeError returns the first error since the last call, or nil.
	TakeError() error
	// Lost reports whether the device is lost. Lose makes it count as lost.
	Lost() bool
	Lose(reason string)
	// Close releases the device. No operation may be in flight.
	Close()
}

// A Linked is a GPU that can share memory with other GPUs of its driver, and has more queues than the one of [GPU.Submit].
type Linked interface {
	GPU
	// Reach reports whether commands of this GPU may use the buffers of another, and makes them usable.
	Reach(other GPU) bool
	// NewQueue returns a queue that runs beside the GPU's other queues.
	NewQueue() (Queue, error)
	// Yield has [GPU.Submit] call a function now and then while it gives a long list, which may submit to the GPU's queues.
	Yield(to func())
	// After makes what [GPU.Submit] submits next run after what s was submitted with, by a GPU of this driver and to any queue. s may belong to
	// a GPU that another goroutine uses at the same time. It must not be freed meanwhile.
	After(s Status)
}

// A Sharing is a GPU whose buffers other processes can use.
type Sharing interface {
	GPU
	// Share returns a handle by which other processes find a buffer of NewBuffer.
	Share(b Buffer) ([]byte, error)
	// OpenShared returns the buffer of another process with the handle and the size. Its Release leaves the other process's as it is.
	OpenShared(handle []byte, size int) (Buffer, error)
}

// A Signaling is a GPU whose queues other processes can hold back and release.
type Signaling interface {
	Linked
	Sharing
	// Signals reports whether the GPU can do so. Its command lists are then each a [SignalList].
	Signals() bool
}

// A SignalList is a list whose commands write and await numbers in 32-bit words of buffers, which may be another process's. Offsets are
// multiples of 4.
type SignalList interface {
	CommandList
	// Signal appends a command that writes the number once the commands before it have run.
	Signal(b Buffer, offset int, number uint32)
	// Await appends a command that holds back those behind it until the word is at least the number, of which a word that has overflowed is
	// not short: number - word is not positive as an int32.
	Await(b Buffer, offset int, number uint32)
}

// A Queue runs lists of commands in order. It is used by the goroutine that uses its GPU.
type Queue interface {
	// Submit and After are those of [GPU] and [Linked].
	Submit(l CommandList, params Buffer, data []byte, s Status)
	After(s Status)
	// Release frees the queue once what was submitted has ended.
	Release()
}

// A Buffer is a buffer in the GPU's memory, or a staging buffer in the host's.
type Buffer interface {
	Size() int
	// Map begins to map the buffer for writing or for reading; it is mapped when the status is done.
	Map(write bool, s Status)
	// Mapped returns the memory of a mapped buffer. Unmap ends the host's access.
	Mapped() []byte
	Unmap()
	// Release frees the buffer. No later command may use it.
	Release()
}

// A Program is the text of a program, and what a driver needs to run it. Its parameters are at binding 0, its buffers behind them.
type Program struct {
	Name    string
	Source  string
	Buffers int // how many it binds
	Params  int // bytes of parameters
	Threads int // invocations of a workgroup
	Dynamic int // bytes of workgroup memory beside what the text declares, for languages that have such
}

// A Pipeline is a compiled program.
type Pipeline interface{ Release() }

// A BindGroup is the buffers that a program binds.
type BindGroup interface{ Release() }

// A CommandList is a list of commands, in the order in which the GPU runs them.
type CommandList interface {
	// Len returns the number of commands. Reset empties the list.
	Len() int
	Reset()
	// Dispatch appends a dispatch of x * y * z workgroups of a pipeline. params is the byte offset of its parameters.
	Dispatch(p Pipeline, g BindGroup, params, x, y, z uint32)
	// Copy appends a copy between buffers. Offsets and size are multiples of 4.
	Copy(to Buffer, toOffset int, from Buffer, fromOffset, size int)
	// Clear appends a command that sets bytes to zero. Offset and size are multiples of 4, and size is not 0.
	Clear(to Buffer, offset, size int)
}

// A Status tells when an operation of the driver has ended.
type Status interface {
	// Done reports whether the operation has ended, and whether it failed.
	Done() (done, failed bool)
	// Free releases the status after it is done.
	Free()
}
