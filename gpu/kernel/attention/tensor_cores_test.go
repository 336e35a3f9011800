package attention

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/contract"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu/cuda/nvrtc"
	"github.com/plait-ml/plait/gpu/shader"
)

// A recording is a runtime that keeps the programs of a call, by name, and runs nothing.
type recording struct {
	shader.Runtime
	programs map[string]*shader.Source
	keys     map[shader.Key]string // the text of each key
}

func (r *recording) Lookup(shader.Key) (shader.Program, error) { return nil, nil }

func (r *recording) Compile(key shader.Key, source *shader.Source) (shader.Program, error) {
	if text, ok := r.keys[key]; ok && text != source.Text {
		return nil, fmt.Errorf("two texts have the key %v", key)
	}
	r.programs[key.Name], r.keys[key] = source, source.Text
	return source, nil
}

func (r *recording) Launch(_ shader.Program, x, _, _ int, _ []uint32, _ []core.Memory) error {
	if x == 0 {
		return fmt.Errorf("an empty grid")
	}
	return nil
}

func (r *recording) Temp(bytes int) (core.Memory, error) { return core.Memory{Size: bytes}, nil }

// A tensorCase is a call of attention for tensor cores.
type tensorCase struct {
	dtype         core.DType
	dim, valueDim int
	attrs         contract.AttentionAttrs
	mask          core.DType
	masked        bool
	partly        bool // only dk is wanted
	odd           bool // rows are not aligned
}

// record records the forward and the backward call on a GPU of a compute capability.
func (c tensorCase) record(t *testing.T, r *recording, compute int) {
	t.Helper()
	core.Tidy(func() {
		tensor := func(d core.DType, shape ...int) *core.Tensor {
			if !c.odd {
				return op.To(op.Empty(shape...), d)
			}
			wide := append([]int{}, shape...)
			wide[3] += 3
			return op.Narrow(op.To(op.Empty(wide...), d), 3, 1, shape[3])
		}
		const queries, keys = 100, 90
		q, k, v := tensor(c.dtype, 2, 4, queries, c.dim), tensor(c.dtype, 2, 2, keys, c.dim), tensor(c.dtype, 2, 2, keys, c.valueDim)
		o, lse := tensor(c.dtype, 2, 4, queries, c.valueDim), op.Empty(2, 4, queries)
		var mask *core.Tensor
		if c.masked {
			mask = op.To(op.Empty(2, 4, queries, keys), c.mask)
		}
		gpu := &shader.Device{Language: shader.CUDA{}, Compute: compute, Limits: shader.Limits{Workgroups: 65535, WorkgroupStorage: 48 << 10}}
		recorder := &shader.Recorder{Runtime: r, GPU: gpu}
		forward := (&core.Call{Op: "attention"}).Out(o).Out(lse).In(q).In(k).In(v).In(mask)
		require.NoError(t, attentionCall(recorder, c.attrs.AddTo(forward)))
		dq, dv := q, v
		if c.partly {
			dq, dv = nil, nil
		}
		backward := (&core.Call{Op: "attention_backward"}).Out(dq).Out(k).Out(dv).In(q).In(k).In(v).In(mask).In(o).In(lse).In(o)
		require.NoError(t, attentionBackwardCall(recorder, c.attrs.AddTo(backward)))
	})
}

func causal() contract.AttentionAttrs { return contract.AttentionAttrs{Causal: true, Scale: 0.125} }
func plain() contract.AttentionAttrs  { return contract.AttentionAttrs{Scale: 0.125} }

var tensorCases = []tensorCase{
	{dtype: core.BFloat16, dim: 64, valueDim: 64, attrs: causal()},
	{dtype: core.Float16, dim: 128, valueDim: 128, attrs: plain()},
	{dtype: core.BFloat16, dim: 256, valueDim: 256, attrs: causal()},
	{dtype: core.BFloat16, dim: 7, valueDim: 130, attrs: plain(), odd: true},
	{dtype: core.Float16, dim: 80, valueDim: 64, attrs: contract.AttentionAttrs{Heads: 2, Scale: -1, Dropout: 0.1}, masked: true, mask: core.Float32},
	{dtype: core.BFloat16, dim: 64, valueDim: 64, attrs: plain(), masked: true, mask: core.Bool, partly: true},
	{dtype: core.BFloat16, dim: 64, valueDim: 64, attrs: plain(), masked: true, mask: core.BFloat16},
	{dtype: core.BFloat16, dim: 64, valueDim: 64, attrs: plain()},
	{dtype: core.BFloat16, dim: 64, valueDim: 64, attrs: contract.AttentionAttrs{Heads: 2, Causal: true, Scale: 0.125, Dropout: 0.1}},
}

// TestTensorProgramsHaveKeys checks that programs with different texts have different keys.
func TestTensorProgramsHaveKeys(t *testing.T) {
	r := &recording{programs: map[string]*shader.Source{}, keys: map[shader.Key]string{}}
	for _, c := range tensorCases {
		c.record(t, r, 80)
		c.record(t, r, 90)
	}
	require.GreaterOrEqual(t, len(r.keys), 5*len(tensorCases))
}

// TestTensorPrograms compiles programs for GPUs of several kinds. A stack of some registers costs little; an array on the stack would cost
// more than the fewer warps of a smaller tile.
func TestTensorPrograms(t *testing.T) {
	if _, _, _, err := nvrtc.Version(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	for _, c := range tensorCases {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			for _, capability := range []int{80, 90} {
				r := &recording{programs: map[string]*shader.Source{}, keys: map[shader.Key]string{}}
				c.record(t, r, capability)
				require.Len(t, r.programs, 3)
				for name, source := range r.programs {
					require.LessOrEqual(t, source.Dynamic, 100<<10, "%s: shared memory", name)
					cubin, err := nvrtc.Compile(source.Text, name, capability)
					require.NoError(t, err)
					require.LessOrEqual(t, stackOf(t, cubin), 128, "%s for %d: bytes of stack", name, capability)
				}
			}
		})
	}
}

// stackOf returns the size of the stack of a cubin's kernel: in section .nv.info, the attribute 0x11 has the symbol and the size.
func stackOf(t *testing.T, cubin []byte) int {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(cubin))
	require.NoError(t, err)
	section := f.Section(".nv.info")
	require.NotNil(t, section)
	b, err := section.Data()
	require.NoError(t, err)
	const sized, frameSize = 4, 0x11
	for len(b) >= 4 {
		kind, attribute, n := b[0], b[1], int(binary.LittleEndian.Uint16(b[2:]))
		if b = b[4:]; kind != sized {
			continue
		}
		if attribute == frameSize {
			return int(binary.LittleEndian.Uint32(b[4:]))
		}
		b = b[n:]
	}
	t.Fatal("the cubin does not say how large its stack is")
	return 0
}
