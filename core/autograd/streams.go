package autograd

import "github.com/plait-ml/plait/core"

// modeOf returns the mode in which n's derivative runs: on the streams that were current when n was recorded. A leaf's gradient is
// accumulated on the caller's streams.
func (r *Run) modeOf(n *core.Node) core.Mode {
	recorded, here := n.Context(), r.mode.Context()
	if recorded == nil || here.SameStreams(recorded) {
		return r.mode
	}
	if m, ok := r.modes[recorded]; ok {
		return m
	}
	if r.modes == nil {
		r.modes = map[*core.Context]core.Mode{}
	}
	m := r.mode.WithContext(here.OnStreamsOf(recorded))
	r.modes[recorded] = m
	return m
}

// joinStreams makes the caller's streams wait for the other streams on which derivatives ran.
func (r *Run) joinStreams() {
	for _, m := range r.modes {
		r.mode.Context().WaitFor(m.Context())
	}
}
