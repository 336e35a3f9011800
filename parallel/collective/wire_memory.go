package collective

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/core"
)

// unitMemory is the memory that a unit sends from and receives into: the tensors themselves where the host can address them, and otherwise
// stages.
type unitMemory struct {
	job     *wireJob
	unit    *wireUnit
	size    int // bytes of a piece's part
	err     error
	buffers []*hostBuffer
	fetched []core.Fetched
	stages  []stagedOut
}

// A stagedOut is a stage that is copied to an output.
type stagedOut struct {
	out   source
	stage core.Stage
}

// touch tells the race detector that the job uses the tensors. Its units use parts of them at the same time.
func (j *wireJob) touch() {
	for _, p := range j.ownCalls() {
		if p.stagers.fromHost != nil {
			continue
		}
		for _, b := range p.ins {
			m := b.Region(0, 0).Memory
			m.Touch(false)
		}
		for _, b := range p.outs {
			m := b.Region(0, 0).Memory
			m.Touch(true)
		}
	}
}

// address returns the address of a region in host memory; see touch.
func address(s core.Region) unsafe.Pointer { return unsafe.Add(s.Memory.Ptr, s.Offset) }

// note keeps the first error, with which the job has failed.
func (x *unitMemory) note(err error) {
	if x.err == nil && err != nil {
		x.err = err
		x.job.fail(err)
	}
}

// buffer returns memory for a part.
func (x *unitMemory) buffer() unsafe.Pointer {
	b := buffers.get(x.size)
	x.buffers = append(x.buffers, b)
	return unsafe.Pointer(&b.bytes[0])
}

// sources returns the memory of the parts for which want reports true. For those of other processes it is a buffer.
func (x *unitMemory) sources(want func(k int) bool) []unsafe.Pointer {
	j, u := x.job, x.unit
	list := make([]unsafe.Pointer, u.count())
	for k := range list {
		switch part := u.part(k); {
		case !want(k):
		case !j.here(part[0]):
			list[k] = x.buffer()
		case len(part) == 1:
			list[k] = x.source(part[0])
		default:
			list[k] = x.joined(part)
		}
	}
	return list
}

// source returns the memory of an input of this process.
func (x *unitMemory) source(in source) unsafe.Pointer {
	if x.job.calls[in.rank].stagers.fromHost == nil {
		return address(x.job.region(in, x.unit.from, x.unit.n))
	}
	if fetched := x.fetch(in); fetched != nil {
		return fetched
	}
	return x.buffer() // something must be sent
}

// joined joins inputs of this process in a buffer.
func (x *unitMemory) joined(part []source) unsafe.Pointer {
	var sources []unsafe.Pointer
	for _, in := range part {
		sources = append(sources, x.source(in))
	}
	to := x.buffer()
	joinHere(&step{op: x.unit.op}, x.job.piece(part[0]).dtype, x.unit.n, sources, []unsafe.Pointer{to})
	return to
}

// fetch copies an input from its device.
func (x *unitMemory) fetch(in source) unsafe.Pointer {
	j, u := x.job, x.unit
	p := j.calls[in.rank]
	f, err := p.stagers.toHost.Fetch([]core.Region{j.region(in, u.from, u.n)}, onCancel(j.ownCalls()))
	if err == nil {
		x.fetched = append(x.fetched, f)
		err = f.Wait()
	}
	if err != nil {
		x.note(err)
		return nil
	}
	p.count(x.size)
	return unsafe.Pointer(unsafe.SliceData(f.Bytes(0)))
}

// landing returns the memory into which the result is received, and the outputs, or their stages, to which it is then copied.
func (x *unitMemory) landing() (landing unsafe.Pointer, targets []unsafe.Pointer) {
	targets = x.targets()
	if outs := x.unit.outs; len(targets) == 1 || len(targets) > 1 && x.job.calls[outs[0].rank].stagers.fromHost == nil {
		return targets[0], targets[1:] // stages are slow to read, so a copy is not made from one
	}
	return x.buffer(), targets
}

// result returns the memory from which the result is sent, and the memory to which the inputs are joined.
func (x *unitMemory) result(sources []unsafe.Pointer) (result unsafe.Pointer, targets []unsafe.Pointer) {
	targets = x.targets()
	switch {
	case len(sources) == 1:
		return sources[0], targets
	case len(x.unit.results) == 0:
		return nil, targets
	}
	for i, out := range x.unit.outs {
		if x.job.calls[out.rank].stagers.fromHost == nil && len(targets) == len(x.unit.outs) {
			return targets[i], targets
		}
	}
	result = x.buffer()
	return result, append(targets, result)
}

// targets returns the memory of the outputs of this process, or their stages.
func (x *unitMemory) targets() (list []unsafe.Pointer) {
	j, u := x.job, x.unit
	for _, out := range u.outs {
		p, region := j.calls[out.rank], j.region(out, u.from, u.n)
		if p.stagers.fromHost == nil {
			list = append(list, address(region))
			continue
		}
		stage, err := p.stagers.fromHost.Stage([]core.Region{region})
		if err != nil {
			x.note(err)
			continue
		}
		x.stages = append(x.stages, stagedOut{out, stage})
		list = append(list, unsafe.Pointer(unsafe.SliceData(stage.Bytes(0))))
	}
	return list
}

// store copies the stages to their outputs.
func (x *unitMemory) store() {
	j := x.job
	for _, s := range x.stages {
		if x.err != nil {
			s.stage.Release()
			continue
		}
		out := s.out
		p := j.calls[out.rank]
		p.count(x.size)
		end := s.stage.Store(func(err error) {
			onCancel(j.ownCalls())(err)
			j.borrowed(out).Fail(err)
		})
		j.mu.Lock()
		j.last = append(j.last, end)
		j.mu.Unlock()
	}
	x.stages = nil
}

// held keeps the memory of jobs that a transport may still use.
var held struct {
	sync.Mutex
	memory []*unitMemory
}

// hold keeps the memory of this process's tensors until the process ends.
func (j *wireJob) hold() {
	if j.held.Swap(true) {
		return
	}
	for _, p := range j.ownCalls() {
		for _, piece := range slices.Concat(p.op.Ins, p.op.Outs) {
			if s := piece.storage; s != nil && s.Refs() > 0 {
				s.Retain()
			}
		}
	}
}

// release gives back what the unit no longer needs.
func (x *unitMemory) release() {
	if x.job.held.Load() {
		held.Lock()
		defer held.Unlock()
		held.memory = append(held.memory, x)
		return
	}
	for _, b := range x.buffers {
		b.release()
	}
	for _, f := range x.fetched {
		f.Release()
	}
}
