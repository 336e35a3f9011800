package optim

// Rates returns an optimiser without parameters that stands for one elsewhere: it carries the learning rates of that
// one's groups, those that schedules start from, and momenta, so that schedules can be made for it. An absent list of
// momenta says that there are none.
func Rates(current, base, momenta []float64) *Optimizer {
	o := &Optimizer{algorithm: &algorithm{name: "optimizer"}}
	for i, lr := range current {
		h := Hyper{"lr": lr}
		if momenta != nil {
			h["momentum"] = momenta[i]
		}
		o.groups = append(o.groups, &Group{optimizer: o, hyper: h, initialLR: base[i], scheduled: true})
	}
	return o
}

// Continue puts a schedule at an epoch, with the rates that its optimiser has now.
func (s *Schedule) Continue(epoch float64, current []float64) {
	s.epoch = epoch
	for i, lr := range current {
		s.put(i, lr)
	}
}
