package contract

import "github.com/plait-ml/plait/core"

var (
	// Attention writes the output o [batch, heads, queries, head_dim] and lse, the log-sum-exp of each query's scores,
	// which the backward reads. The mask is expanded to [batch, heads, queries, keys].
	Attention = declare(Contract{Name: "attention", Outs: "o lse", Ins: "q k v mask?", Ints: "causal seed offset", Floats: "scale dropout"})
	// AttentionBackward writes the requested gradients.
	AttentionBackward = declare(Contract{Name: "attention_backward", Outs: "dq? dk? dv?", Ins: "q k v mask? o lse do",
		Ints: "causal seed offset", Floats: "scale dropout"})
)

// AttentionAttrs are the attributes of [Attention] and [AttentionBackward].
type AttentionAttrs struct {
	Causal       bool
	Seed, Offset int64 // of the random generator, for dropout
	Scale        float64
	Dropout      float64 // the probability that an attention weight is zeroed
}

// AddTo adds the attributes to a call and returns it.
func (a AttentionAttrs) AddTo(c *core.Call) *core.Call {
	return c.Int(Flag(a.Causal), a.Seed, a.Offset).Float(a.Scale, a.Dropout)
}

// AttentionOf reads the attributes of a call.
func AttentionOf(c *core.Call) AttentionAttrs {
	return AttentionAttrs{c.Ints[0] != 0, c.Ints[1], c.Ints[2], c.Floats[0], c.Floats[1]}
}
