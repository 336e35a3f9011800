package main

import (
	"fmt"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
)

// links measures the copies between the host and devices that it cannot address.
func (b *bench) links() error {
	for _, name := range b.devices {
		if d, err := core.OpenDevice(name); err != nil || d.HostAccessible() {
			return err
		}
	}
	b.table("copies alone, GB/s of each device", "to the host", "from the host", "both in turn")
	bytes := b.mib << 20
	var rates []any
	for _, both := range [][2]bool{{true, false}, {false, true}, {true, true}} {
		seconds, err := b.copies(bytes, both[0], both[1])
		if err != nil {
			return err
		}
		n := float64(bytes)
		if both[0] && both[1] {
			n *= 2
		}
		rates = append(rates, n/seconds/1e9)
	}
	b.row(append([]any{size(bytes)}, rates...)...)
	return nil
}

// collectives measures all-reduces beside copies of the same bytes.
func (b *bench) collectives() error {
	if err := b.links(); err != nil {
		return err
	}
	b.table("all-reduce, float32", "us", "GB/s, 2 x bytes / time", "copies alone, GB/s", "ratio")
	for _, bytes := range []int{4, 64 << 10, 1 << 20, b.mib << 20} {
		seconds, err := b.allReduce(bytes)
		if err != nil {
			return err
		}
		rate := 2 * float64(bytes) / seconds / 1e9
		if bytes < 1<<20 {
			b.row(size(bytes), seconds*1e6, rate, "", "")
			continue
		}
		copies, err := b.copies(bytes, true, true)
		if err != nil {
			return err
		}
		yardstick := 2 * float64(bytes) / copies / 1e9
		b.row(size(bytes), seconds*1e6, rate, yardstick, rate/yardstick)
	}
	return nil
}

func size(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprint(bytes>>20, " MiB")
	case bytes >= 1<<10:
		return fmt.Sprint(bytes>>10, " KiB")
	}
	return fmt.Sprint(bytes, " B")
}

// rounds is how often something is measured that takes so long.
func rounds(bytes int) int { return max(24, min(2000, (64<<20)/max(bytes, 1))) }

// allReduce returns the seconds that an all-reduce takes on rank 0.
func (b *bench) allReduce(bytes int) (seconds float64, err error) {
	err = b.spawn(func(r *collective.Rank) error {
		x := op.ToDevice(core.FromSlice(make([]float32, bytes/4)), r.Device)
		s, err := best(rounds(bytes), func() error { return r.World.AllReduce(x, collective.Sum).Wait() })
		if r.Rank == 0 {
			seconds = s
		}
		return err
	})
	return seconds, err
}

// copies returns the seconds in which every rank at once copies as many bytes as it reads and writes in an all-reduce: on the
// CPU within the memory of tensors, on a device that the host cannot address to the host, from it, or both; if the devices reach each other,
// from the next device.
func (b *bench) copies(bytes int, there, back bool) (float64, error) {
	var works []func() error
	if there && back && b.linked() {
		for i, name := range b.devices {
			d, err := core.OpenDevice(name)
			if err != nil {
				return 0, err
			}
			next, err := core.OpenDevice(b.devices[(i+1)%len(b.devices)])
			if err != nil {
				return 0, err
			}
			from := op.ZerosWith([]int{bytes / 4}, op.TensorOptions{Device: next}).Keep()
			defer from.Release()
			works = append(works, func() error {
				to := op.ToDevice(from, d)
				defer to.Release()
				return to.Wait()
			})
		}
		return together(bytes, works)
	}
	for i, name := range b.devices {
		d, err := core.OpenDevice(name)
		if err != nil {
			return 0, err
		}
		if d.HostAccessible() {
			kind := core.Uint8
			o := op.TensorOptions{DType: &kind, Device: d}
			from, to := op.Full([]int{bytes}, core.Num(1), o).Keep(), op.ZerosWith([]int{bytes}, o).Keep()
			defer from.Release()
			defer to.Release()
			works = append(works, func() error {
				if err := op.CopyInPlace(to, from).Err(); err != nil {
					return err
				}
				return d.Synchronize()
			})
			continue
		}
		s := d.NewStream(i)
		stager, ok := s.(core.Stager)
		if !ok {
			return 0, fmt.Errorf("%v has no stages", d)
		}
		m, err := s.Alloc(bytes)
		if err != nil {
			return 0, err
		}
		works = append(works, func() error { return across(stager, m, bytes, there, back) })
		defer s.Close()
	}
	return together(bytes, works)
}

// linked reports whether all devices reach each other.
func (b *bench) linked() bool {
	for _, name := range b.devices {
		for _, other := range b.devices {
			d, err := core.OpenDevice(name)
			e, failed := core.OpenDevice(other)
			if err != nil || failed != nil || d != e && !core.Reaches(d, e) {
				return false
			}
		}
	}
	return len(b.devices) > 1
}

// together returns the seconds that all works take at once.
func together(bytes int, works []func() error) (float64, error) {
	return best(rounds(bytes), func() error {
		errs := make([]error, len(works))
		var wg sync.WaitGroup
		for i, w := range works {
			wg.Go(func() { errs[i] = w() })
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// across copies memory to the host, which does nothing with it, and as many bytes from the host.
func across(s core.Stager, m core.Memory, bytes int, there, back bool) error {
	const chunk = 8 << 20
	var fetched []core.Fetched
	var last core.Event
	for at := 0; at < bytes; at += chunk {
		region := []core.Region{{Memory: m, Offset: at, Size: min(chunk, bytes-at)}}
		if there {
			f, err := s.Fetch(region, nil)
			if err != nil {
				return err
			}
			fetched = append(fetched, f)
		}
		if back {
			g, err := s.Stage(region)
			if err != nil {
				return err
			}
			last = g.Store(nil)
		}
	}
	if last != nil {
		last.Wait()
	}
	for _, f := range fetched {
		if err := f.Wait(); err != nil {
			return err
		}
		f.Release()
	}
	return nil
}
