// Package backend implements what all devices share: a stream's queue with its events and waits, failures of calls, and the caching
// allocator. A kind of device embeds [Device] and [Stream] and adds an [Allocator], which provides memory, and a [Runner], which runs calls.
//
// The path of a call:
//   - stream.go: Launch numbers the call and enqueues it, or runs it at once
//   - worker.go: the device's worker takes it from the queue
//   - failure.go: it runs unless an input failed; if it fails, its outputs and the stream get the error
//   - event.go, wait.go: waiters continue
//
// Memory: class.go rounds sizes to classes, cache.go keeps freed blocks for later calls, scarcity.go frees memory when the device has run
// out.
package backend
