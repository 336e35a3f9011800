package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/autograd"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/gpu"
	"github.com/plait-ml/plait/parallel/pipeline"
)

// A shape is the size of a GPT and of its batch.
type shape struct {
	name                                 string
	kinds, context, width, layers, heads int
	batch                                int
}

var shapes = map[string]shape{
	"gpt2":  {"GPT-2 124M", 50257, 1024, 768, 12, 12, 8},
	"small": {"GPT 4x128", 96, 128, 128, 4, 4, 8},
	"tiny":  {"GPT 6x32", 17, 16, 32, 6, 2, 4},
}

// A beginning is the embeddings of tokens and of their places.
type beginning struct {
	nn.Base
	Tokens, Places *core.Tensor `plait:"param"`
}

// Forward returns [B T C] for the codes of T tokens in B texts.
func (l *beginning) Forward(codes *core.Tensor) *core.Tensor {
	places := op.Narrow(l.Places, 0, 0, codes.Size(1))
	return op.Add(op.Embedding(codes, l.Tokens, op.EmbeddingOptions{}), places)
}

// A block is attention and a perceptron.
type block struct {
	nn.Base
	heads                      int
	Norm1, Norm2               *nn.LayerNorm
	Attend, Join, Expand, Back *nn.Linear
}

func newBlock(s shape) *block {
	c := s.width
	return &block{
		heads: s.heads,
		Norm1: nn.NewLayerNorm([]int{c}, nn.NormOptions{}), Attend: nn.NewLinear(c, 3*c, nn.LinearOptions{}), Join: nn.NewLinear(c, c, nn.LinearOptions{}),
		Norm2: nn.NewLayerNorm([]int{c}, nn.NormOptions{}), Expand: nn.NewLinear(c, 4*c, nn.LinearOptions{}), Back: nn.NewLinear(4*c, c, nn.LinearOptions{}),
	}
}

// Forward maps [B T C] to the same.
func (l *block) Forward(x *core.Tensor) *core.Tensor {
	b, t, c := x.Size(0), x.Size(1), x.Size(2)
	h := nn.Call(l.Attend, nn.Call(l.Norm1, x))
	h = op.Permute(op.Reshape(h, b, t, 3, l.heads, c/l.heads), 2, 0, 3, 1, 4)
	y := op.ScaledDotProductAttention(op.Select(h, 0, 0), op.Select(h, 0, 1), op.Select(h, 0, 2), op.AttentionOptions{Causal: true})
	x = op.Add(x, nn.Call(l.Join, op.Reshape(op.Transpose(y, 1, 2), b, t, c)))
	h = op.Gelu(nn.Call(l.Expand, nn.Call(l.Norm2, x)), "tanh")
	return op.Add(x, nn.Call(l.Back, h))
}

// An end is the scores of all tokens, by the table of the first layer.
type end struct {
	nn.Base
	Norm   *nn.LayerNorm
	Tokens *core.Tensor `plait:"param"`
}

// Forward maps [B T C] to scores [B T K].
func (l *end) Forward(x *core.Tensor) *core.Tensor {
	return op.Linear(nn.Call(l.Norm, x), l.Tokens, nil)
}

// newGPT returns a model, and what its layers cost in products for each token.
func newGPT(s shape) (model *nn.Sequential, costs []float64) {
	core.ManualSeed(1)
	table := func(rows int) *core.Tensor {
		return op.Mul(op.Randn(rows, s.width), core.Num(0.02)).Detach().SetRequiresGrad(true)
	}
	first := &beginning{Tokens: table(s.kinds), Places: table(s.context)}
	layers, costs := []nn.Layer{first}, []float64{0}
	for range s.layers {
		layers = append(layers, newBlock(s))
		costs = append(costs, float64(12*s.width*s.width+s.context*s.width))
	}
	layers = append(layers, &end{Norm: nn.NewLayerNorm([]int{s.width}, nn.NormOptions{}), Tokens: first.Tokens})
	model = nn.NewSequential(layers...)
	for _, p := range nn.Parameters(model) {
		p.Keep()
	}
	return model, append(costs, float64(s.kinds*s.width))
}

func (s shape) loss(scores, target *core.Tensor) *core.Tensor {
	return op.CrossEntropy(op.Reshape(scores, -1, s.kinds), op.Reshape(target, -1), op.CrossEntropyOptions{})
}

// text returns a batch of tokens and those that follow them.
func (s shape) text() (x, target *core.Tensor) {
	codes := make([]int64, s.batch*(s.context+1))
	for i := range codes {
		codes[i] = int64(i * 7919 % s.kinds)
	}
	all := core.FromSlice(codes, s.batch, s.context+1)
	return op.Contiguous(op.Slice(all, 1, 0, s.context, 1)), op.Contiguous(op.Slice(all, 1, 1, s.context+1, 1))
}

// A training is a GPT to be trained on devices, a stage or more on each.
type training struct {
	shape
	devices   []string
	chunks    int
	schedules []string
}

