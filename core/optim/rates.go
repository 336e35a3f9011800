package optim

import "math"

// Rates returns an optimiser without parameters that stands for one elsewhere: it carries the learning rates of that
// one's groups, those that schedules start from, and momenta, so that schedules can be made for it. An absent list of
// momenta says that there are none; otherwise the shortest list says how many groups there are.
func Rates(current, base, momenta []float64) *Optimizer {
	o := &Optimizer{algorithm: &algorithm{name: "optimizer"}}
	n := min(len(current), len(base))
	if momenta != nil {
		n = min(n, len(momenta))
	}
	for i, lr := range current[:n] {
		h := Hyper{"lr": lr}
		if momenta != nil {
			h["momentum"] = momenta[i]
		}
		g := &Group{optimizer: o, initialLR: base[i], scheduled: true}
		g.hyper.Store(&h)
		o.groups = append(o.groups, g)
	}
	return o
}

// Continue puts a schedule at an epoch, with the rates that its optimiser has now.
func (s *Schedule) Continue(epoch float64, current []float64) {
	s.epoch = epoch
	for i, lr := range current[:min(len(current), len(s.set))] {
		s.put(i, lr)
	}
}

// AnnealSWA returns the rate at an epoch of a way from where it was at epoch 0 to target, epochs long and along half a
// wave of a cosine or, if linear, along a line, from the rate at the epoch before. Stochastic weight averaging ends with
// it: Izmailov et al. 2018, "Averaging weights leads to wider optima and better generalization".
func AnnealSWA(rate, target float64, epoch, epochs int, linear bool) float64 {
	if epochs == 0 {
		return target
	}
	part := func(epoch int) float64 {
		t := max(0, min(1, float64(epoch)/float64(epochs)))
		if linear {
			return t
		}
		return (1 - math.Cos(math.Pi*t)) / 2
	}
	before, now := part(max(0, epoch-1)), part(epoch)
	start := target
	if before != 1 {
		start = (rate - target*before) / (1 - before)
	}
	return target*now + start*(1-now)
}
