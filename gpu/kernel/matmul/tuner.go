package matmul

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// What products choose is estimated, unless it was measured on a GPU of the same kind: on request the first product of a class runs
// in several ways, and the fastest is kept, in the process and in the user's cache. Tiles differ in speed alone; into how many
// pieces K is cut, and of which tiles, decides in which order is summed.

const (
	// worthTuning is how many multiplications a product has for which it pays.
	worthTuning = 1 << 17
	// tuningTurns is how often each candidate runs, in turns with the others.
	tuningTurns = 3
	// tuningTime is how long it runs each time.
	tuningTime = time.Millisecond
	// slowCandidate is how many times as long as the fastest one may take to stay one.
	slowCandidate = 3
)

// A productClass is the products for which the same choice is made: sizes rounded up to three bits, and how the factors lie.
type productClass struct{ m, n, k, count, form int }

// class returns that of a product.
func (p *Product) class() productClass {
	form := 0
	for i, v := range []bool{
		p.ACol == 1, p.vec4AlongK(), p.ACol != 1 && p.ARow == 1, p.BRow == 1 && p.BCol != 1, p.BCol == 1, p.A.DType == core.Float32, p.B.DType == core.Float32,
		p.Gather != nil,
	} {
		if v {
			form |= 1 << i
		}
	}
	return productClass{roundUp(p.M), roundUp(p.N), roundUp(p.K), roundUp(p.Batch.Count), form}
}

// roundUp returns the next number of which all but the first three bits are 0.
func roundUp(n int) int {
	low := 1<<max(bits.Len(uint(n))-3, 0) - 1
	return (n + low) &^ low
}

// A tuner is what was measured on a kind of adapter. Devices of the kind share it.
type tuner struct {
	mu      sync.RWMutex
	choices map[productClass]choice
	cache   tuningCache
	turn    sync.Mutex // of who measures
}

// choose returns how to compute the product.
func (p *Product) choose(r *shader.Recorder) choice {
	guess := p.estimate()
	t := tunerOf(r.GPU)
	c, known := t.find(p)
	if known {
		return c
	}
	if b := r.GPU.Benchmark; b == nil || !b.Load() || p.M*p.N*p.K*p.Batch.Count < worthTuning {
		return guess
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	if c, known = t.find(p); known {
		return c
	}
	c, ok := p.measure(r, guess)
	if !ok {
		return guess
	}
	return t.keep(p, c)
}

// find returns what was measured for the product's class, if it can take it.
func (t *tuner) find(p *Product) (choice, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.choices) == 0 {
		return choice{}, false
	}
	c, ok := t.choices[p.class()]
	return c, ok && c.number < len(p.gpu.Tiles) && c.pieces >= p.leastPieces() && c.pieces <= max(p.K, 1)
}

// keep notes a choice and returns the one that counts: the first that anybody stored.
func (t *tuner) keep(p *Product, c choice) choice {
	class := p.class()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.choices[class] = c
	t.cache.store(p.gpu.Tiles, t.choices, class)
	return t.choices[class]
}

// candidates returns the ways of computing the product that may be the fastest, the estimated one first.
func (p *Product) candidates(guess choice) []choice {
	list := []choice{guess}
	for number, t := range p.gpu.Tiles {
		if number > 0 && (p.gpu.Software && number > 1 || p.M <= t.Rows/2 || p.N <= t.Cols/2) {
			continue
		}
		least := p.leastPieces()
		cut, _ := p.cut(number)
		for _, n := range []int{least, cut.pieces, cut.pieces / 2, 2 * cut.pieces} {
			c := choice{number, n, cut.last && n > 1}
			if n >= least && (n == least || p.K/n >= 64) && 4*p.M*p.N*p.Batch.Count*n <= p.gpu.Binding && !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	return list
}

// measure returns the fastest choice; false if it cannot tell. The product's results go to memory of its own.
func (p *Product) measure(r *shader.Recorder, guess choice) (choice, bool) {
	out, err := p.scratch(r)
	if err != nil {
		return guess, false
	}
	trial := *p
	trial.Out = out
	kept := r.Temps()
	run := func(c choice, times int) (time.Duration, bool) {
		r.Settle()
		start := time.Now()
		for range times {
			err := trial.by(r, c)
			r.Release(kept)
			if err != nil {
				return 0, false
			}
		}
		ok := r.Settle()
		return time.Since(start) / time.Duration(times), ok
	}
	list := p.candidates(guess)
	times := make([]time.Duration, len(list)) // 0 of what is out
	fastest := time.Duration(0)
	for i, c := range list {
		if _, ok := run(c, 1); ok { // compiles
			times[i], _ = run(c, 1)
		}
		if times[i] > 0 && (fastest == 0 || times[i] < fastest) {
			fastest = times[i]
		}
	}
	if times[0] == 0 {
		return guess, false
	}
	repeats := int(min(max(tuningTime/fastest, 1), 64))
	for range tuningTurns {
		for i, c := range list {
			if times[i] == 0 || times[i] > slowCandidate*fastest {
				continue
			}
			took, ok := run(c, repeats)
			if !ok {
				return guess, false
			}
			times[i] = min(times[i], took)
			fastest = min(fastest, took)
		}
	}
	best := 0
	for i := range list {
		if times[i] > 0 && times[i] < times[best] {
			best = i
		}
	}
	if times[best] > times[0]-times[0]/32 { // no more than noise
		best = 0
	}
	return list[best], true
}

// scratch returns an operand like the product's output in memory that is the call's alone.
func (p *Product) scratch(r *shader.Recorder) (*core.Operand, error) {
	out := *p.Out
	last := (p.M-1)*p.CRow + (p.N-1)*p.CCol
	for i, n := range p.Batch.Sizes {
		last += (n - 1) * p.Batch.Strides[0][i]
	}
	if p.Gap != 0 {
		last += (p.N - 1) / p.Wide * p.Gap
	}
	out.Offset = int(shader.Base(p.Out) % 4) // as aligned as the output
	m, err := r.Temp(out.DType.Size() * (out.Offset + last + 1))
	out.Memory = m
	return &out, err
}

// like returns a product of contiguous float32 matrices, the first of which is transposed or not.
func like(gpu *shader.Device, m, n, k int, transposed bool) *Product {
	o := &core.Operand{DType: core.Float32}
	p := &Product{gpu: gpu, M: m, N: n, K: k, ARow: k, ACol: 1, BRow: n, BCol: 1, Batch: shader.Loop{Count: 1, Strides: make([][]int, 3)}, A: o, B: o}
	if transposed {
		p.ARow, p.ACol = 1, m
	}
	return p
}

// Measured returns for how many classes of products the fastest way is known on a GPU.
func Measured(gpu *shader.Device) int {
	t := tunerOf(gpu)
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.choices)
}

// Prefer has products of contiguous matrices like this one cut into pieces of K, all their tiles or those of the last wave, as if that had
// been measured to be the fastest, and returns a function that forgets it.
func Prefer(gpu *shader.Device, m, n, k int, transposed bool, pieces int, last bool) (forget func()) {
	class, t := like(gpu, m, n, k, transposed).class(), tunerOf(gpu)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.choices[class] = choice{0, pieces, last}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.choices, class)
	}
}
