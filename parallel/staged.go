package parallel

import (
	"fmt"
	"math"
	"slices"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/core/optim"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/pipeline"
)

// A staged model has layers that are stages of a pipeline.
type staged struct {
	group    *collective.Group // the ranks of the pipeline
	schedule string
	micro    int
	sizes    []int // numbers of layers of the stages
	place    []int // the rank of each stage
	tied     []tie
	device   core.Device
	here     map[int]*stage // this rank's, by number
	executor *pipeline.Executor
	others   map[*core.Tensor]bool // copies of parameters that count on another rank
}

// A tie is a parameter that several stages use.
type tie struct {
	names  []string
	stages []int
}

// A stage is some of a model's layers, under their names.
type stage struct {
	nn.Base
	layers []nn.Layer `plait:"-"`
}

// Forward runs the layers.
func (s *stage) Forward(x *core.Tensor) *core.Tensor {
	for _, l := range s.layers {
		x = nn.Call(l, x)
	}
	return x
}

// A stageList is the stages of one rank that share a parameter, and so gather it together.
type stageList struct {
	nn.Base
	Stages []*stage `plait:"inline"`
}

// An elsewhere takes the place of a layer that another rank of the pipeline runs.
type elsewhere struct {
	nn.Base
	layer, rank int
}

// Forward returns an error.
func (e *elsewhere) Forward(*core.Tensor) *core.Tensor {
	return core.ErrorTensor(core.Errorf(core.StateError, what, "layer %d is on rank %d of the pipeline; call the model", e.layer, e.rank))
}

// elsewhereOf reports whether a module has taken the place of another.
func elsewhereOf(m nn.Module) bool { _, ok := m.(*elsewhere); return ok }

// planStages checks the options and returns the stages, without a change of the model.
func planStages(model nn.Layer, on *mesh.Mesh, axes Axes, o Stages) (*staged, error) {
	seq, ok := model.(*nn.Sequential)
	if !ok {
		return nil, core.Errorf(core.TypeError, what, "a pipeline wants a Sequential, whose layers are stages, got %T", model)
	}
	axis, err := on.Axis(axes.PP)
	if err != nil {
		return nil, err
	}
	s := &staged{group: on.Group(axis), schedule: o.Schedule, micro: o.MicroBatches, here: map[int]*stage{}}
	if s.group == nil {
		return nil, core.Errorf(core.StateError, what, "this rank is not in the mesh %v", on)
	}
	ranks := s.group.Size()
	if s.schedule == "" {
		s.schedule = "1f1b"
	}
	if s.micro == 0 {
		s.micro = 2 * ranks
	}
	if s.micro < ranks {
		return nil, core.Errorf(core.ValueError, what, "a pipeline needs at least as many micro-batches as ranks, got %d for %d", s.micro, ranks)
	}
	if len(o.Sizes)%ranks != 0 {
		return nil, core.Errorf(core.ValueError, what, "got sizes of %d stages for %d ranks, want equally many on each", len(o.Sizes), ranks)
	}
	chunks, err := pipeline.Chunks(s.schedule, len(o.Sizes)/ranks)
	if err != nil {
		return nil, err
	}
	if s.place, err = pipeline.Place(s.schedule, ranks, chunks); err != nil {
		return nil, err
	}
	if s.sizes, err = pipeline.Split(seq, len(s.place), o.Sizes); err != nil {
		return nil, err
	}
	if s.device, err = core.CurrentContext().DefaultDevice(); err != nil {
		return nil, err
	}
	for _, t := range nn.Parameters(model) {
		if t.Device().Kind() != core.MetaKind {
			s.device = t.Device()
			break
		}
	}
	s.findTies(seq)
	return s, nil
}

// stageOf returns the stage of each layer.
func (s *staged) stageOf() (list []int) {
	for i, n := range s.sizes {
		list = append(list, slices.Repeat([]int{i}, n)...)
	}
	return list
}

// findTies finds the parameters that several stages use.
func (s *staged) findTies(seq *nn.Sequential) {
	stages := s.stageOf()
	var order []*core.Tensor
	found := map[*core.Tensor]*tie{}
	for i, l := range seq.Layers {
		for _, n := range nn.NamedTensors(l) {
			if n.Kind != nn.Parameter {
				continue
			}
			t := found[n.Tensor]
			if t == nil {
				t = &tie{}
				found[n.Tensor], order = t, append(order, n.Tensor)
			}
			t.names, t.stages = append(t.names, fmt.Sprintf("%d.%s", i, n.Name)), append(t.stages, stages[i])
		}
	}
	for _, p := range order {
		if t := found[p]; len(slices.Compact(slices.Clone(t.stages))) > 1 {
			s.tied = append(s.tied, *t)
		}
	}
}

