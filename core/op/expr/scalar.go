package expr

import "math"

func choose[V float64 | int64](c bool, a, b V) V {
	if c {
		return a
	}
	return b
}

// signFloat is 0 for a NaN.
func signFloat(x float64) float64 { return truth(x > 0) - truth(x < 0) }

// minFloat and maxFloat return NaN if either argument is one.
func minFloat(a, b float64) float64 {
	if a < b || a != a {
		return a
	}
	return b
}

func maxFloat(a, b float64) float64 {
	if a > b || a != a {
		return a
	}
	return b
}

// remainderFloat has the sign of the divisor.
func remainderFloat(a, b float64) float64 {
	r := math.Mod(a, b)
	if r != 0 && (b < 0) != (r < 0) {
		r += b
	}
	return r
}

// floorDivideFloat is the quotient that belongs to remainderFloat, which can differ from floor(a/b) where a/b rounds up to
// an integer.
func floorDivideFloat(a, b float64) float64 {
	if b == 0 {
		return a / b
	}
	r := math.Mod(a, b)
	q := (a - r) / b
	if r != 0 && (b < 0) != (r < 0) {
		q--
	}
	if q == 0 {
		return math.Copysign(0, a/b)
	}
	f := math.Floor(q)
	if q-f > 0.5 {
		f++
	}
	return f
}

func absInt(x int64) int64 { return choose(x < 0, -x, x) }

func signInt(x int64) int64 { return int64(signFloat(float64(x))) }

// Division by zero gives 0 here; kernels report it.
func truncDivideInt(a, b int64) int64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func fmodInt(a, b int64) int64 {
	if b == 0 {
		return 0
	}
	return a % b
}

func remainderInt(a, b int64) int64 {
	r := fmodInt(a, b)
	if r != 0 && (b < 0) != (r < 0) {
		r += b
	}
	return r
}

func floorDivideInt(a, b int64) int64 {
	q := truncDivideInt(a, b)
	if fmodInt(a, b) != 0 && (a < 0) != (b < 0) {
		q--
	}
	return q
}

// powInt wraps; a negative power of anything but 1 and -1 is 0.
func powInt(a, n int64) int64 {
	if n < 0 {
		switch a {
		case 1:
			return 1
		case -1:
			return choose(n&1 == 0, int64(1), -1)
		}
		return 0
	}
	r := int64(1)
	for ; n > 0; n >>= 1 {
		if n&1 != 0 {
			r *= a
		}
		a *= a
	}
	return r
}

// Shifting by 64 or more, or by a negative count, shifts everything out.
func shlInt(a, n int64) int64 {
	if n < 0 || n > 63 {
		return 0
	}
	return a << n
}

func shrInt(a, n int64) int64 {
	if n < 0 || n > 63 {
		n = 63
	}
	return a >> n
}

func gcdInt(a, b int64) int64 {
	for b != 0 {
		a, b = b, fmodInt(a, b)
	}
	return absInt(a)
}

// lgamma is infinite at both infinities, as in C.
func lgamma(x float64) float64 {
	y, _ := math.Lgamma(x)
	if math.IsInf(x, -1) {
		return -y
	}
	return y
}

// digamma is the derivative of lgamma: the reflection formula below 0, the recurrence up to 10, then the asymptotic
// series. It is NaN at the negative integers and -inf at 0.
func digamma(x float64) float64 {
	if x == 0 {
		return math.Copysign(math.Inf(1), -x)
	}
	if x < 0 {
		if x == math.Floor(x) {
			return math.NaN()
		}
		_, f := math.Modf(x)
		return digamma(1-x) - math.Pi/math.Tan(math.Pi*f)
	}
	r := 0.0
	for ; x < 10; x++ {
		r -= 1 / x
	}
	z := 1 / (x * x)
	series := z * (1.0/12 - z*(1.0/120-z*(1.0/252-z*(1.0/240-z*(1.0/132-z*(691.0/32760-z/12))))))
	return r + math.Log(x) - 0.5/x - series
}

// zeta is Hurwitz's: the sum of (k+q)^-s over k >= 0, for s > 1, by Euler and Maclaurin's formula after a direct sum up
// to k+q >= 10.
func zeta(s, q float64) float64 {
	switch {
	case s == 1:
		return math.Inf(1)
	case s < 1 || math.IsNaN(s) || math.IsNaN(q):
		return math.NaN()
	case q <= 0 && q == math.Floor(q):
		return math.Inf(1)
	case math.IsInf(q, 1):
		return 0
	case q <= 0 && s != math.Floor(s):
		return math.NaN()
	}
	if q < 0 {
		// The terms below zero are, up to their sign, the head of another such sum.
		f := q - math.Floor(q)
		return zeta(s, f) + math.Pow(-1, s)*(zeta(s, 1-f)-zeta(s, 1-q))
	}
	sum := 0.0
	for ; q < 10; q++ {
		sum += math.Pow(q, -s)
	}
	power := math.Pow(q, -s)
	sum += power*q/(s-1) + power/2
	// The terms B(2j)/(2j)! s(s+1)...(s+2j-2) q^(-s-2j+1).
	term := power * s / q
	for j, b := range zetaTerms {
		sum += b * term
		term *= (s + float64(2*j+1)) * (s + float64(2*j+2)) / (q * q)
	}
	return sum
}

// The Bernoulli numbers B(2j) over (2j)!.
var zetaTerms = [...]float64{
	1.0 / 12, -1.0 / 720, 1.0 / 30240, -1.0 / 1209600, 1.0 / 47900160,
	-691.0 / 1307674368000, 1.0 / 74724249600, -3617.0 / 10670622842880000,
}
