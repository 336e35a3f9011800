// Package backend holds what the devices have in common: the queue of a stream with its events and waits, what happens to calls that
// fail, and the caching allocator. A kind of device embeds [Device] and [Stream] and adds what is its own: where memory comes from
// ([Allocator]) and how calls run ([Runner]).
//
// A call on its way:
//   - stream.go: Launch gives it its number and its place in the queue, or runs it at once
//   - worker.go: the device's worker takes it from the queue
//   - failure.go: it runs unless an input failed; its failure is that of its outputs and of the stream
//   - event.go, wait.go: whoever waits for it goes on
//
// Memory: class.go rounds sizes, cache.go keeps what was freed for calls that come later, scarcity.go says what to do when the
// device has none left.
package backend