// takeOut makes this rank's stages, and takes the other layers out of the model.
func (s *staged) takeOut(seq *nn.Sequential) {
	for i, at := range s.stageOf() {
		if rank := s.place[at]; rank != s.group.Rank() {
			seq.Layers[i] = &elsewhere{layer: i, rank: rank}
			continue
		}
		if s.here[at] == nil {
			s.here[at] = &stage{}
		}
		s.here[at].RegisterModule(fmt.Sprint(i), seq.Layers[i])
		s.here[at].layers = append(s.here[at].layers, seq.Layers[i])
	}
}

// mine returns the numbers of this rank's stages, in order.
func (s *staged) mine() (list []int) {
	for i, rank := range s.place {
		if rank == s.group.Rank() {
			list = append(list, i)
		}
	}
	return list
}

// roots returns the modules whose parameters are sharded together, and the policy for what is within them.
func (s *staged) roots(policy fsdp.Policy) ([]nn.Module, fsdp.Policy) {
	var list []nn.Module
	all := &stageList{}
	for _, i := range s.mine() {
		list, all.Stages = append(list, s.here[i]), append(all.Stages, s.here[i])
	}
	shared := slices.ContainsFunc(s.tied, func(t tie) bool {
		n := 0
		for _, i := range slices.Compact(slices.Clone(t.stages)) {
			if s.place[i] == s.group.Rank() {
				n++
			}
		}
		return n > 1
	})
	if !shared {
		return list, policy
	}
	return []nn.Module{all}, func(name string, m nn.Module, elements int) bool {
		_, outer := m.(*stage)
		return outer || policy(name, m, elements)
	}
}

// connect makes the executor, which exchanges what passes between stages and what they share.
func (s *staged) connect(model *nn.Sequential) error {
	var err error
	if s.executor, err = pipeline.NewRankExecutor(s.group, s.device, s.place); err != nil {
		return err
	}
	byName := map[string]*core.Tensor{}
	for _, n := range nn.NamedTensors(model) {
		byName[n.Name] = n.Tensor
	}
	s.others = map[*core.Tensor]bool{}
	for _, t := range s.tied {
		for _, name := range t.names {
			own := byName[name]
			if own == nil {
				continue
			}
			if err := s.executor.Share(own, t.stages); err != nil {
				return err
			}
			s.others[own] = s.place[slices.Min(t.stages)] != s.group.Rank()
			break
		}
	}
	return nil
}

// gradNorm returns the norm of the gradients of all stages. A parameter that several stages share counts once.
func (s *staged) gradNorm(units []*fsdp.Unit, params []*core.Tensor, o optim.ClipOptions) *core.Tensor {
	power := o.Norm
	if power == 0 {
		power = 2
	}
	params = slices.DeleteFunc(slices.Clone(params), func(p *core.Tensor) bool { return s.others[p] })
	d := core.Float32
	total := op.Full([]int{}, core.Num(0), op.TensorOptions{DType: &d, Device: s.device})
	if len(params) > 0 {
		total = fsdp.GradNorm(units, params, optim.ClipOptions{Norm: power})
	}
	core.NoGrad(func() {
		largest := math.IsInf(power, 0)
		total = op.To(op.ToDevice(total, s.device), core.Float64)
		if !largest {
			total = op.Pow(total, core.Num(power))
		}
		total = op.Clone(total)
		if err := allReduce(s.group.For("the norm of the gradients of a pipeline"), total, largest); err != nil {
			total = core.ErrorTensor(err)
			return
		}
		if !largest {
			total = op.Pow(total, core.Num(1/power))
		}
	})
	if !o.ErrorIfNonfinite || total.Err() != nil {
		return total
	}
	if v, err := total.Item(); err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return core.ErrorTensor(core.Errorf(core.ValueError, "clip_grad_norm_", "the norm of the gradients is %v", v))
	}
	return total
}

// allReduce replaces t by the ranks' sum, or the largest.
func allReduce(g *collective.Group, t *core.Tensor, largest bool) error {
	if err := t.Err(); err != nil {
		return err
	}
	o := collective.Sum
	if largest {
		o = collective.Max
	}
	return g.AllReduce(t, o).Arrived()
}
