package gpu

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/driver"
)

func init() {
	core.RegisterBackend(core.Backend{Kind: "fakelink", Count: func() int { return math.MaxInt }, Open: func(index, ordinal int) (core.Device, error) {
		f := &linkedDriver{mute: index >= MuteLinks}
		return newDevice(index, ordinal, adapter{Adapter: f.Adapters()[0], driver: f})
	}})
}

// A linkedDriver is a fake driver of GPUs that reach each other and have several queues. Each queue runs on a goroutine, at its own pace. Of
// programs, only sums of collectives compute something.
type linkedDriver struct {
	fakeDriver
	mute bool
}

// MuteLinks is the index of the first GPU of the linked fake driver that takes no signals.
const MuteLinks = 1000

func (f *linkedDriver) Open(int) (driver.GPU, error) {
	g := &linkedGPU{fakeGPU: &fakeGPU{programs: map[string]int{}}, mute: f.mute}
	g.linkedQueue = newLinkedQueue()
	return g, nil
}

type linkedGPU struct {
	*fakeGPU
	*linkedQueue
	unlinked atomic.Bool
	mute     bool
	yield    func()
	between  func() bool // Submit yields until it is true; nil for once
}

func (g *linkedGPU) NewQueue() (driver.Queue, error) { return newLinkedQueue(), nil }

func (g *linkedGPU) Yield(to func()) { g.yield = to }

func (g *linkedGPU) Signals() bool { return !g.mute }

func (g *linkedGPU) Reach(other driver.GPU) bool {
	o, ok := other.(*linkedGPU)
	return ok && !g.unlinked.Load() && !o.unlinked.Load()
}

func (g *linkedGPU) NewBuffer(usage driver.Usage, size int, _ bool) (driver.Buffer, error) {
	if usage&(driver.MapRead|driver.MapWrite) != 0 { // kernels of the CPU, which take no pointers to Go's memory, use it
		m, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
		return &linkedBuffer{fakeBuffer{m}, g, false, false}, err
	}
	return &linkedBuffer{fakeBuffer{make([]byte, size)}, g, usage&driver.Uniform != 0, false}, nil
}

func (g *linkedGPU) NewPipeline(p driver.Program) (driver.Pipeline, error) {
	return &linkedPipeline{fakePipeline{p.Buffers}, readSum(p.Source)}, nil
}

func (g *linkedGPU) NewBindGroup(_ driver.Buffer, _ int, buffers []driver.Buffer) (driver.BindGroup, error) {
	return &linkedGroup{fakeGroup{len(buffers)}, buffers}, nil
}

func (g *linkedGPU) NewCommandList() driver.CommandList { return &linkedList{} }
func (g *linkedGPU) NewStatus() driver.Status           { return &linkedStatus{make(chan struct{})} }

// Submit and Release are those of both embedded types.
func (g *linkedGPU) Submit(l driver.CommandList, params driver.Buffer, data []byte, s driver.Status) {
	if g.yield != nil {
		for g.yield(); g.between != nil && !g.between(); {
			g.yield()
		}
	}
	g.linkedQueue.Submit(l, params, data, s)
}

// A linkedQueue runs commands on its goroutine.
type linkedQueue struct{ jobs chan func() }

var openQueues atomic.Int64

// OpenQueues returns how many queues of GPUs of the linked fake driver have been made and not released.
func OpenQueues() int { return int(openQueues.Load()) }

func newLinkedQueue() *linkedQueue {
	openQueues.Add(1)
	q := &linkedQueue{make(chan func(), 1<<16)}
	go func() {
		for job := range q.jobs {
			job()
		}
	}()
	return q
}

func (q *linkedQueue) Submit(l driver.CommandList, _ driver.Buffer, data []byte, s driver.Status) {
	commands, data := append([]func(data []byte){}, l.(*linkedList).commands...), append([]byte{}, data...)
	q.jobs <- func() {
		if rand.IntN(4) == 0 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		}
		for _, run := range commands {
			run(data)
		}
		close(s.(*linkedStatus).reached)
	}
}

func (q *linkedQueue) After(s driver.Status) {
	q.jobs <- func() { <-s.(*linkedStatus).reached }
}

func (q *linkedQueue) Release() {
	openQueues.Add(-1)
	close(q.jobs)
}

type linkedStatus struct{ reached chan struct{} }

func (s *linkedStatus) Done() (done, failed bool) {
	select {
	case <-s.reached:
		return true, false
	default:
		return false, false
	}
}
func (s *linkedStatus) Free() {}

type linkedBuffer struct {
	fakeBuffer
	g      *linkedGPU
	params bool
	opened bool // it is another process's
}

