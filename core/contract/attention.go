package contract

var (
	// Attention writes the output o [batch, heads, queries, head_dim] and lse, the log-sum-exp of each query's scores,
	// which the backward reads. The mask is expanded to [batch, heads, queries, keys].
	Attention = declare(Contract{Name: "attention", Outs: "o lse", Ins: "q k v mask?", Ints: "causal seed offset heads", Floats: "scale dropout"})
	// AttentionBackward writes the requested gradients.
	AttentionBackward = declare(Contract{Name: "attention_backward", Outs: "dq? dk? dv?", Ins: "q k v mask? o lse do",
		Ints: "causal seed offset heads", Floats: "scale dropout"})
)

// AttentionAttrs are the attributes of [Attention] and [AttentionBackward].
type AttentionAttrs struct {
	Causal       bool
	Seed, Offset int64 // of the random generator, for dropout
	Heads        int64 // of the whole batch that q is a part of, by which dropout counts its words; as many as q has, or more
	Scale        float64
	Dropout      float64 // the probability that an attention weight is zeroed
}
