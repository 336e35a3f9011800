package collective

import (
	"slices"
	"sync"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
)

// unitMemory is the memory that a unit sends from and receives into: the tensors themselves where the host can address them, and otherwise
// stages. Units of several chunks are packed in buffers.
type unitMemory struct {
	job     *wireJob
	unit    *wireUnit
	err     error
	buffers []*hostBuffer
	fetched []core.Fetched
	stages  []stagedOut
}

// unitData is where the chunks of a unit are.
type unitData struct {
	at    []unsafe.Pointer // by chunk
	whole unsafe.Pointer   // a message with all of them, or nil
}

// A stagedOut is a stage that is copied to the outputs of a rank.
type stagedOut struct {
	outs  []source
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

// buffer returns memory for a message.
func (x *unitMemory) buffer() unitData {
	b := buffers.get(x.unit.size)
	x.buffers = append(x.buffers, b)
	d := unitData{whole: unsafe.Pointer(&b.bytes[0])}
	for i := range x.unit.chunks {
		d.at = append(d.at, unsafe.Add(d.whole, x.unit.chunks[i].at))
	}
	return d
}

// placed returns data whose chunks are at some addresses.
func placed(at []unsafe.Pointer) unitData {
	if len(at) == 1 {
		return unitData{at, at[0]}
	}
	return unitData{at: at}
}

// packed returns a message with the chunks of d.
func (x *unitMemory) packed(d unitData) unsafe.Pointer {
	if d.whole != nil {
		return d.whole
	}
	b := x.buffer()
	x.copy(d, b)
	return b.whole
}

// copyBytes copies bytes.
var copyBytes = &step{op: contract.CombineCopy}

// copy copies the chunks of d to other places.
func (x *unitMemory) copy(d unitData, targets ...unitData) {
	x.joinBy(func(c *wireChunk) joinTask { return joinTask{step: copyBytes, dtype: core.Uint8, n: c.size} }, []unitData{d}, targets)
}

// join joins the chunks of several sources as the plan says.
func (x *unitMemory) join(sources, targets []unitData) {
	x.joinBy(func(c *wireChunk) joinTask { return joinTask{step: c.step, dtype: c.dtype, n: c.n} }, sources, targets)
}

// joinBy joins each chunk by the task that how returns.
func (x *unitMemory) joinBy(how func(c *wireChunk) joinTask, sources, targets []unitData) {
	var tasks []joinTask
	for i := range x.unit.chunks {
		t := how(&x.unit.chunks[i])
		for _, s := range sources {
			t.sources = append(t.sources, s.at[i])
		}
		for _, to := range targets {
			t.targets = append(t.targets, to.at[i])
		}
		tasks = append(tasks, t)
	}
	joinAll(tasks)
}

// sources returns the memory of the parts of the steps for which want reports true. For those of other processes it is a buffer.
func (x *unitMemory) sources(want func(k int) bool) []unitData {
	first := x.unit.chunks[0].step
	list := make([]unitData, first.count())
	for k := range list {
		switch part := first.part(k); {
		case !want(k):
		case !x.job.here(part[0]):
			list[k] = x.buffer()
		case len(part) == 1:
			list[k] = x.source(k, 0)
		default:
			list[k] = x.joined(k, len(part))
		}
	}
	return list
}

// source returns the memory of input i of part k, which is of this process.
func (x *unitMemory) source(k, i int) unitData {
	var regions []core.Region
	for _, c := range x.unit.chunks {
		regions = append(regions, x.job.region(c.part(k)[i], c.from, c.n))
	}
	p := x.job.calls[x.unit.chunks[0].part(k)[i].rank]
	if p.stagers.fromHost == nil {
		return placed(addresses(regions))
	}
	if fetched := x.fetch(p, regions); fetched != nil {
		return placed(fetched)
	}
	return x.buffer() // something must be sent
}

func addresses(regions []core.Region) (list []unsafe.Pointer) {
	for _, r := range regions {
		list = append(list, address(r))
	}
	return list
}

// joined joins the n inputs of part k, which are of this process, in a buffer.
func (x *unitMemory) joined(k, n int) unitData {
	sources := make([]unitData, n)
	for i := range sources {
		sources[i] = x.source(k, i)
	}
	to := x.buffer()
	x.joinBy(func(c *wireChunk) joinTask { return joinTask{step: &step{op: c.op}, dtype: c.dtype, n: c.n} }, sources, []unitData{to})
	return to
}

// fetch copies regions of a call from its device.
func (x *unitMemory) fetch(p *rankCall, regions []core.Region) (list []unsafe.Pointer) {
	f, err := p.stagers.toHost.Fetch(regions, onCancel(x.job.ownCalls()))
	if err == nil {
		x.fetched = append(x.fetched, f)
		err = f.Wait()
	}
	if err != nil {
		x.note(err)
		return nil
	}
	for i, r := range regions {
		p.count(r.Size)
		list = append(list, unsafe.Pointer(unsafe.SliceData(f.Bytes(i))))
	}
	return list
}

// landing returns the memory into which the result is received, and the outputs, or their stages, to which it is then copied.
func (x *unitMemory) landing() (landing unitData, targets []unitData) {
	targets = x.targets()
	staged := len(x.stages) > 0
	if n := len(targets); n > 0 && targets[0].whole != nil && (n == 1 || !staged) {
		return targets[0], targets[1:] // stages are slow to read, so a copy is not made from one
	}
	return x.buffer(), targets
}

// result returns the memory from which the result is sent, and the memory to which the inputs are joined.
func (x *unitMemory) result(sources []unitData) (result unitData, targets []unitData) {
	targets = x.targets()
	switch {
	case len(sources) == 1:
		return sources[0], targets
	case len(x.unit.results) == 0:
		return unitData{}, targets
	}
	if len(x.stages) == 0 && len(targets) > 0 && targets[0].whole != nil {
		return targets[0], targets
	}
	result = x.buffer()
	return result, append(targets, result)
}

// targets returns the memory of the outputs of this process, or their stages.
func (x *unitMemory) targets() (list []unitData) {
	j := x.job
	for k, out := range x.unit.chunks[0].outs {
		p := j.calls[out.rank]
		if !p.here() {
			continue
		}
		var outs []source
		var regions []core.Region
		for _, c := range x.unit.chunks {
			outs = append(outs, c.outs[k])
			regions = append(regions, j.region(c.outs[k], c.from, c.n))
		}
		if p.stagers.fromHost == nil {
			list = append(list, placed(addresses(regions)))
			continue
		}
		stage, err := p.stagers.fromHost.Stage(regions)
		if err != nil {
			x.note(err)
			continue
		}
		x.stages = append(x.stages, stagedOut{outs, stage})
		var at []unsafe.Pointer
		for i := range regions {
			at = append(at, unsafe.Pointer(unsafe.SliceData(stage.Bytes(i))))
		}
		list = append(list, placed(at))
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
		for i := range s.outs {
			j.calls[s.outs[i].rank].count(x.unit.chunks[i].size)
		}
		end := s.stage.Store(func(err error) {
			onCancel(j.ownCalls())(err)
			for _, out := range s.outs {
				j.borrowed(out).Fail(err)
			}
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
