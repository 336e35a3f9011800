package collective

import (
	"slices"
	"time"

	"github.com/plait-ml/plait/core"
)

// A post is what one rank has brought to a meeting.
type post struct {
	place  *local
	rank   int
	op     *Operation
	work   *Work
	stream core.Stream // where the rank's share of the work runs; nil without tensors
	lane   lane        // if the host cannot address the tensors
	made   core.Event  // after which nothing that was launched uses the tensors; nil means all
	waits  []core.Event
	reads  []core.Event     // those of waits that the pieces in need
	writes []core.Event     // and those that the pieces out do
	ins    []*core.Borrowed // of the pieces
	outs   []*core.Borrowed
	timer  *time.Timer // of send and recv
}

func (p *post) fail(err error) {
	p.stop()
	p.work.settle(nil, err)
}

// stop ends the limit on the wait of a send or a recv.
func (p *post) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// borrow borrows the post's tensors until its work is done, and finds the streams of their device.
func (p *post) borrow(streams *streams) error {
	name := p.op.name()
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
		if p.lane, err = streams.lane(name, p.stream.Device(), everyone); err != nil {
			return err
		}
	}
	made := p.made
	if p.op.made != nil {
		made = p.op.made
	}
	var list []core.Borrowing
	at := map[*core.Tensor]int{} // in list
	add := func(pieces []Piece, made core.Event, write bool) {
		for _, piece := range pieces {
			if _, ok := at[piece.Tensor]; !ok {
				at[piece.Tensor] = len(list)
				list = append(list, core.Borrowing{Tensor: piece.Tensor, Made: made, Write: write})
			}
		}
	}
	add(p.op.Outs, p.made, true)
	add(p.op.Ins, made, false)
	loans, err := core.BorrowAll(name, list, p.work.Event())
	if err != nil {
		return err
	}
	for i := range loans {
		loan := &loans[i]
		p.waits = append(p.waits, loan.Waits()...)
		p.work.loans = append(p.work.loans, loan)
		if list[i].Write {
			p.work.written = append(p.work.written, loan)
		}
	}
	of := func(pieces []Piece, waits *[]core.Event) []*core.Borrowed {
		lent := make([]*core.Borrowed, len(pieces))
		seen := make([]bool, len(loans))
		for i, piece := range pieces {
			k := at[piece.Tensor]
			lent[i] = &loans[k]
			if !seen[k] {
				seen[k] = true
				*waits = append(*waits, loans[k].Waits()...)
			}
		}
		return lent
	}
	p.outs, p.ins = of(p.op.Outs, &p.writes), of(p.op.Ins, &p.reads)
	if p.lane.entering != nil {
		p.hurry()
	}
	return nil
}

// hurry has what the post waits for sent to its device, which may hold it back until more has come together: copies to the host
// then have their turn right behind it.
func (p *post) hurry() {
	var seen []core.Stream
	for _, e := range slices.Backward(p.waits) {
		if s := e.Stream(); s != nil && !slices.Contains(seen, s) {
			seen = append(seen, s)
			e.WaitFor(0)
		}
	}
}

// count adds to what the rank has moved between the host and its device.
func (p *post) count(bytes int) {
	if p.op.staged != nil {
		p.op.staged(bytes)
	}
}
