package gpu

import (
	"math"
	"runtime"

	"github.com/plait-ml/plait/core"
)

// SetTiles replaces the tiles that products choose from by one, given by its rows, columns, depth, and the rows and columns of
// an invocation, and returns a function that brings them back. Programs that were compiled for the old ones are dropped.
func SetTiles(d *Device, double bool, rows, cols, depth, high, wide int) func() {
	old := tiles
	tiles = []tile{{rows: rows, cols: cols, depth: depth, high: high, wide: wide, double: double, each: 100_000}}
	d.dropPrograms()
	return func() {
		tiles = old
		d.dropPrograms()
	}
}

// SetMultiprocessors sets over how many multiprocessors workgroups are thought to spread, and returns a function that sets it back.
func SetMultiprocessors(n int) func() {
	old := multiprocessors
	multiprocessors = n
	return func() { multiprocessors = old }
}

// plainProduct returns one of contiguous matrices, the first of which is transposed or not.
func plainProduct(m, n, k int, transposed bool) *product {
	o := &core.Operand{DType: core.Float32}
	p := &product{m: m, n: n, k: k, ar: k, ac: 1, br: n, bc: 1, batch: layout{count: 1, strides: make([][]int, 3)}, a: o, b: o}
	if transposed {
		p.ar, p.ac = 1, m
	}
	return p
}

// LastPieces returns into how many pieces a product cuts the tiles of the last round; 0 if it cuts none, or all.
func LastPieces(m, n, k int, transposed bool) int {
	if c := plainProduct(m, n, k, transposed).estimate(); c.last {
		return c.pieces
	}
	return 0
}

// Parted reports whether a product whose rows of the first factor are so far apart is computed as one of whole tiles and one of the rest.
func Parted(m, n, k, apartBy int) bool {
	p := plainProduct(m, n, k, false)
	p.ar = apartBy
	whole, _ := p.parted()
	return whole != nil && apart(whole.estimate(), k)
}

// CutProducts has products like this one cut into pieces, all their tiles or those of the last round, as if that had been measured to be the
// fastest, and returns a function that forgets it.
func CutProducts(d *Device, m, n, k int, transposed bool, pieces int, last bool) func() {
	class := plainProduct(m, n, k, transposed).class()
	d.tuner.mu.Lock()
	defer d.tuner.mu.Unlock()
	d.tuner.choices[class] = choice{0, pieces, last}
	return func() {
		d.tuner.mu.Lock()
		defer d.tuner.mu.Unlock()
		delete(d.tuner.choices, class)
	}
}

// dropPrograms forgets compiled programs. Nothing may be in flight.
func (d *Device) dropPrograms() {
	d.programs.mu.Lock()
	defer d.programs.mu.Unlock()
	d.programs.byKey = map[programKey]*program{}
}

// Lose has the driver say that the device is lost.
func Lose(d *Device, reason string) { d.owner.do(func() { d.owner.gpu.Lose(reason) }) }

// KillThread ends the thread that calls the driver.
func KillThread(d *Device) {
	d.owner.post(func() {
		runtime.LockOSThread() // a goroutine that ends bound to a thread takes it along
		runtime.Goexit()
	})
}

// Panic has the goroutine that calls the driver panic.
func Panic(d *Device, reason string) { d.owner.post(func() { panic(reason) }) }

// LimitMemory sets how many bytes the device may hold.
func LimitMemory(d *Device, bytes int) { d.memory.limit = bytes }

// FreeBytes returns how much of the device's slabs nobody has taken.
func FreeBytes(d *Device) int {
	d.memory.mu.Lock()
	defer d.memory.mu.Unlock()
	n := 0
	for _, s := range d.memory.slabs {
		if s != nil {
			for _, f := range s.free {
				n += f.size
			}
		}
	}
	return n
}

