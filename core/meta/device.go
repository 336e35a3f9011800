package meta

import (
	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/backend"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: core.MetaKind, Open: open, Count: func() int { return 1 }})
}

// device is the one there is.
type device struct {
	*backend.Device
	journal journal
}

func open(index, ordinal int) (core.Device, error) {
	if index != 0 {
		return nil, core.Errorf(core.DeviceError, "device", "there is one meta device, got meta:%d", index)
	}
	return &device{Device: backend.NewDevice(core.MetaKind, index, ordinal), journal: journal{values: map[uint64]*value{}}}, nil
}

// String implements [core.Device].
func (d *device) String() string { return core.MetaKind }

// NewStream implements [core.Device].
func (d *device) NewStream(rank int) core.Stream {
	s := &stream{journal: &d.journal}
	s.Open(s, backend.Options{Device: d, Base: d.Device, Rank: rank})
	return s
}

// Supports implements [core.Device].
func (d *device) Supports(core.KernelID) bool { return true }

// EmptyCache implements [core.Device].
func (d *device) EmptyCache() {}

// Reserved implements [core.Device].
func (d *device) Reserved() int { return 0 }

// HostAccessible implements [core.Device].
func (d *device) HostAccessible() bool { return false }

// A stream writes down what is launched on it. Nothing is queued or waited for.
type stream struct {
	backend.Stream
	journal *journal
}

// Alloc implements [core.Stream].
func (s *stream) Alloc(bytes int) (core.Memory, error) {
	return core.Memory{Handle: s.journal.begin(bytes), Size: bytes}, nil
}

// Free implements [core.Stream].
func (s *stream) Free(m core.Memory, _ ...core.Event) { s.journal.end(m.Handle) }

// Launch implements [core.Stream].
func (s *stream) Launch(c *core.Call) {
	if err := c.Err(); err != nil {
		c.Fail(err)
	} else {
		c.Place()
		s.journal.record(c)
	}
	s.Abandon(c)
}

// Next implements [core.Stream]: every point is passed.
func (s *stream) Next() core.Event { return s.Record() }

// Wait implements [core.Stream].
func (s *stream) Wait(core.Event) {}

// Upload implements [core.Stream].
func (s *stream) Upload(m core.Memory, offset int, src []byte) { s.journal.upload(m, offset, src) }

// Download implements [core.Stream]. Nobody calls it: tensors without values are not read.
func (s *stream) Download([]byte, core.Memory, int) {}
