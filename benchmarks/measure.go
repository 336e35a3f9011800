package main

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/plait-ml/plait/core"
)

// bench runs the measurements of a section. After an error the others do nothing.
type bench struct {
	section string
	threads int
	emit    *json.Encoder
	err     error
}

// rounds is how often the two sides of a ratio take turns.
const rounds = 7

// compare returns the best seconds of a call of each function. A turn repeats a function until it takes a while, so that
// the clock and its callers do not count.
func (b *bench) compare(ours, theirs func() error) (float64, float64) {
	first, second := b.repeats(ours), b.repeats(theirs)
	best := [2]float64{math.Inf(1), math.Inf(1)}
	for range rounds {
		best[0] = min(best[0], b.time(ours, first))
		best[1] = min(best[1], b.time(theirs, second))
	}
	return best[0], best[1]
}

// alone is compare with nobody.
func (b *bench) alone(fn func() error) float64 {
	best, n := math.Inf(1), b.repeats(fn)
	for range rounds {
		best = min(best, b.time(fn, n))
	}
	return best
}

// turn is how long one turn should take.
const turn = 20 * time.Millisecond

// repeats warms fn up and returns how many calls of it fill a turn.
func (b *bench) repeats(fn func() error) int {
	n := 1
	for b.err == nil {
		s := b.time(fn, n) * float64(n)
		if s >= turn.Seconds() || n >= 1<<20 {
			break
		}
		n = max(n+1, int(float64(n)*min(turn.Seconds()/max(s, 1e-9), 100)))
	}
	return n
}

// time returns the seconds of one of n calls, up to the end of what they enqueued: as in a program, only the last is waited
// for.
func (b *bench) time(fn func() error, n int) float64 {
	if b.err != nil {
		return math.NaN()
	}
	start := time.Now()
	for range n {
		if err := fn(); err != nil {
			b.err = err
			return math.NaN()
		}
	}
	if err := core.Synchronize(); err != nil {
		b.err = err
	}
	return time.Since(start).Seconds() / float64(n)
}

// add reports figures of which the larger is the better.
func (b *bench) add(name string, ours, against, goal float64) {
	b.put(name, ours, against, ours/against, goal)
}

// addTimes reports figures of which the smaller is the better.
func (b *bench) addTimes(name string, ours, against, goal float64) {
	b.put(name, ours, against, against/ours, goal)
}

func (b *bench) put(name string, ours, against, ratio, goal float64) {
	if b.err == nil {
		b.err = b.emit.Encode(result{b.section, name, b.threads, figure(ours), figure(against), ratio, goal})
	}
}

// figure shows three digits.
func figure(x float64) string {
	if x >= 1000 || x == 0 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.*f", max(0, 2-int(math.Floor(math.Log10(x)))), x)
}
