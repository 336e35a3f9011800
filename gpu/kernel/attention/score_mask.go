package attention

import (
	"fmt"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op/expr"
	"github.com/plait-ml/plait/gpu/kernel/internal/primitive"
	"github.com/plait-ml/plait/gpu/shader"
)

// A scoreMask writes the code that applies scale, mask and dropout to a block of scores. Strings are expressions.
type scoreMask struct {
	a                   *attentionProblem
	scale               string
	queries, keys       string
	heads, group        string
	mask                string
	maskSteps           [4]string
	boolean             bool
	seed, offset, limit string
	allHeads            string // by which dropout counts
	padded, by          string
	rowsAreKeys         bool
}

// scoreMask adds the operands and parameters of mask and dropout to a program.
func (a *attentionProblem) scoreMask(s *shader.Builder, rowsAreKeys bool) *scoreMask {
	c := &scoreMask{a: a, rowsAreKeys: rowsAreKeys}
	c.scale, c.queries, c.keys = s.Float(a.Scale), s.Uint(a.queries), s.Uint(a.keys)
	c.heads, c.group = s.Uint(a.kv*a.group), s.Uint(a.group)
	s.Flag(a.Causal)
	if s.Flag(a.mask != nil) {
		for i, n := range a.mask.Strides {
			c.maskSteps[i] = s.Uint(n)
		}
		kind := expr.Number
		if c.boolean = s.Flag(a.mask.DType == core.Bool); c.boolean {
			kind = expr.Logic
		}
		c.mask = s.In("mask", a.mask, expr.F32, kind)
	}
	if s.Flag(a.Dropout > 0) {
		keep, by := 1-a.Dropout, 0.0
		if keep > 0 {
			by = 1 / keep
		}
		c.seed, c.offset, c.limit, c.by = s.Long(a.Seed), s.Long(a.Offset), s.Long(primitive.KeepLimit(keep)), s.Float(by)
		c.padded, c.allHeads = s.Uint((a.keys+3)/4), s.Uint(int(a.Heads))
	}
	return c
}

// functions declares the function kept, which returns the dropout factors of the weights of a query and four keys.
func (c *scoreMask) functions(w *shader.Text) {
	if c.seed == "" {
		return
	}
	w.Func("kept(seed: pair, offset: pair, limit: pair, row: u32, blocks: u32, key: u32, scale: real) -> real4",
		`let w = plait_philox(seed, plait_add_i64(plait_add_i64(offset, plait_wide(row, blocks)), pair(key / 4u, 0u)));
  return select(real4(), real4(scale), w < word4(limit.x) || bool4(limit.y > 0u));`)
}

// scores scales block NAME, whose first row and column are row0 and col0, adds the mask, and sets hidden scores to minus infinity. The
// program must define batch and head.
func (c *scoreMask) scores(b *blockText, name, row0, col0 string) {
	b.eachRow(fmt.Sprintf("  %s_$i_0 = %s_$i_0 * %s;\n", name, name, c.scale))
	query0, key0, queries, keys := row0, col0, blockSide, blockSpan
	if c.rowsAreKeys {
		query0, key0, queries, keys = col0, row0, blockSpan, blockSide
	}
	hidden := "key >= " + c.keys + " || query >= " + c.queries
	test := fmt.Sprintf("%s + %du > %s || %s + %du > %s", key0, keys, c.keys, query0, queries, c.queries)
	if c.a.Causal {
		hidden += " || key > query"
		test += fmt.Sprintf(" || %s + %du > %s", key0, keys-1, query0)
	}
	if c.mask != "" {
		b.Add("  let mask_head = %s + batch * %s + head * %s;", c.mask, c.maskSteps[0], c.maskSteps[1])
		b.Add("  {")
	} else {
		b.Add("  if (%s) {", test)
	}
	for j := range 4 {
		component := fmt.Sprintf("%s_$i_0.%s", name, shader.Component(j))
		row, col := fmt.Sprintf("%s + ty * 4u + $iu", row0), fmt.Sprintf("%s + tx * 4u + %du", col0, j)
		query, key := row, col
		if c.rowsAreKeys {
			query, key = col, row
		}
		text := fmt.Sprintf("  {\n    let query = %s;\n    let key = %s;\n    var v = %s;\n", query, key, component)
		if c.mask != "" {
			value := fmt.Sprintf("ld_mask(mask_head + query * %s + key * %s)", c.maskSteps[2], c.maskSteps[3])
			if c.boolean {
				text += fmt.Sprintf("    v = select(-%s, v, %s);\n", shader.Infinity, value)
			} else {
				text += fmt.Sprintf("    v = v + %s;\n", value)
			}
		}
		b.eachRow(text + fmt.Sprintf("    %s = select(v, -%s, %s);\n  }\n", component, shader.Infinity, hidden))
	}
	b.Add("  }")
}

// drop declares registers keep_I_0, the dropout factors of a block.
func (c *scoreMask) drop(b *blockText, row0, col0 string) {
	if c.seed == "" {
		return
	}
	call := func(query, key string) string {
		return fmt.Sprintf("kept(%s, %s, %s, (batch * %s + head) * %s + %s, %s, %s, %s)",
			c.seed, c.offset, c.limit, c.allHeads, c.queries, query, c.padded, key, c.by)
	}
	if !c.rowsAreKeys {
		b.eachRow(fmt.Sprintf("  let keep_$i_0 = %s;\n", call(row0+" + ty * 4u + $iu", col0+" + tx * 4u")))
		return
	}
	for j := range 4 {
		b.Add("  let keys_%d = %s;", j, call(fmt.Sprintf("%s + tx * 4u + %du", col0, j), row0+" + ty * 4u"))
	}
	b.eachRow("  let keep_$i_0 = real4(keys_0.$c, keys_1.$c, keys_2.$c, keys_3.$c);\n")
}

// dropped returns the text that multiplies a weight with its dropout factor; empty without dropout.
func (c *scoreMask) dropped() string {
	if c.seed == "" {
		return ""
	}
	return " * keep_$i_0"
}