func (b *linkedBuffer) Map(_ bool, s driver.Status) {
	b.g.jobs <- func() { close(s.(*linkedStatus).reached) }
}

// sharedBuffers are the buffers that GPUs of the fake driver share with other processes, which are parts of this one.
var sharedBuffers struct {
	sync.Mutex
	list   []*linkedBuffer
	opened int  // and not closed
	closed bool // to other processes
}

func (g *linkedGPU) Share(b driver.Buffer) ([]byte, error) {
	sharedBuffers.Lock()
	defer sharedBuffers.Unlock()
	sharedBuffers.list = append(sharedBuffers.list, b.(*linkedBuffer))
	return binary.LittleEndian.AppendUint32(nil, uint32(len(sharedBuffers.list)-1)), nil
}

func (g *linkedGPU) OpenShared(handle []byte, size int) (driver.Buffer, error) {
	sharedBuffers.Lock()
	defer sharedBuffers.Unlock()
	b := sharedBuffers.list[binary.LittleEndian.Uint32(handle)]
	if sharedBuffers.closed || b.Size() != size {
		return nil, errors.New("it cannot be opened")
	}
	sharedBuffers.opened++
	return &linkedBuffer{b.fakeBuffer, g, false, true}, nil
}

func (b *linkedBuffer) Release() {
	if b.opened {
		sharedBuffers.Lock()
		defer sharedBuffers.Unlock()
		sharedBuffers.opened--
	}
}

// RefuseShared makes GPUs of the linked fake driver open no memory of other processes, or open it again.
func RefuseShared(refuse bool) {
	sharedBuffers.Lock()
	defer sharedBuffers.Unlock()
	sharedBuffers.closed = refuse
}

// OpenedBlocks returns how many buffers of other processes GPUs of the linked fake driver have opened and not closed.
func OpenedBlocks() int {
	sharedBuffers.Lock()
	defer sharedBuffers.Unlock()
	return sharedBuffers.opened
}

type linkedPipeline struct {
	fakePipeline
	sum *sumProgram
}

type linkedGroup struct {
	fakeGroup
	buffers []driver.Buffer
}

type linkedList struct{ commands []func(data []byte) }

func (l *linkedList) Len() int { return len(l.commands) }
func (l *linkedList) Reset()   { l.commands = nil }

func (l *linkedList) Dispatch(p driver.Pipeline, g driver.BindGroup, params, _, _, _ uint32) {
	sum := p.(*linkedPipeline).sum
	l.commands = append(l.commands, func(data []byte) {
		if sum != nil {
			sum.run(g.(*linkedGroup).buffers, data[params:])
		}
	})
}

func (l *linkedList) Copy(to driver.Buffer, toOffset int, from driver.Buffer, fromOffset, size int) {
	l.commands = append(l.commands, func(data []byte) {
		source := from.(*linkedBuffer)
		if !source.params {
			data = source.memory
		}
		copy(to.(*linkedBuffer).memory[toOffset:toOffset+size], data[fromOffset:fromOffset+size])
	})
}

// awaited counts the signals for which commands have waited.
var awaited atomic.Int64

// Awaited returns how many signals of other processes GPUs of the linked fake driver have waited for.
func Awaited() int { return int(awaited.Load()) }

func wordOf(b driver.Buffer, offset int) *uint32 {
	return (*uint32)(unsafe.Pointer(&b.(*linkedBuffer).memory[offset]))
}

func (l *linkedList) Signal(b driver.Buffer, offset int, number uint32) {
	l.commands = append(l.commands, func([]byte) { atomic.StoreUint32(wordOf(b, offset), number) })
}

func (l *linkedList) Await(b driver.Buffer, offset int, number uint32) {
	l.commands = append(l.commands, func([]byte) {
		for int32(number-atomic.LoadUint32(wordOf(b, offset))) > 0 {
			time.Sleep(10 * time.Microsecond)
		}
		awaited.Add(1)
	})
}

func (l *linkedList) Clear(to driver.Buffer, offset, size int) {
	l.commands = append(l.commands, func([]byte) { clear(to.(*linkedBuffer).memory[offset : offset+size]) })
}

// A sumProgram is what the text of a sum of float32, or of copies in vectors, says.
type sumProgram struct {
	ins, outs     []sumPlace
	count, scale  int // words of the parameters; no scale is -1
	table, stride int // in vectors: the word with the first segment, and the words of each; 0 otherwise
}

// A sumPlace is a buffer, and the word of the parameters with the first element, or that word of each segment.
type sumPlace struct{ buffer, first int }

