package collective

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
)

// A rankCall is one rank's call of an operation, with its tensors borrowed.
type rankCall struct {
	local   *local
	rank    int
	op      *Operation
	work    *Work
	streams *streams    // of the rank
	stream  core.Stream // communication stream of the tensors' device; nil without tensors
	stagers stagers     // set if the host cannot address the tensors
	made    core.Event  // nothing launched after it uses the tensors; nil means everything launched so far
	waits   []core.Event
	reads   []core.Event     // the waits that input pieces need
	writes  []core.Event     // the waits that output pieces need
	ins     []*core.Borrowed // by piece
	outs    []*core.Borrowed
	timer   *time.Timer // timeout of send and recv

	// Of groups that span processes:
	elsewhere bool        // the rank lives in another process
	process   int         // where it lives
	number    uint64      // of a send to another process
	site      *site       // nil if other processes cannot use its tensors
	small     bool        // the host has the inputs, and they are small: see [rankCall.isSmall]
	data      [][]byte    // of a call from another process: its inputs, if they are small; nil for those that are not needed here
	dataErr   error       // why data is not valid
	hasData   bool        // the inputs were sent, or have come
	refuse    func(error) // of a send from another process: tells it that the send has failed
}

// here reports whether the call is of a rank of this process. Of others only the operation is known.
func (p *rankCall) here() bool { return !p.elsewhere }

func (p *rankCall) fail(err error) {
	p.stop()
	p.work.settle(nil, err)
	if p.refuse != nil {
		p.refuse(err)
	}
}

// stop stops the timeout of a send or a recv.
func (p *rankCall) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// borrow borrows the call's tensors until its work is done, and finds the streams of their device.
func (p *rankCall) borrow(streams *streams) error {
	name := p.op.name()
	p.streams = streams
	for _, pieces := range [][]Piece{p.op.Ins, p.op.Outs} {
		for _, piece := range pieces {
			dev := piece.Tensor.Device()
			s, err := streams.of(name, dev, everyone)
			if err != nil {
				return err
			}
			if p.stream != nil && p.stream != s {
				return core.Errorf(core.DeviceError, name, "tensors on %v and %v, want one device for each rank", p.stream.Device(), dev)
			}
			p.stream = s
		}
	}
	var err error
	if p.stream != nil && !p.stream.Device().HostAccessible() {
		if p.stagers, err = streams.stagers(name, p.stream.Device(), everyone); err != nil {
			return err
		}
	}
	made := p.made
	if p.op.made != nil {
		made = p.op.made
	}
	var list []core.Borrowing
	at := map[*core.Tensor]int{} // index in list
	add := func(pieces []Piece, made core.Event, write bool) {
		for _, piece := range pieces {
			if _, ok := at[piece.Tensor]; !ok {
				at[piece.Tensor] = len(list)
				list = append(list, core.Borrowing{Tensor: piece.Tensor, Made: made, Write: write, InRows: piece.rows.n > 1})
			}
		}
	}
	add(p.op.Outs, p.made, true)
	written := len(list)
	add(p.op.Ins, made, false)
	borrowed, err := core.BorrowAll(name, list, p.work.Event())
	if err != nil {
		return err
	}
	p.work.borrowed = make([]*core.Borrowed, len(borrowed))
	for i := range borrowed {
		p.work.borrowed[i] = &borrowed[i]
		p.waits = appended(p.waits, borrowed[i].Waits())
	}
	p.work.written = p.work.borrowed[:written:written]
	of := func(pieces []Piece, waits *[]core.Event) []*core.Borrowed {
		list := make([]*core.Borrowed, len(pieces))
		seen := make([]bool, len(borrowed))
		for i, piece := range pieces {
			k := at[piece.Tensor]
			list[i] = &borrowed[k]
			if !seen[k] {
				seen[k] = true
				*waits = appended(*waits, borrowed[k].Waits())
			}
		}
		return list
	}
	p.outs, p.ins = of(p.op.Outs, &p.writes), of(p.op.Ins, &p.reads)
	if p.stagers.fromHost != nil {
		p.flush()
	}
	return nil
}

// appended returns the events of both lists. It shares the memory of b if a is empty, and never writes to it.
func appended(a, b []core.Event) []core.Event {
	if len(a) == 0 {
		return slices.Clip(b)
	}
	return append(a, b...)
}

// flush submits the work that the call waits for, if its device still batches it. Copies to the host can then run right after it.
func (p *rankCall) flush() {
	var seen []core.Stream
	for _, e := range slices.Backward(p.waits) {
		if s := e.Stream(); s != nil && !slices.Contains(seen, s) {
			seen = append(seen, s)
			e.WaitFor(0)
		}
	}
}

// count adds to the bytes that the rank has copied between host and device.
func (p *rankCall) count(bytes int) {
	if p.op.countStaged != nil {
		p.op.countStaged(bytes)
	}
}
