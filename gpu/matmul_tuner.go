package gpu

import (
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/plait-ml/plait/core"
)

// What products choose is estimated, unless it was measured on a GPU of the same kind: on request the first product of a class runs
// in several ways, and the fastest is kept, in the process and in the user's cache. Tiles differ in speed alone; into how many
// pieces the depth is cut, and of which tiles, decides in which order is summed.

const (
	// worthTuning is how many multiplications a product has for which it pays.
	worthTuning = 1 << 17
	// tuningRounds is how often each candidate runs, in turns with the others.
	tuningRounds = 3
	// tuningTime is how long it runs each time.
	tuningTime = time.Millisecond
	// slowCandidate is how many times as long as the fastest one may take to stay one.
	slowCandidate = 3
)

// benchmark says whether products are measured: 1 or -1, and 0 until somebody asks.
var benchmark atomic.Int32

// Benchmark reports whether the fastest way of computing products is measured, which PLAIT_TUNE=1 turns on.
func Benchmark() bool {
	if benchmark.Load() == 0 {
		SetBenchmark(environment().tune == 1)
	}
	return benchmark.Load() > 0
}

// SetBenchmark turns the measuring of products on or off.
func SetBenchmark(on bool) {
	if on {
		benchmark.Store(1)
	} else {
		benchmark.Store(-1)
	}
}

// A productClass is the products for which the same choice is made: sizes rounded up to three bits, and how the factors lie.
type productClass struct{ m, n, k, count, form int }

// class returns that of a product.
func (p *product) class() productClass {
	form := 0
	for i, v := range []bool{
		p.ac == 1, p.deepFours(), p.ac != 1 && p.ar == 1, p.br == 1 && p.bc != 1, p.bc == 1, p.a.DType == core.Float32, p.b.DType == core.Float32,
		p.gather != nil,
	} {
		if v {
			form |= 1 << i
		}
	}
	return productClass{roundUp(p.m), roundUp(p.n), roundUp(p.k), roundUp(p.batch.count), form}
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
func (p *product) choose(r *recorder) choice {
	guess := p.estimate()
	t := r.device.tuner
	c, known := t.find(p)
	if known {
		return c
	}
	if !Benchmark() || p.m*p.n*p.k*p.batch.count < worthTuning {
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
	return t.keep(p.class(), c)
}

// find returns what was measured for the product's class, if it can take it.
func (t *tuner) find(p *product) (choice, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.choices) == 0 {
		return choice{}, false
	}
	c, ok := t.choices[p.class()]
	return c, ok && c.number < len(tiles) && c.pieces >= p.leastPieces() && c.pieces <= max(p.k, 1)
}

// keep notes a choice and returns the one that counts: the first that anybody stored.
func (t *tuner) keep(class productClass, c choice) choice {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.choices[class] = c
	t.cache.store(t.choices, class)
	return t.choices[class]
}

// candidates returns the ways of computing the product that may be the fastest, the estimated one first.
func (p *product) candidates(d *Device, guess choice) []choice {
	list := []choice{guess}
	for number, t := range tiles {
		if number > 0 && (d.adapter.Software && number > 1 || p.m <= t.rows/2 || p.n <= t.cols/2) {
			continue
		}
		least := p.leastPieces()
		cut, _ := p.cut(number)
		for _, n := range []int{least, cut.pieces, cut.pieces / 2, 2 * cut.pieces} {
			c := choice{number, n, cut.last && n > 1}
			if n >= least && (n == least || p.k/n >= 64) && 4*p.m*p.n*p.batch.count*n <= d.limits.Binding && !slices.Contains(list, c) {
				list = append(list, c)
			}
		}
	}
	return list
}

// measure returns the fastest choice; false if it cannot tell. The product's results go to memory of its own.
func (p *product) measure(r *recorder, guess choice) (choice, bool) {
	out, err := p.scratch(r)
	if err != nil {
		return guess, false
	}
	trial := *p
	trial.out = out
	kept := len(r.temps)
	run := func(c choice, times int) (time.Duration, bool) {
		r.settle()
		start := time.Now()
		for range times {
			err := trial.by(r, c)
			r.giveBack(kept)
			if err != nil {
				return 0, false
			}
		}
		r.settle()
		return time.Since(start) / time.Duration(times), r.device.lost.Load() == nil
	}
	list := p.candidates(r.device, guess)
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
	for range tuningRounds {
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
func (p *product) scratch(r *recorder) (*core.Operand, error) {
	out := *p.out
	last := (p.m-1)*p.cr + (p.n-1)*p.cc
	for i, n := range p.batch.sizes {
		last += (n - 1) * p.batch.strides[0][i]
	}
	if p.gap != 0 {
		last += (p.n - 1) / p.wide * p.gap
	}
	out.Offset = int(base(p.out) % 4) // as aligned as the output
	m, err := r.temp(out.DType.Size() * (out.Offset + last + 1))
	out.Memory = m
	return &out, err
}
