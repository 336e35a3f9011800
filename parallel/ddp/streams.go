package ddp

import (
	"github.com/plait-ml/plait/core"
)

// streamsPerDevice is the number of communication streams per device. Buckets take turns on them. With one stream, unpacking a bucket's
// result would delay the launch of the next bucket.
const streamsPerDevice = 4

// A streamKey identifies a communication stream.
type streamKey struct {
	device core.Device
	index  int
}

// onCommStream runs fn on a communication stream of dev, so that the stream of backward does not wait for other ranks. It frees
// temporary tensors of fn.
func (r *Reducer) onCommStream(dev core.Device, index int, fn func() error) (err error) {
	key := streamKey{dev, index % streamsPerDevice}
	s := r.streams[key]
	if s == nil {
		s = dev.NewStream(core.CurrentContext().Rank())
		r.streams[key] = s
	}
	core.NoGrad(func() {
		core.WithStream(s, func() {
			core.WithCategory(core.Communication, func() {
				core.Tidy(func() { err = fn() })
			})
		})
	})
	return err
}
