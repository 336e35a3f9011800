package optim

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
)

// Hyper holds hyperparameters by PyTorch's names. Pairs are two entries, such as beta1 and beta2, and flags are 0 or 1.
// What is left out has the algorithm's default, see [Defaults].
type Hyper map[string]float64

// Defaults returns the hyperparameters that an algorithm takes, with their default values, or nil for an unknown name.
func Defaults(algorithm string) Hyper {
	if a := algorithms[algorithm]; a != nil {
		return maps.Clone(a.defaults)
	}
	return nil
}

// Algorithms returns the names of the algorithms, sorted.
func Algorithms() []string { return slices.Sorted(maps.Keys(algorithms)) }

// merge returns h completed by base; names that base does not have are errors.
func merge(op string, base, h Hyper) (Hyper, error) {
	out := maps.Clone(base)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if _, ok := base[name]; !ok {
			return nil, core.Errorf(core.ValueError, op, "unknown hyperparameter, got %q, want one of %s", name,
				strings.Join(slices.Sorted(maps.Keys(base)), ", "))
		}
		out[name] = h[name]
	}
	return out, nil
}

// A limit is what a hyperparameter must satisfy.
type limit struct {
	name string
	want string
	ok   func(v float64) bool
}

func atLeastZero(names ...string) (l []limit) {
	for _, n := range names {
		l = append(l, limit{n, "at least 0", func(v float64) bool { return v >= 0 }})
	}
	return l
}

func fraction(names ...string) (l []limit) {
	for _, n := range names {
		l = append(l, limit{n, "in [0, 1)", func(v float64) bool { return v >= 0 && v < 1 }})
	}
	return l
}

func flag(names ...string) (l []limit) {
	for _, n := range names {
		l = append(l, limit{n, "0 or 1", func(v float64) bool { return v == 0 || v == 1 }})
	}
	return l
}

// check returns an error for the first limit that h breaks.
func check(op string, h Hyper, limits []limit) error {
	for _, l := range limits {
		if !l.ok(h[l.name]) {
			return core.Errorf(core.ValueError, op, "%s must be %s, got %v", l.name, l.want, h[l.name])
		}
	}
	return nil
}

// String lists the hyperparameters sorted by name.
func (h Hyper) String() string {
	var b strings.Builder
	for i, name := range slices.Sorted(maps.Keys(h)) {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s=%v", name, h[name])
	}
	return b.String()
}
