package data

import (
	"math"
	"math/bits"

	"github.com/plait-ml/plait/core"
)

// Random draws random numbers: those of the sequence (Philox) of a [core.Generator], on the host. It is a function of
// where it was derived from and of how much was drawn, and so the same in every run. It is not safe for concurrent use.
type Random struct {
	seed, counter uint64
	second        uint64 // of the two numbers that a block gives
	have          bool   // second was not handed out yet
}

// What numbers are drawn for: each has its own, so that no two uses see the same.
const (
	purposeOrder = iota
	purposeSample
	purposeWorker
	purposeSplit
)

// newRandom derives a stream from a seed and a path below it.
func newRandom(seed uint64, path ...uint64) *Random {
	g := core.NewGenerator(seed)
	for _, p := range path {
		g = g.Fork(p)
	}
	seed, _ = g.State()
	return &Random{seed: seed}
}

// philox returns the four words of a block (Philox4x32-10: Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As
// Easy as 1, 2, 3", 2011), as core/cpu/include/plait_philox.h does for kernels.
func philox(seed, counter uint64) (c0, c1, c2, c3 uint32) {
	k0, k1 := uint32(seed), uint32(seed>>32)
	c0, c1 = uint32(counter), uint32(counter>>32)
	for range 10 {
		p, q := uint64(c0)*0xd2511f53, uint64(c2)*0xcd9e8d57
		c0, c1, c2, c3 = uint32(q>>32)^c1^k0, uint32(q), uint32(p>>32)^c3^k1, uint32(p)
		k0 += 0x9e3779b9
		k1 += 0xbb67ae85
	}
	return c0, c1, c2, c3
}

// Uint64 returns 64 random bits.
func (r *Random) Uint64() uint64 {
	if r.have = !r.have; !r.have {
		return r.second
	}
	w0, w1, w2, w3 := philox(r.seed, r.counter)
	r.counter++
	r.second = uint64(w3)<<32 | uint64(w2)
	return uint64(w1)<<32 | uint64(w0)
}

// Float64 returns a number from [0, 1).
func (r *Random) Float64() float64 { return float64(r.Uint64()>>11) * 0x1p-53 }

// IntN returns a number from [0, n), each as likely as the other; 0 if n is not positive.
func (r *Random) IntN(n int) int {
	if n <= 0 {
		return 0
	}
	// Lemire, "Fast Random Integer Generation in an Interval", 2019.
	bound := uint64(n)
	hi, lo := bits.Mul64(r.Uint64(), bound)
	if lo < bound {
		for threshold := -bound % bound; lo < threshold; {
			hi, lo = bits.Mul64(r.Uint64(), bound)
		}
	}
	return int(hi)
}

// NormFloat64 returns a normally distributed number with mean 0 and deviation 1.
func (r *Random) NormFloat64() float64 {
	radius := math.Sqrt(-2 * math.Log(1-r.Float64()))
	return radius * math.Cos(2*math.Pi*r.Float64())
}

// Perm returns the numbers from 0 to n-1 in random order.
func (r *Random) Perm(n int) []int {
	p := make([]int, max(n, 0))
	for i := range p {
		j := r.IntN(i + 1)
		p[i] = p[j]
		p[j] = i
	}
	return p
}
