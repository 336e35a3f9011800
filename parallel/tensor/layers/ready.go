package layers

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
)

// The names, within a block, of the layers that make a block's heads and hidden features, and of those that end there. They are those of
// Python's ready_plan.
var (
	columnNames = regexp.MustCompile(`(^|\.)(q|k|v|qkv|[qkv]_proj|qkv_proj|w[qkv]|wqkv|to_(q|k|v|kv|qkv)|query|key|value|query_key_value|in_proj|c_attn` +
		`|w1|w3|wi|wi_?[01]|(gate|up|gate_up)_proj|gate|up|fc1|fc_in|c_fc|linear1|dense_h_to_4h|intermediate\.dense)$`)
	rowNames = regexp.MustCompile(`(^|\.)(o|wo|o_proj|out_proj|out|proj|to_out(\.0)?|c_proj|dense` +
		`|w2|down_proj|down|fc2|fc_out|linear2|dense_4h_to_h|output\.dense)$`)
	numbered = regexp.MustCompile(`(^|_)\d+$`) // a part of a name between dots
)

// ReadyOptions are the options of [Ready].
type ReadyOptions struct {
	// Sequence divides the sequence, dimension 1, between the layers that are divided: norms and what is added up there work on a part of it.
	// A reduce-scatter and an all-gather take the place of each all-reduce.
	Sequence bool
	// Pieces are those of [Columns] and [Rows], of the divided layers of blocks.
	Pieces int
}

// Ready returns a plan for [Divide] of a model whose layers have the usual names.
//
// In each block, which has a number in its name such as "layers.3", it divides the layers that make heads and hidden features by columns, and
// those that return to the model's width by rows: one all-reduce forward and one backward for each attention and each feed-forward network.
// It knows the names of GPT, Llama, BERT, T5 and ViT models and of their relatives, [nn.MultiheadAttention], and pairs of layers in an [nn.Sequential]. The vocabulary is divided if a [nn.Linear] has the sizes of a [nn.Embedding]; the scores of such
// a model are a distributed tensor, divided along the vocabulary.
//
// It fails if no layer has a known name.
func Ready(m nn.Module, o ReadyOptions) (map[string]Style, error) {
	if err := nn.Err(m); err != nil {
		return nil, err
	}
	whole, between := core.Replicate(), core.Replicate()
	if o.Sequence {
		between = core.Shard(1)
	}
	column := Columns{Pieces: o.Pieces}
	row := Rows{Input: &whole, Output: between, Local: !o.Sequence, Pieces: o.Pieces}
	plan := map[string]Style{}
	var linear []string
	modules := nn.Modules(m)
	for _, p := range modules {
		parts := strings.Split(p.Name, ".")
		switch p.Module.(type) {
		case *nn.Sequential, *nn.MultiheadAttention: // may be a block itself
		default:
			parts = parts[:len(parts)-1]
		}
		inBlock := slices.ContainsFunc(parts, numbered.MatchString)
		switch l := p.Module.(type) {
		case *nn.Linear:
			linear = append(linear, p.Name)
			switch {
			case plan[p.Name] != nil || !inBlock:
			case columnNames.MatchString(p.Name):
				plan[p.Name] = column
			case rowNames.MatchString(p.Name):
				plan[p.Name] = row
			}
		case *nn.MultiheadAttention:
			if inBlock {
				plan[p.Name] = Heads{}
			}
		case *nn.Sequential:
			if first, second, ok := pair(l); ok && inBlock {
				prefix := p.Name
				if prefix != "" {
					prefix += "."
				}
				plan[prefix+first], plan[prefix+second] = column, row
			}
		case *nn.LayerNorm, *nn.RMSNorm:
			if o.Sequence {
				plan[p.Name] = Sequence{}
			}
		}
	}
	if !slices.ContainsFunc(slices.Collect(maps.Values(plan)), func(s Style) bool { return s == Style(column) || s == Style(Heads{}) }) {
		known := strings.Join(linear, ", ")
		if known == "" {
			known = "none"
		}
		return nil, core.Errorf(core.ValueError, "ready plan", "no layer has a name that is known to be divided, such as blocks.0.qkv or layers.0.self_attn.q_proj; the linear layers are %s. Give a plan", known)
	}
	if table, head, ok := vocabulary(modules); ok {
		plan[table], plan[head] = Rows{Output: between, Local: !o.Sequence}, Columns{}
	}
	return plan, nil
}

// pair returns the names of two linear layers of which the second undoes what the first does to the width, if a sequence has just these.
func pair(s *nn.Sequential) (first, second string, ok bool) {
	var names []string
	var list []*nn.Linear
	for _, p := range nn.Modules(s) {
		if l, is := p.Module.(*nn.Linear); is && !strings.Contains(p.Name, ".") {
			names, list = append(names, p.Name), append(list, l)
		}
	}
	if len(list) != 2 || list[0].Weight == nil || list[1].Weight == nil {
		return "", "", false
	}
	back := slices.Clone(list[1].Weight.Shape())
	slices.Reverse(back)
	return names[0], names[1], slices.Equal(list[0].Weight.Shape(), back)
}

// vocabulary returns the names of the embedding of a vocabulary and of the layer that scores it, if a model has both.
func vocabulary(modules []nn.Part) (table, head string, ok bool) {
	for _, p := range slices.Backward(modules) {
		l, is := p.Module.(*nn.Linear)
		if !is || l.Weight == nil {
			continue
		}
		for _, q := range modules {
			if e, is := q.Module.(*nn.Embedding); is && e.Weight != nil && slices.Equal(e.Weight.Shape(), l.Weight.Shape()) {
				return q.Name, p.Name, true
			}
		}
	}
	return "", "", false
}