var (
	sumCount   = regexp.MustCompile(`if \(i >= p\[(\d+)\]\.(\w)\)`)
	sumIn      = regexp.MustCompile(`ld_x(\d+)\(p\[(\d+)\]\.(\w) \+ i\)`)
	sumOut     = regexp.MustCompile(`st_x(\d+)\(p\[(\d+)\]\.(\w) \+ i, out\)`)
	sumScale   = regexp.MustCompile(` \* bitcast<real>\(p\[(\d+)\]\.(\w)\)`)
	sumIsSum   = regexp.MustCompile(`v = v \+ ld_`)
	tileCount  = regexp.MustCompile(`t < p\[(\d+)\]\.(\w)`)
	tileTable  = regexp.MustCompile(`var row = (\d+)u;`)
	tileStride = regexp.MustCompile(`row \+= (\d+)u;`)
	tileIn     = regexp.MustCompile(`let x\d+_0 = x(\d+)\[word\(row \+ (\d+)u\) \+ at_0\]`)
	tileOut    = regexp.MustCompile(`      x(\d+)\[word\(row \+ (\d+)u\) \+ at_0\] = s_0;`)
)

// readSum returns the sum that a program computes, or nil.
func readSum(text string) *sumProgram {
	number := func(s string) int {
		n, _ := strconv.Atoi(s)
		return n
	}
	word := func(m []string) int {
		return 4*number(m[len(m)-2]) + map[string]int{"x": 0, "y": 1, "z": 2, "w": 3}[m[len(m)-1]]
	}
	p := &sumProgram{scale: -1}
	if m := sumScale.FindStringSubmatch(text); m != nil {
		p.scale = word(m)
	}
	switch m := tileCount.FindStringSubmatch(text); {
	case m != nil && tileTable.MatchString(text):
		p.count, p.table, p.stride = word(m), number(tileTable.FindStringSubmatch(text)[1]), number(tileStride.FindStringSubmatch(text)[1])
		places := func(list [][]string) (all []sumPlace) {
			for _, m := range list {
				all = append(all, sumPlace{number(m[1]), number(m[2])})
			}
			return all
		}
		p.ins, p.outs = places(tileIn.FindAllStringSubmatch(text, -1)), places(tileOut.FindAllStringSubmatch(text, -1))
	case sumIsSum.MatchString(text):
		p.count = word(sumCount.FindStringSubmatch(text))
		places := func(list [][]string) (all []sumPlace) {
			for _, m := range list {
				all = append(all, sumPlace{number(m[1]), word(m)})
			}
			return all
		}
		p.ins, p.outs = places(sumIn.FindAllStringSubmatch(text, -1)), places(sumOut.FindAllStringSubmatch(text, -1))
	default:
		return nil
	}
	return p
}

// run computes the sum in the order of the inputs.
func (p *sumProgram) run(buffers []driver.Buffer, params []byte) {
	word := func(i int) int { return int(binary.LittleEndian.Uint32(params[4*i:])) }
	join := func(n, row, vector int) {
		at := func(s sumPlace, i int) []byte {
			return buffers[s.buffer].(*linkedBuffer).memory[4*(word(row+s.first)*vector+i):]
		}
		for i := range n {
			var sum float32
			for k, in := range p.ins {
				v := math.Float32frombits(binary.LittleEndian.Uint32(at(in, i)))
				if k == 0 {
					sum = v
				} else {
					sum += v
				}
			}
			if p.scale >= 0 {
				sum *= math.Float32frombits(uint32(word(p.scale)))
			}
			for _, out := range p.outs {
				binary.LittleEndian.PutUint32(at(out, i), math.Float32bits(sum))
			}
		}
	}
	if p.table == 0 {
		join(word(p.count), 0, 1)
		return
	}
	for row := p.table; ; row += p.stride {
		join(4*word(row+1), row, 4)
		if word(row) == word(p.count) {
			return
		}
	}
}

// HoldQueue keeps the first queue of a device of the linked fake driver from going on until release is called.
func HoldQueue(d *Device) (release func()) {
	held := make(chan struct{})
	d.thread.do(func() { d.thread.gpu.(*linkedGPU).jobs <- func() { <-held } })
	return func() { close(held) }
}

// YieldUntil makes the next batches of a device of the linked fake driver yield until the function returns true.
func YieldUntil(d *Device, done func() bool) {
	d.thread.do(func() { d.thread.gpu.(*linkedGPU).between = done })
}

// Unlink makes a device of the linked fake driver reach no other.
func Unlink(d *Device) { d.thread.gpu.(*linkedGPU).unlinked.Store(true) }
