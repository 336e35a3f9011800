package meta

import (
	"time"

	"github.com/plait-ml/plait/core"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: core.MetaKind, Open: open, Count: func() int { return 1 }})
}

// device is the one there is.
type device struct {
	ordinal int
	journal journal
}

func open(index, ordinal int) (core.Device, error) {
	if index != 0 {
		return nil, core.Errorf(core.DeviceError, "device", "there is one meta device, got meta:%d", index)
	}
	return &device{ordinal: ordinal, journal: journal{values: map[uint64]*value{}}}, nil
}

// String implements [core.Device].
func (d *device) String() string { return core.MetaKind }

// Kind implements [core.Device].
func (d *device) Kind() string { return core.MetaKind }

// Index implements [core.Device].
func (d *device) Index() int { return 0 }

// Ordinal implements [core.Device].
func (d *device) Ordinal() int { return d.ordinal }

// NewStream implements [core.Device].
func (d *device) NewStream(rank int) core.Stream {
	return &stream{device: d, rank: rank, counts: core.NewCounters(d.ordinal, rank)}
}

// Supports implements [core.Device].
func (d *device) Supports(core.KernelID) bool { return true }

// Synchronize implements [core.Device].
func (d *device) Synchronize() error { return nil }

// EmptyCache implements [core.Device].
func (d *device) EmptyCache() {}

// Reserved implements [core.Device].
func (d *device) Reserved() int { return 0 }

// HostAccessible implements [core.Device].
func (d *device) HostAccessible() bool { return false }

// A stream writes down what is launched on it.
type stream struct {
	device *device
	rank   int
	counts core.Counters

	calls core.Calls
}

// Device implements [core.Stream].
func (s *stream) Device() core.Device { return s.device }

// Rank implements [core.Stream].
func (s *stream) Rank() int { return s.rank }

// Counters implements [core.Stream].
func (s *stream) Counters() core.Counters { return s.counts }

// Alloc implements [core.Stream].
func (s *stream) Alloc(bytes int) (core.Memory, error) {
	return core.Memory{Handle: s.device.journal.begin(bytes), Size: bytes}, nil
}

// Free implements [core.Stream].
func (s *stream) Free(m core.Memory, _ ...core.Event) { s.device.journal.end(m.Handle) }

// Begin implements [core.Stream].
func (s *stream) Begin(k core.KernelID, op string) *core.Call { return s.calls.Get(s, k, op) }

// Launch implements [core.Stream].
func (s *stream) Launch(c *core.Call) {
	if err := c.Err(); err != nil {
		c.Fail(err)
	} else {
		c.Place()
		s.device.journal.record(c)
	}
	s.Abandon(c)
}

// Abandon implements [core.Stream].
func (s *stream) Abandon(c *core.Call) {
	c.Clear()
	s.calls.Put(c)
}

// Record implements [core.Stream].
func (s *stream) Record() core.Event { return event{s} }

// Next implements [core.Stream].
func (s *stream) Next() core.Event { return event{s} }

// Locked implements [core.Stream].
func (s *stream) Locked(fn func()) { fn() }

// Wait implements [core.Stream].
func (s *stream) Wait(core.Event) {}

// Upload implements [core.Stream].
func (s *stream) Upload(m core.Memory, offset int, src []byte) {
	s.device.journal.upload(m, offset, src)
}

// Download implements [core.Stream]. Nobody calls it: tensors without values are not read.
func (s *stream) Download([]byte, core.Memory, int) {}

// Synchronize implements [core.Stream].
func (s *stream) Synchronize() error { return nil }

// TakeError implements [core.Stream].
func (s *stream) TakeError() error { return nil }

// Crowded implements [core.Stream].
func (s *stream) Crowded() bool { return false }

// MakeRoom implements [core.Stream].
func (s *stream) MakeRoom() {}

// Close implements [core.Stream].
func (s *stream) Close() error { return nil }

// event is any point in a stream that has nothing to run.
type event struct{ stream *stream }

// Done implements [core.Event].
func (event) Done() bool { return true }

// Wait implements [core.Event].
func (event) Wait() {}

// WaitFor implements [core.Event].
func (event) WaitFor(time.Duration) bool { return true }

// Stream implements [core.Event].
func (e event) Stream() core.Stream { return e.stream }