// about says what was measured.
func (g *training) about() (string, error) {
	var names []string
	for _, d := range g.devices {
		dev, err := core.OpenDevice(d)
		if err != nil {
			return "", err
		}
		if card, ok := dev.(*gpu.Device); ok {
			d += " (" + card.Name() + ")"
		}
		names = append(names, d)
	}
	one, err := g.oneDevice()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s on %s, a batch of %d x %d tokens in %d micro-batches. A step forward and backward on %s alone takes %.1f ms. "+
		"Predicted from the times that stages and their copies take while nothing else runs: micro-batches go through one by one.",
		g.name, strings.Join(names, ", "), g.batch, g.context, g.chunks, g.devices[0], 1e3*one), nil
}

// oneDevice returns the seconds of a step without a pipeline.
func (g *training) oneDevice() (least float64, err error) {
	core.Tidy(func() {
		var dev core.Device
		if dev, err = core.OpenDevice(g.devices[0]); err != nil {
			return
		}
		model, _ := newGPT(g.shape)
		if err = nn.ToDevice(model, dev); err != nil {
			return
		}
		x, target := g.text()
		x, target = op.ToDevice(x, dev), op.ToDevice(target, dev)
		for i := range steps + 1 {
			start := time.Now()
			core.Tidy(func() { err = autograd.Backward(g.loss(nn.Call(model, x), target)) })
			if err == nil {
				err = dev.Synchronize()
			}
			if err != nil {
				return
			}
			if seconds := time.Since(start).Seconds(); i == 1 || i > 0 && seconds < least {
				least = seconds
			}
		}
		for _, p := range nn.Parameters(model) {
			p.SetGrad(nil)
			p.Release()
		}
	})
	return least, err
}

func (g *training) rows() ([]row, error) {
	var rows []row
	for _, name := range g.schedules {
		r, err := g.one(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// one measures a schedule.
func (g *training) one(name string) (r row, err error) {
	core.Tidy(func() {
		var p *pipeline.Pipeline
		model, costs := newGPT(g.shape)
		var schedule *pipeline.Schedule
		if schedule, err = pipeline.New(name, len(g.devices), g.chunks, 0); err != nil {
			return
		}
		o := pipeline.Options{Chunks: g.chunks, Loss: g.loss}
		if o.Split, err = pipeline.Balance(costs, schedule.Stages()); err != nil {
			return
		}
		x, target := g.text()
		run := func(s *pipeline.Schedule) (t *pipeline.Timeline) {
			if err != nil {
				return nil
			}
			o.Custom = s
			if p, err = pipeline.NewPipeline(model, g.devices, o); err != nil {
				return nil
			}
			if t, err = measure(p, x, target); err == nil {
				err = p.Release()
			}
			return t
		}
		// First the schedule, which keeps all devices busy: a card that waits for most of the time stays at its lowest clock.
		r = row{what: fmt.Sprintf("%s, %d micro-batches", name, g.chunks), picture: true, measured: run(schedule)}
		serial := run(oneByOne(schedule))
		if err != nil {
			return
		}
		taken := serial.Costs()
		taken.Link = links(serial, schedule.Devices())
		taken.NoOverlap = strings.HasPrefix(g.devices[0], "gpu") // by WebGPU, a device has one queue
		if r.predicted, err = schedule.Simulate(taken); err != nil {
			return
		}
		for _, m := range []nn.Module{model, p} {
			for _, q := range nn.Parameters(m) {
				q.SetGrad(nil)
				q.Release()
			}
		}
	})
	return r, err
}

// oneByOne returns a schedule with the same passes in which a micro-batch begins when the one before it has ended.
func oneByOne(s *pipeline.Schedule) *pipeline.Schedule {
	out := &pipeline.Schedule{Name: s.Name + ", one by one", Rows: make([][]pipeline.Action, len(s.Rows))}
	add := func(k pipeline.Kind, stage, micro int) {
		d := s.Devices()[stage]
		out.Rows[d] = append(out.Rows[d], pipeline.Action{Kind: k, Stage: stage, Micro: micro})
	}
	for i := range s.Micro() {
		for stage := range s.Stages() {
			add(pipeline.Forward, stage, i)
		}
		for stage := s.Stages() - 1; stage >= 0; stage-- {
			if s.Splits() {
				add(pipeline.InputGrad, stage, i)
				add(pipeline.WeightGrad, stage, i)
			} else {
				add(pipeline.Backward, stage, i)
			}
		}
	}
	return out
}

// links returns the median times of tensors between stages on different devices, of a timeline in which they are waited for.
func links(t *pipeline.Timeline, place []int) []float64 {
	span := map[pipeline.Action]pipeline.Span{}
	for _, row := range t.Spans {
		for _, x := range row {
			span[x.Action] = x
		}
	}
	seconds := make([]float64, len(place)-1)
	for s := range seconds {
		if place[s] == place[s+1] {
			continue
		}
		var list []float64
		for a, x := range span {
			if before, ok := span[pipeline.Action{Kind: a.Kind, Stage: s, Micro: a.Micro}]; ok && a.Stage == s+1 && a.Kind == pipeline.Forward {
				list = append(list, max(0, x.Start-before.End))
			}
		}
		if slices.Sort(list); len(list) > 0 {
			seconds[s] = list[len(list)/2]
		}
	}
	return seconds
}
