package parallel_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	_ "github.com/plait-ml/plait/core/cpu"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/internal/worldtest"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/plait-ml/plait/parallel/tensor/layers"
)

const (
	width, kinds, length, rows = 6, 7, 5, 8
	steps                      = 3
)

// made returns a model of codes whose head may have the weight of its embedding.
func made(depth int, tied bool) *nn.Sequential {
	core.ManualSeed(3)
	codes := nn.NewEmbedding(kinds, width, nn.EmbeddingOptions{})
	list := []nn.Layer{codes}
	for range depth {
		list = append(list, nn.NewSequential(nn.NewLayerNorm([]int{width}, nn.NormOptions{}), nn.NewLinear(width, 10, nn.LinearOptions{}), nn.NewGELU(""), nn.NewLinear(10, width, nn.LinearOptions{})))
	}
	head := nn.NewLinear(width, kinds, nn.LinearOptions{NoBias: true})
	if tied {
		head.Weight = codes.Weight
	}
	m := nn.NewSequential(append(list, nn.NewLayerNorm([]int{width}, nn.NormOptions{}), head)...)
	for _, p := range nn.Parameters(m) {
		p.Keep()
	}
	return m
}

// plan returns the styles of a model's layers.
func plan(m *nn.Sequential) map[string]layers.Style {
	return map[string]layers.Style{"0": layers.Rows{}, "*.1": layers.Columns{}, "*.3": layers.Rows{}, fmt.Sprint(len(m.Layers) - 1): layers.Columns{}}
}

func lossOf(scores, target *core.Tensor) *core.Tensor {
	return op.CrossEntropy(op.Flatten(scores, 0, 1), op.Flatten(target, 0, 1), op.CrossEntropyOptions{})
}

func batch(step int) (x, y *core.Tensor) {
	rng := rand.New(rand.NewPCG(uint64(step), 9))
	codes := make([]int64, rows*(length+1))
	for i := range codes {
		codes[i] = rng.Int64N(kinds)
	}
	all := core.FromSlice(codes, rows, length+1)
	return op.Narrow(all, 1, 0, length), op.Narrow(all, 1, 1, length)
}

// history is what a training saw.
type history struct{ losses, norms []float64 }

// result is what it made.
type result map[string][]float64

func values(t *core.Tensor) ([]float64, error) {
	if t.Parts() != nil {
		t = tensor.Full(t)
	}
	return core.Values[float64](op.Contiguous(t.Detach()))
}

// trainAlone trains on one device.
func trainAlone(t *testing.T, m *nn.Sequential) (h history, r result) {
	o, err := optim.NewAdamW(nn.Parameters(m), optim.Hyper{"lr": 0.02})
	require.NoError(t, err)
	for step := range steps {
		core.Tidy(func() {
			x, y := batch(step)
			o.ZeroGrad()
			loss := lossOf(nn.Call(m, x), y)
			require.NoError(t, autograd.Backward(loss))
			norm := optim.ClipGradNorm(nn.Parameters(m), 0.5, optim.ClipOptions{})
			require.NoError(t, o.Step())
			for at, v := range map[*[]float64]*core.Tensor{&h.losses: loss, &h.norms: norm} {
				n, err := v.Item()
				require.NoError(t, err)
				*at = append(*at, n)
			}
		})
	}
	r = result{}
	for _, n := range nn.NamedParameters(m) {
		v, err := values(n.Tensor)
		require.NoError(t, err)
		r[n.Name] = v
	}
	return h, r
}

// A composition is a mesh, and how a model lies on it.
type composition struct {
	names []string
	sizes []int
	o     parallel.Options
	tied  bool
	depth int
	meta  bool
}

func (c composition) String() string {
	return fmt.Sprint(c.names, c.sizes, " ", c.o.PP, " keep ", c.o.FSDP.Options.KeepAfterForward, " tied ", c.tied, " depth ", c.depth, " meta ", c.meta)
}

func (c composition) ranks() int { return core.Numel(c.sizes) }

func random(seed uint64) (c composition) {
	rng := rand.New(rand.NewPCG(seed, 1))
	pick := func(list ...int) int { return list[rng.IntN(len(list))] }
	c.o.Loss = lossOf
	for {
		pp, dp, shards, tp := pick(1, 1, 2, 3), pick(1, 1, 2), pick(1, 2, 4), pick(1, 1, 2, 3)
		c.names, c.sizes = []string{"pp", "dp", "fsdp", "tp"}, []int{pp, dp, shards, tp}
		if n := c.ranks(); n > 1 && n <= 8 && rows%(dp*shards) == 0 {
			break
		}
	}
	c.tied, c.depth, c.meta = rng.IntN(2) == 0, pick(2, 3, 5), rng.IntN(4) == 0
	c.o.PP.Schedule = []string{"gpipe", "1f1b", "zb-h1", "zb-v"}[rng.IntN(4)]
	if c.o.PP.Schedule == "zb-v" && c.depth+3 < 2*c.sizes[0] {
		c.o.PP.Schedule = "1f1b"
	}
	c.o.PP.MicroBatches = c.sizes[0] + rng.IntN(2)
	c.o.FSDP.Options.KeepAfterForward = rng.IntN(2) == 0
	return c
}