// ReadNowhere gives the device a batch with two reads to buffers that are not there, at which the goroutine that calls the driver
// panics after the driver got the batch. It returns what says that each read, and the batch, has ended.
func ReadNowhere(c core.Stream) (ended []<-chan struct{}) {
	s := c.(*stream)
	b := &batch{last: 1}
	s.tail.Store(1)
	s.taken.Store(1)
	s.sent.Store(1)
	s.flying.Add(1)
	for range 2 {
		r := &readback{stage: &stage{}, ready: make(chan struct{})}
		b.reads = append(b.reads, r)
		ended = append(ended, r.ready)
	}
	s.device.owner.post(func() { s.device.submit(s, b) })
	done := make(chan struct{})
	go func() {
		s.wait(1)
		close(done)
	}()
	return append(ended, done)
}

// SetFusion has elementwise calls fused, each fusion with a program from the first time on, or run one by one, and returns a
// function that brings the device's own way back.
func SetFusion(d *Device, on bool) func() {
	set := func(off bool, at int) {
		_ = d.Synchronize() // who tests errors has read them
		d.fusions.off, d.fusions.at = off, at
		DropFusions(d)
	}
	off, at := d.fusions.off, d.fusions.at
	set(!on, 1)
	return func() { set(off, at) }
}

// DropFusions forgets the programs of fusions, and which came up.
func DropFusions(d *Device) {
	d.fusions.mu.Lock()
	defer d.fusions.mu.Unlock()
	d.fusions.byKey, d.fusions.compiled = map[string]*fusedProgram{}, 0
}

// Compiled returns how many programs the device compiled for fusions.
func Compiled(d *Device) int {
	d.fusions.mu.Lock()
	defer d.fusions.mu.Unlock()
	return d.fusions.compiled
}

// KnownProducts returns for how many classes of products the device knows the fastest way.
func KnownProducts(d *Device) int {
	d.tuner.mu.RLock()
	defer d.tuner.mu.RUnlock()
	return len(d.tuner.choices)
}

// SetFewRows sets how many sequences of a recurrent layer are few, and returns a function that sets it back.
func SetFewRows(n int) func() {
	old := fewRows
	fewRows = n
	return func() { fewRows = old }
}

// LimitBindings sets how many buffers fusions may bind, and returns a function that brings the device's own limit back.
func LimitBindings(d *Device, n int) func() {
	set := func(n int) {
		_ = d.Synchronize() // who tests errors has read them
		d.limits.Bindings = n
	}
	old := d.limits.Bindings
	set(n)
	return func() { set(old) }
}

// SetScoreRoom sets how many bytes the gradients of attention's scores may take, and how many blocks of keys there must be room for
// if not for all, and returns a function that sets them back.
func SetScoreRoom(bytes, blocks int) func() {
	room, busy := scoreRoom, busyBlocks
	scoreRoom, busyBlocks = func(*attentionProblem) int { return bytes }, blocks
	return func() { scoreRoom, busyBlocks = room, busy }
}

// SetFewBytes sets how many bytes of patches convolutions store instead of gathering them, and returns a function that sets it back.
func SetFewBytes(n int) func() {
	old := fewBytes
	fewBytes = func(*Device) int { return n }
	return func() { fewBytes = old }
}

// SetApart has products whose rows begin at multiples of four computed in two parts wherever tiles do not divide their depth, and
// returns a function that brings the choice back.
func SetApart() func() {
	old := apart
	apart = func(choice, int) bool { return true }
	return func() { apart = old }
}

// Slow has a GPU made of software count as one on which each call takes very long.
func Slow(d *Device) { d.load.pace.Store(math.Float64bits(1e6)) }

// SetNormRows sets for how many multiprocessors there are workgroups that compute a layer norm's gradients, how many elements those of one have
// on their way, and how many fours of them an invocation, and returns a function that sets them back.
func SetNormRows(count, elements, fours int) func() {
	oldCount, oldElements, oldFours := processors, onTheWay, mostFours
	processors, onTheWay, mostFours = count, elements, fours
	return func() { processors, onTheWay, mostFours = oldCount, oldElements, oldFours }
}

// SetShares sets how many fours of columns workgroups share at most, and how many such workgroups there are at least, and returns a function
// that sets them back.
func SetShares(most, least int) func() {
	oldMost, oldLeast := mostSide, leastShares
	mostSide, leastShares = most, least
	return func() { mostSide, leastShares = oldMost, oldLeast }
}
