package gpu

// What happens when the GPU has run a batch: its calls end, and failures that only the GPU finds reach what was computed from them.

import (
	"encoding/binary"
	"slices"
	"time"
)

// partEnded records the end of one of the operations that a batch waits for, and completes the batches that have ended, in the order in which
// they were submitted: on a lost device, a batch that never reached the GPU ends before one that did. It runs on the driver thread.
func (s *stream) partEnded(b *batch) {
	b.unfinished--
	for len(s.batches) > 0 && s.batches[0].unfinished == 0 {
		ended := s.batches[0]
		s.batches = slices.Delete(s.batches, 0, 1)
		s.complete(ended)
	}
}

// complete ends the calls of a batch.
func (s *stream) complete(b *batch) {
	if b.lost {
		if err := s.device.lost.Get(); err != nil {
			s.Errors.Set(err)
			b.failShared(err)
		}
	}
	s.checkFaults(b)
	s.failForeign(b)
	if b.watching {
		s.device.trace.Unwatch(b.watched)
	}
	var took time.Duration
	if s.queue == nil { // batches of other queues run at the same time
		took = s.device.pacing.measure(b.list.Len(), b.begun, s.forCollectives.Load())
	}
	if b.elements > 0 {
		if !b.lost {
			s.device.softwarePacing.measure(b.elements, took)
		}
		s.queuedElements.Add(-int64(b.elements))
	}
	last := b.last
	if f := b.fence; f != nil {
		f.lost.Store(b.lost)
		f.ended.Store(true)
	}
	ran := b.ran
	b.last = 0
	b.reset()
	select {
	case s.spare <- b:
	default:
	}
	s.markMu.Lock()
	s.runMarks(last)
	s.Done.Store(last)
	s.markMu.Unlock()
	if !ran {
		s.inFlight.Add(-1)
	}
	s.Notify()
	s.Rouse()
}

// noteRun counts a batch as no longer on the GPU, before its calls count as done. It runs on the driver thread.
func (s *stream) noteRun(b *batch) {
	if !b.ran {
		b.ran = true
		s.inFlight.Add(-1)
		s.Rouse()
	}
}

// collectFaults adds commands that read the fault words of a batch back and clear them.
func (s *stream) collectFaults(b *batch) {
	size := 4 * len(b.checks)
	read, err := newReadback(s.device, size)
	if err != nil {
		s.Errors.Set(err)
		return
	}
	slab, at := slabOf(s.faults)
	b.list.Copy(read.stage.buffer, 0, slab.buffer, at, size)
	b.list.Clear(slab.buffer, at, size)
	b.faults = read
	b.reads = append(b.reads, read)
}

// checkFaults turns faults that the batch found into errors of their calls, and of all calls that used their results since. It runs on the
// driver thread.
func (s *stream) checkFaults(b *batch) {
	if len(b.checks) == 0 {
		return
	}
	if b.faults != nil {
		for i, c := range b.checks {
			if b.faults.bytes == nil {
				break
			}
			if fault := binary.LittleEndian.Uint32(b.faults.bytes[4*i:]); fault != 0 {
				err := &lateError{err: c.err(c.Call, fault)}
				s.Errors.Set(err)
				s.device.trace.Fail(c.Suspect, err)
			}
		}
		b.faults.release(s.device)
	}
}