// train trains on the ranks of a composition, which must see and make the same as one device.
func (c composition) train(r *collective.Rank, want history) (result, error) {
	if err := core.CurrentContext().SetDefaultDType(core.Float64); err != nil {
		return nil, err
	}
	on, err := mesh.New(r.World, c.sizes, mesh.Options{Names: c.names})
	if err != nil {
		return nil, err
	}
	var m *nn.Sequential
	fill := func() { m = made(c.depth, c.tied) }
	if c.meta {
		dev, err := core.OpenDevice(core.MetaKind)
		if err != nil {
			return nil, err
		}
		core.WithDevice(dev, fill)
	} else {
		fill()
	}
	o := c.o
	if c.depth != 3 { // else by the ready plan
		o.TP.Plan = plan(m)
	}
	if r.Rank > 0 && !c.meta { // the first rank's values count
		core.NoGrad(func() {
			for _, p := range nn.Parameters(m) {
				op.ZeroInPlace(p)
			}
		})
	}
	laid, err := parallel.Parallelize(m, on, o)
	if err != nil {
		return nil, err
	}
	n, at := laid.DataParallelSize(), laid.DataParallelRank()
	opt, err := optim.NewAdamW(nn.Parameters(laid), optim.Hyper{"lr": 0.02})
	if err != nil {
		return nil, err
	}
	for step := range steps {
		core.Tidy(func() {
			x, y := batch(step)
			part := func(t *core.Tensor) *core.Tensor { return op.ToDevice(op.Narrow(t, 0, rows/n*at, rows/n), r.Device) }
			opt.ZeroGrad()
			var loss, norm float64
			var lost *core.Tensor
			if lost, err = laid.Step(part(x), part(y)); err != nil {
				return
			}
			if loss, err = lost.Item(); err != nil {
				return
			}
			if norm, err = laid.ClipGradNorm(0.5, optim.ClipOptions{}).Item(); err != nil {
				return
			}
			if d := norm - want.norms[step]; d > 1e-9 || d < -1e-9 {
				err = fmt.Errorf("step %d: the norm is %v, want %v", step, norm, want.norms[step])
			} else if d := loss - want.losses[step]; n == 1 && (d > 1e-9 || d < -1e-9) {
				err = fmt.Errorf("step %d: the loss is %v, want %v", step, loss, want.losses[step])
			} else {
				err = opt.Step()
			}
		})
		if err != nil {
			return nil, err
		}
	}
	x, _ := batch(9)
	y := laid.Forward(op.ToDevice(x, r.Device))
	out := result{}
	if out["output"], err = values(y); err != nil {
		return nil, err
	}
	for _, p := range nn.NamedParameters(laid) {
		if out[p.Name], err = values(p.Tensor); err != nil {
			return nil, err
		}
	}
	return out, laid.Close()
}

func TestRandomCompositionsEqualOneDevice(t *testing.T) {
	old := core.CurrentContext().DefaultDType()
	require.NoError(t, core.CurrentContext().SetDefaultDType(core.Float64))
	defer func() { require.NoError(t, core.CurrentContext().SetDefaultDType(old)) }()
	for seed := range uint64(12) {
		c := random(seed)
		alone := made(c.depth, c.tied)
		want, params := trainAlone(t, alone)
		x, _ := batch(9)
		var err error
		params["output"], err = values(nn.Call(alone, x))
		require.NoError(t, err)
		seen := map[string]bool{}
		var mu sync.Mutex
		require.NoError(t, worldtest.Spawn(c.ranks(), nil, collective.Options{}, func(r *collective.Rank) error {
			got, err := c.train(r, want)
			if err != nil {
				return fmt.Errorf("rank %d: %w", r.Rank, err)
			}
			mu.Lock()
			defer mu.Unlock()
			for name, v := range got {
				seen[name] = true
				if wanted, ok := params[name]; ok { // a head that is tied has its own name where the embedding is elsewhere
					assert.InDeltaSlice(t, wanted, v, 1e-8, "%v, rank %d: %s", c, r.Rank, name)
				} else {
					assert.InDeltaSlice(t, params["0.weight"], v, 1e-8, "%v, rank %d: %s", c, r.Rank, name)
				}
			}
			return nil
		}), c)
		for name := range params {
			assert.True(t, seen[name], "%v: no rank has %s", c, name)
		}
	}
}
