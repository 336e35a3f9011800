package data

import (
	"math"
	"math/bits"
)

// Random draws random numbers. It is a function of where it was derived from and of how much was drawn, and so the same
// in every run. It is not safe for concurrent use.
type Random struct {
	key, counter uint64
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
	key := mix(seed + golden)
	for _, p := range path {
		key = mix(key ^ mix(p+golden))
	}
	return &Random{key: key}
}

const golden = 0x9e3779b97f4a7c15

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Uint64 returns 64 random bits.
func (r *Random) Uint64() uint64 {
	r.counter++
	return mix(r.key + r.counter*golden)
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
