package op_test

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

// TestResultsShareMemoryAsTheirRowSays writes to every result and looks at the inputs and the other results, and then to
// every input and looks at the results. Only operations whose row says so may show the change. Whole numbers among the
// arguments are also 0 and 1, with which many an operation has nothing to do and might return its input as it is.
func TestResultsShareMemoryAsTheirRowSays(t *testing.T) {
	for _, r := range op.Rows() {
		if r.Func == nil {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			t.Parallel()
			inRank(t, func() {
				shared := false
				for _, s := range r.Samples {
					for _, v := range slices.Concat([]op.Sample{s}, withInts(s, 0), withInts(s, 1)) {
						for l := contiguous; l < numLayouts; l++ {
							m := newMaker(r.Name+s.Name, core.Float64, l, false)
							shared = m.sharing(t, r, v, fmt.Sprintf("%s, %v", v.Name, l)) || shared
						}
					}
				}
				require.Equal(t, r.Shares, shared, "whether a result shares memory with an input")
			})
		})
	}
}

// sharing reports whether a result of a sample shares memory with an input. If the row says that none does, it also
// compares values after writing to each.
func (m *maker) sharing(t *testing.T, r *op.Row, s op.Sample, name string) bool {
	args := m.arguments(s)
	var out []*core.Tensor
	core.NoGrad(func() { out = m.apply(r.Call, args, m.leaves) })
	for _, o := range out {
		if o.Wait() != nil {
			return false
		}
	}
	if r.Shares {
		for _, o := range out {
			for _, x := range m.leaves {
				if o.Storage() == x.Storage() {
					return true
				}
			}
		}
		return false
	}
	all := slices.Concat(out, m.leaves)
	for i, o := range all {
		if o.Numel() == 0 {
			continue
		}
		before := make([][]byte, len(all))
		for j, x := range all {
			before[j] = rawBytes(t, x)
		}
		require.NoError(t, op.CopyInPlace(o, op.Eq(o, core.IntNum(0))).Err(), "%s: result %d", name, i)
		for j, x := range all {
			if i != j && (i < len(out) || j < len(out)) {
				require.Equal(t, before[j], rawBytes(t, x), "%s: a change of tensor %d of %d results and %d inputs shows in tensor %d",
					name, i, len(out), len(m.leaves), j)
			}
		}
	}
	return false
}

func rawBytes(t *testing.T, x *core.Tensor) []byte {
	b, err := x.Bytes()
	require.NoError(t, err)
	return slices.Clone(b)
}

// withInts returns the sample with each of its whole numbers, one after the other, replaced by n. Those of a list are
// replaced one by one and all together.
func withInts(s op.Sample, n int) (out []op.Sample) {
	for i, a := range s.Args {
		for _, v := range intVariants(reflect.ValueOf(a), n) {
			args := slices.Clone(s.Args)
			args[i] = v.Interface()
			out = append(out, op.Sample{Name: fmt.Sprintf("%s, argument %d is %+v", s.Name, i, args[i]), Args: args})
		}
	}
	return out
}

func intVariants(v reflect.Value, n int) (out []reflect.Value) {
	if !v.IsValid() {
		return nil
	}
	replaced := func(change func(c reflect.Value)) {
		c := reflect.New(v.Type()).Elem()
		c.Set(v)
		change(c)
		out = append(out, c)
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		replaced(func(c reflect.Value) { c.SetInt(int64(n)) })
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Int {
			replaced(func(c reflect.Value) { c.Set(reflect.ValueOf(&n)) })
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Int || v.Len() == 0 {
			break
		}
		fill := func(from, to int) {
			replaced(func(c reflect.Value) {
				c.Set(reflect.AppendSlice(reflect.MakeSlice(v.Type(), 0, v.Len()), v))
				for i := from; i < to; i++ {
					c.Index(i).SetInt(int64(n))
				}
			})
		}
		for i := range v.Len() {
			fill(i, i+1)
		}
		if v.Len() > 1 {
			fill(0, v.Len())
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[op.T]() {
			break
		}
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				continue
			}
			for _, f := range intVariants(v.Field(i), n) {
				replaced(func(c reflect.Value) { c.Field(i).Set(f) })
			}
		}
	}
	return out
}
