package matmul

import (
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/gpu/shader"
)

// A product's choice is estimated, unless it was measured on a GPU of the same kind. If measuring is on, the first product of a class runs
// in several ways, and the fastest is kept in the process and in the user's cache. The tile affects speed only. The number of pieces of K,
// and which tiles are split, decide the order of summation.

const (
	// minTuningWork is the least number of multiplications of a product that is measured.
	minTuningWork = 1 << 17
	// tuningRounds is how often each candidate is timed; the candidates alternate.
	tuningRounds = 3
	// tuningTime is about how long the fastest candidate runs each time.
	tuningTime = time.Millisecond
	// maxSlowdown is how many times slower than the fastest a candidate may be to be timed again.
	maxSlowdown = 3
)

// A productClass is a set of products that share a choice: sizes are rounded up to three bits, and layout has the memory layouts of the
// factors.
type productClass struct{ m, n, k, count, layout int }

// class returns the class of a product.
func (p *Product) class() productClass {
	layout := 0
	for i, v := range []bool{
		p.ACol == 1, p.vec4AlongK(), p.ACol != 1 && p.ARow == 1, p.BRow == 1 && p.BCol != 1, p.BCol == 1, p.A.DType == core.Float32, p.B.DType == core.Float32,
		p.Gather != nil, p.double,
	} {
		if v {
			layout |= 1 << i
		}
	}
	return productClass{roundUp(p.M), roundUp(p.N), roundUp(p.K), roundUp(p.Batch.Count), layout}
}

// roundUp returns the next number of which all but the first three bits are 0.
func roundUp(n int) int {
	low := 1<<max(bits.Len(uint(n))-3, 0) - 1
	return (n + low) &^ low
}

// A tuner holds the choices measured on one kind of adapter. All devices of the kind share it.
type tuner struct {
	mu        sync.RWMutex
	choices   map[productClass]choice
	cache     tuningCache
	measuring sync.Mutex // held while a product is measured
}

// choose returns how to compute the product, and measures it if that is on and worth it.
func (p *Product) choose(r *shader.Recorder) choice {
	guess := p.estimate()
	t := tunerOf(r.GPU)
	c, known := t.find(p)
	if known {
		return c
	}
	if b := r.GPU.Benchmark; b == nil || !b.Load() || p.M*p.N*p.K*p.Batch.Count < minTuningWork {
		return guess
	}
	t.measuring.Lock()
	defer t.measuring.Unlock()
	if c, known = t.find(p); known {
		return c
	}
	c, ok := p.measure(r, guess)
	if !ok {
		return guess
	}
	return t.keep(p, c)
}

// find returns the measured choice of the product's class, if the product can use it.
func (t *tuner) find(p *Product) (choice, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.choices) == 0 {
		return choice{}, false
	}
	c, ok := t.choices[p.class()]
	return c, ok && c.tile < len(p.gpu.Tiles) && c.pieces >= p.minPieces() && c.pieces <= max(p.K, 1)
}

// keep stores a choice and returns the one to use: if another process has stored one first, that one.
func (t *tuner) keep(p *Product, c choice) choice {
	class := p.class()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.choices[class] = c
	t.cache.store(p.gpu.Tiles, t.choices, class)
	return t.choices[class]
}

// candidates returns the choices to measure, with the estimated one first.
func (p *Product) candidates(guess choice) []choice {
	list := []choice{guess}
	for number, t := range p.gpu.Tiles {
		if number > 0 && (p.gpu.Software && number > 1 || p.M <= t.Rows/2 || p.N <= t.Cols/2 || p.skips(t)) {
			continue
		}
		least := p.minPieces()
		cut, _ := p.bestSplit(number)
		for _, n := range []int{least, cut.pieces, cut.pieces / 2, 2 * cut.pieces} {
			c := choice{number, n, cut.lastWave && n > 1}
			if n >= least && (n == least || p.K/n >= 64) && p.realSize()*p.M*p.N*p.Batch.Count*n <= p.gpu.Binding && !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	return list
}

// measure returns the fastest choice; false if measuring failed. The results go to scratch memory.
func (p *Product) measure(r *shader.Recorder, guess choice) (choice, bool) {
	out, err := p.scratch(r)
	if err != nil {
		return guess, false
	}
	trial := *p
	trial.Out = out
	kept := r.Temps()
	run := func(c choice, times int) (time.Duration, bool) {
		r.Finish()
		start := time.Now()
		for range times {
			err := trial.compute(r, c)
			r.Release(kept)
			if err != nil {
				return 0, false
			}
		}
		ok := r.Finish()
		return time.Since(start) / time.Duration(times), ok
	}
	list := p.candidates(guess)
	times := make([]time.Duration, len(list)) // 0 for candidates that failed
	fastest := time.Duration(0)
	for i, c := range list {
		if _, ok := run(c, 1); ok { // compiles the programs
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
	for range tuningRounds {
		for i, c := range list {
			if times[i] == 0 || times[i] > maxSlowdown*fastest {
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
	if times[best] > times[0]-times[0]/32 { // the difference is within noise
		best = 0
	}
	return list[best], true
}

// scratch returns an operand with the layout of the product's output in scratch memory.
func (p *Product) scratch(r *shader.Recorder) (*core.Operand, error) {
	out := *p.Out
	last := (p.M-1)*p.CRow + (p.N-1)*p.CCol
	for i, n := range p.Batch.Sizes {
		last += (n - 1) * p.Batch.Strides[0][i]
	}
	if p.Gap != 0 {
		last += (p.N - 1) / p.GapEvery * p.Gap
	}
	out.Offset = int(shader.Base(p.Out) % 4) // with the alignment of the output
	m, err := r.Temp(out.DType.Size() * (out.Offset + last + 1))
	out.Memory = m
	return &out, err
}

// contiguousProduct returns a product of contiguous float32 matrices. With transposed, a is stored transposed.
func contiguousProduct(gpu *shader.Device, m, n, k int, transposed bool) *Product {
	o := &core.Operand{DType: core.Float32}
	p := &Product{gpu: gpu, M: m, N: n, K: k, ARow: k, ACol: 1, BRow: n, BCol: 1, Batch: shader.Loop{Count: 1, Strides: make([][]int, 3)}, Out: o, A: o, B: o}
	if transposed {
		p.ARow, p.ACol = 1, m
	}
	return p
}

// Measured returns the number of classes that have a measured choice on a GPU.
func Measured(gpu *shader.Device) int {
	t := tunerOf(gpu)
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.choices)
}

// Prefer makes products of contiguous matrices of these sizes use the given choice, as if it had been measured to be the fastest. It
// returns a function that removes the choice.
func Prefer(gpu *shader.Device, m, n, k int, transposed bool, pieces int, last bool) (forget func()) {
	class, t := contiguousProduct(gpu, m, n, k, transposed).class(), tunerOf(gpu)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.choices[class] = choice{0, pieces, last}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.choices, class)
	}
}
