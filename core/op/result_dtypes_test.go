package op_test

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
)

//go:embed testdata/result_dtypes.txt
var resultDTypes string

const dtypeLetters = "builhgfdcswvq"

var lettersOf = map[core.DType]byte{core.Bool: 'b', core.Uint8: 'u', core.Int32: 'i', core.Int64: 'l',
	core.Float16: 'h', core.BFloat16: 'g', core.Float32: 'f', core.Float64: 'd',
	core.Int8: 'c', core.Int16: 's', core.Uint16: 'w', core.Uint32: 'v', core.Uint64: 'q'}

func dtypeNamed(letter byte) core.DType {
	for d, c := range lettersOf {
		if c == letter {
			return d
		}
	}
	panic(fmt.Sprintf("no dtype %c", letter))
}

// TestResultsHaveTheDTypesOfPyTorch compares with a table: see testdata/result_dtypes.py. What PyTorch refuses is not compared,
// since there is often a result here; nor is what has no kernel here, the number next to a half and
// the order of uint64.
func TestResultsHaveTheDTypesOfPyTorch(t *testing.T) {
	numbers := []*core.Tensor{core.BoolNum(true), core.IntNum(2), core.Num(2.5)}
	for _, line := range strings.Split(strings.TrimSpace(resultDTypes), "\n") {
		f := strings.Fields(line)
		name, kind, words := f[0], f[1], f[2:]
		r := op.Lookup(name)
		if r == nil {
			r = op.Lookup(strings.TrimPrefix(name, "special_"))
		}
		if !assert.NotNil(t, r, name) || words == nil {
			continue
		}
		require.Len(t, words, len(dtypeLetters), line)
		core.Tidy(func() {
			for i, word := range words {
				x := onesOf(dtypeNamed(dtypeLetters[i]), 2, 2)
				switch kind {
				case "one", "along":
					requireDTypes(t, word, r, x)
					continue
				}
				for j := range word {
					x, y := x, (*core.Tensor)(nil)
					switch kind {
					case "number":
						y = numbers[j]
					case "0-d":
						y = onesOf(dtypeNamed(dtypeLetters[j]))
					default:
						y = onesOf(dtypeNamed(dtypeLetters[j]), 2, 2)
					}
					if name == "outer" {
						x, y = op.Ravel(x), op.Ravel(y)
					}
					requireDTypes(t, word[j:j+1], r, x, y)
				}
			}
		})
	}
}

func onesOf(d core.DType, shape ...int) *core.Tensor {
	return op.OnesWith(shape, op.TensorOptions{DType: &d})
}

// requireDTypes calls an operation on tensors, with its other arguments as in its first sample, and compares the dtypes of
// the results.
func requireDTypes(t *testing.T, want string, r *op.Row, tensors ...*core.Tensor) {
	if want == "." {
		return
	}
	args := append([]any{}, r.Samples[0].Args...)
	switch r.Name {
	case "where":
		tensors = append([]*core.Tensor{onesOf(core.Bool, 2, 2)}, tensors...)
	case "clamp":
		args[2] = nil
	case "cat", "stack", "hstack", "vstack":
		args[0], tensors = tensors, nil
	}
	for i, x := range tensors {
		args[i] = x
	}
	if r.Name == "nextafter" && strings.ContainsAny(want, "hg") {
		return
	}
	got := ""
	for _, o := range r.Call(args...) {
		if err := o.Wait(); err != nil {
			if strings.HasSuffix(err.Error(), "not defined for uint64") {
				return
			}
			got += fmt.Sprint(err)
			continue
		}
		got += string(lettersOf[o.DType()])
	}
	assert.Equal(t, want, got, "%s of %v", r.Name, tensors)
}
