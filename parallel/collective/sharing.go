package collective

// Devices that reach each other across processes. A process offers the others a block of the memory of each of its devices, and tries to open
// what they offer. Its calls then say which devices theirs reaches: all processes read the same calls, so they agree on how the data moves.

import (
	"slices"
	"sync"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/disk"
)

// A deviceID names a device of a world.
type deviceID struct{ process, ordinal int }

// A site is a call's device, if it shares its memory with other processes.
type site struct {
	device  deviceID
	reaches []deviceID // devices whose memory it can use
	signals bool       // the device can wait for those of other processes: see [exchange]
}

func (s *site) reachesAll(sites []*site) bool {
	return !slices.ContainsFunc(sites, func(o *site) bool { return !slices.Contains(s.reaches, o.device) })
}

// An offer is a block of the memory of another process's device. A process that can open it reaches the device.
type offer struct {
	device deviceID
	block  []byte
}

// sharing is what a process knows of the devices of a world of several processes.
type sharing struct {
	process int
	tell    func(message writer) // sends a message to all other processes
	machine string               // empty if unknown

	opening sync.Mutex // held while a block is opened

	mu     sync.Mutex
	closed bool
	own    []*ownDevice
	offers []offer
}

// An ownDevice is a device of this process.
type ownDevice struct {
	core.SharingDevice
	refuses bool // to share its memory
	reaches []deviceID
	tried   int                    // how many of the offers
	blocks  map[string]core.Memory // open blocks, by their handles
	signals signals
}

func newSharing(process int, tell func(message writer)) *sharing {
	return &sharing{process: process, tell: tell, machine: disk.Boot()}
}

// site returns the site of a call of a group; nil if other processes cannot use the memory of its tensors.
func (s *sharing) site(p *rankCall, m *rendezvous) *site {
	if p.stream == nil || s.machine == "" || p.op.ByNode {
		return nil
	}
	d, ok := p.stream.Device().(core.SharingDevice)
	if !ok || !d.Shares() || p.op.Op == Avg && p.op.Kind.reduces() && !d.Divides(float64(len(m.ranks))) {
		return nil
	}
	if p.splitsWord() { // two devices could write parts of it
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.find(d)
	if o == nil {
		if o = s.offer(d, p); o == nil {
			return nil
		}
	}
	if o.refuses {
		return nil
	}
	return &site{deviceID{s.process, d.Ordinal()}, slices.Clone(o.reaches), o.hasLane(laneKey{m.id, p.op.channel})}
}

// splitsWord reports whether a tensor begins within a 32-bit word.
func (p *rankCall) splitsWord() bool {
	splits := func(pieces []Piece, list []*core.Borrowed) bool {
		for i, b := range list {
			if b.Region(pieces[i].From, 0).Offset%4 != 0 {
				return true
			}
		}
		return false
	}
	return splits(p.op.Ins, p.ins) || splits(p.op.Outs, p.outs)
}

// memory returns memory of one of the call's tensors; false if all are empty.
func (p *rankCall) memory() (m core.Memory, ok bool) {
	for i, b := range p.ins {
		if p.op.Ins[i].N > 0 {
			return b.Region(0, 0).Memory, true
		}
	}
	for i, b := range p.outs {
		if p.op.Outs[i].N > 0 {
			return b.Region(0, 0).Memory, true
		}
	}
	return core.Memory{}, false
}

// find returns a device of this process that has been offered; nil if it has not.
func (s *sharing) find(d core.Device) *ownDevice {
	for _, o := range s.own {
		if o.SharingDevice == d {
			return o
		}
	}
	return nil
}

// offer offers the device of a call to the other processes. It returns nil if no tensor of the call has memory.
func (s *sharing) offer(d core.SharingDevice, p *rankCall) *ownDevice {
	m, ok := p.memory()
	if !ok {
		return nil
	}
	o := &ownDevice{SharingDevice: d, blocks: map[string]core.Memory{}}
	s.own = append(s.own, o)
	block, _, err := d.Share(m)
	if err != nil {
		o.refuses = true
		return o
	}
	for _, other := range s.own {
		if d.Reaches(other.SharingDevice) && other.Reaches(d) {
			o.reaches = append(o.reaches, deviceID{s.process, other.Ordinal()})
			if other != o {
				other.reaches = append(other.reaches, deviceID{s.process, d.Ordinal()})
			}
		}
	}
	w := writer{byte(offered)}
	w.bytes([]byte(s.machine))
	w.uint(uint64(d.Ordinal()))
	w.bytes(block)
	s.tell(w)
	go s.try()
	return o
}

// receive reads the offer of another process.
func (s *sharing) receive(from int, r *reader) {
	machine, ordinal, block := r.string(), int(r.uint()), r.bytes()
	if r.err != nil || machine != s.machine {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offers = append(s.offers, offer{deviceID{from, ordinal}, block})
	go s.try()
}

// try tries to open what has been offered.
func (s *sharing) try() {
	for {
		o, next := s.untried()
		if o == nil {
			return
		}
		if _, err := s.open(o, next.block); err == nil {
			s.mu.Lock()
			o.reaches = append(o.reaches, next.device)
			s.mu.Unlock()
		}
	}
}

// untried returns a device and an offer that it has not tried.
func (s *sharing) untried() (*ownDevice, offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.own {
		if o.tried < len(s.offers) && !o.refuses && !s.closed {
			o.tried++
			return o, s.offers[o.tried-1]
		}
	}
	return nil, offer{}
}

// open returns the memory of a block as a device of this process sees it.
func (s *sharing) open(o *ownDevice, block []byte) (core.Memory, error) {
	known := func() (core.Memory, bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		m, ok := o.blocks[string(block)]
		return m, ok
	}
	if m, ok := known(); ok {
		return m, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if m, ok := known(); ok {
		return m, nil
	}
	if s.closed {
		return core.Memory{}, errClosed
	}
	m, err := o.OpenShared(block)
	if err == nil {
		s.mu.Lock()
		o.blocks[string(block)] = m
		s.mu.Unlock()
	}
	return m, err
}

// device returns a device of this process that has been offered.
func (s *sharing) device(d core.Device) *ownDevice {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(d)
}

// close closes the blocks of other processes, unless transfers may still use them.
func (s *sharing) close(inUse bool) {
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, o := range s.own {
		if !inUse {
			for _, m := range o.blocks {
				o.CloseShared(m)
			}
			o.closeSignals()
		}
		o.blocks = nil
	}
}

// site writes the site of a call.
func (w *writer) site(s *site) {
	if w.bool(s != nil); s == nil {
		return
	}
	w.uint(uint64(s.device.ordinal))
	w.uint(uint64(len(s.reaches)))
	for _, d := range s.reaches {
		w.uint(uint64(d.process))
		w.uint(uint64(d.ordinal))
	}
	w.bool(s.signals)
}

// site reads the site of a call of a process.
func (r *reader) site(process int) *site {
	if !r.bool() {
		return nil
	}
	s := &site{device: deviceID{process, int(r.uint())}}
	for range r.count() {
		s.reaches = append(s.reaches, deviceID{int(r.uint()), int(r.uint())})
	}
	s.signals = r.bool()
	return s
}
