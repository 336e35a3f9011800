package main

import (
	"fmt"
	"math"
	"time"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/pipeline"
)

const (
	devices = 4
	unit    = 30 * time.Millisecond
)

var unequalCosts = [devices]float64{1, 1.5, 0.75, 1.25}

// A sleeper is a layer whose passes sleep on its device.
type sleeper struct {
	nn.Base
	Weight *core.Tensor
	Each   time.Duration `plait:"-"`
}

// Forward sleeps once in the forward pass, once for the gradient of the input and once for that of the weight.
func (l *sleeper) Forward(x *core.Tensor) *core.Tensor {
	y := op.Mul(x.Detach(), core.Num(1))
	sleep(y, l.Each)
	n := core.NewNode(core.CurrentMode(), "sleep", func(ctx *core.BackwardContext) {
		if ctx.Needs(0) {
			g := op.Mul(ctx.Grad(), core.Num(1))
			sleep(g, l.Each)
			ctx.Set(0, g)
		}
		if ctx.Needs(1) {
			g := op.ZerosLike(l.Weight, op.TensorOptions{})
			sleep(g, l.Each)
			ctx.Set(1, g)
		}
	}, x, l.Weight)
	n.AttachLast(y, 0)
	return y
}

// sleep keeps the device of t busy.
func sleep(t *core.Tensor, d time.Duration) {
	s := core.CurrentContext().Stream(t.Device())
	c := s.Begin(-1, "sleep")
	c.Out(t)
	c.InPlace = true
	c.Fn = func() error {
		time.Sleep(d)
		return nil
	}
	c.Work = math.MaxInt32 // on the stream's own thread
	s.Launch(c)
}

func equal() ([]row, error) { return sleeping([devices]float64{1, 1, 1, 1}) }

func unequal() ([]row, error) { return sleeping(unequalCosts) }

// sleeping measures every schedule with stages that sleep.
func sleeping(factors [devices]float64) ([]row, error) {
	var rows []row
	for _, m := range []int{8, 16} {
		for _, name := range pipeline.Names() {
			if m > 8 && name != "1f1b" && name != "zb-h1" {
				continue
			}
			r, err := sleepOne(name, m, factors)
			if err != nil {
				return nil, err
			}
			r.picture = m == 8 && (name == "1f1b" || name == "zb-h1" && factors[0] == factors[1])
			rows = append(rows, r)
		}
	}
	return rows, nil
}

func sleepOne(name string, m int, factors [devices]float64) (row, error) {
	r := row{what: fmt.Sprintf("%s, %d micro-batches", name, m)}
	chunks, err := pipeline.Chunks(name, 0)
	if err != nil {
		return r, err
	}
	place, err := pipeline.Place(name, devices, chunks)
	if err != nil {
		return r, err
	}
	var layers []nn.Layer
	var times []float64
	for _, d := range place {
		each := time.Duration(factors[d] * float64(unit) / float64(chunks))
		layers = append(layers, &sleeper{Weight: op.Zeros(1).Keep().SetRequiresGrad(true), Each: each})
		times = append(times, each.Seconds())
	}
	loss := func(y, _ *core.Tensor) *core.Tensor { return op.Mean(y, nil, false) }
	p, err := pipeline.NewPipeline(nn.NewSequential(layers...), names(devices), pipeline.Options{Chunks: m, Schedule: name, Loss: loss})
	if err != nil {
		return r, err
	}
	// The first stage's input wants a gradient too, so that all stages cost the same.
	x := op.Rand(m, 8).SetRequiresGrad(true)
	schedule, err := p.Schedule(m)
	if err != nil {
		return r, err
	}
	if r.predicted, err = schedule.Simulate(pipeline.Costs{Forward: times, Input: times, Weight: times}); err != nil {
		return r, err
	}
	if r.measured, err = measure(p, x, op.Zeros(m)); err != nil {
		return r, err
	}
	return r, p.Release()
}
