package parallel

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/meta"
	"github.com/plait-ml/plait/core/nn"
	"github.com/plait-ml/plait/parallel/fsdp"
	"github.com/plait-ml/plait/parallel/mesh"
	"github.com/plait-ml/plait/parallel/tensor"
	"github.com/plait-ml/plait/parallel/tensor/layers"
)

// Options say what happens along the axes of a mesh. An axis whose name is that of a way, "pp", "dp", "fsdp" or "tp", needs none.
type Options struct {
	DP   string // the axis along which the model is copied
	FSDP FullyShard
	PP   Stages
	TP   Divide
	// Loss returns the mean loss of a batch, for [Model.Step]: not its sum.
	Loss func(output, target *core.Tensor) *core.Tensor
	// Same says that the parameters and buffers are the same on all ranks already. Else those of the first rank count.
	Same bool
}

// FullyShard says how parameters are sharded.
type FullyShard struct {
	Axis    string
	Units   fsdp.Policy  // which submodules are gathered together; nil means [Blocks]
	Options fsdp.Options // but for Name, Mesh, Replicas and Broadcast
	Ignored []nn.Module  // whose parameters are not sharded, and whose gradients are not averaged
}

// Stages says how the layers of a [nn.Sequential] become stages of a pipeline.
type Stages struct {
	Axis         string
	Schedule     string // one of [pipeline.Names]; "1f1b" by default
	MicroBatches int    // of a batch; by default twice the number of ranks of the pipeline
	Sizes        []int  // numbers of layers of the stages; by default such that these have about equally many parameters
}

// Divide says how layers are divided.
type Divide struct {
	Axis  string
	Plan  map[string]layers.Style // styles by names of layers, as for [layers.Divide]; nil means [layers.Ready]
	Ready layers.ReadyOptions     // of that plan
}

// Blocks is a policy whose units are the modules with a number in their name, such as "layers.3", without those within them.
func Blocks(name string, m nn.Module, elements int) bool {
	parts := strings.Split(name, ".")
	number := func(part string) bool { _, err := strconv.ParseUint(part, 10, 32); return err == nil }
	_, layer := m.(nn.Layer)
	return layer && elements > 0 && number(parts[len(parts)-1]) && !slices.ContainsFunc(parts[:len(parts)-1], number)
}

// Parallelize lays a model over the ranks of a mesh in several ways at once, in place. What happens along an axis of the mesh is said by its
// name, or by an option; any way may be left out. Every rank calls it with the same model on its own device, and makes the optimiser
// afterwards. [Model.Step] trains on this rank's part of the batch.
//
// A model on the meta device gets memory and values where its parts lie.
//
// Errors, on every rank: the mesh, the plan or the layers do not fit the model, or the ranks' models or options differ.
func Parallelize(model nn.Layer, on *mesh.Mesh, o Options) (*Model, error) {
	l, err := plan(model, on, &o)
	var facts []Fact
	if err == nil {
		facts = l.facts(model)
	}
	if on == nil {
		return nil, err
	}
	if err := Agree(on, what, facts, err); err != nil {
		return nil, err
	}
	if !o.Same {
		if err := Broadcast(on, firstValues(model)); err != nil {
			return nil, err
		}
	}
	if err := l.lay(model); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Model{Module: model, layout: l}, nil
}

// plan checks the options and returns the layout, without a change of the model.
func plan(model nn.Layer, on *mesh.Mesh, o *Options) (*layout, error) {
	if on == nil {
		return nil, core.Errorf(core.TypeError, what, "want a mesh, got none")
	}
	if model == nil {
		return nil, core.Errorf(core.TypeError, what, "want a model, got none")
	}
	if m, ok := model.(*Model); ok {
		return nil, core.Errorf(core.StateError, what, "the model lies on %v already", m.layout.mesh)
	}
	if err := nn.Err(model); err != nil {
		return nil, err
	}
	axes, err := AxesOf(on, Axes{PP: o.PP.Axis, DP: o.DP, FSDP: o.FSDP.Axis, TP: o.TP.Axis})
	if err != nil {
		return nil, err
	}
	l := &layout{mesh: on, axes: axes, options: o}
	if axes.TP != "" {
		switch {
		case o.TP.Plan == nil:
			if o.TP.Plan, err = layers.Ready(model, o.TP.Ready); err != nil {
				return nil, err
			}
		case o.TP.Ready != layers.ReadyOptions{}:
			return nil, core.Errorf(core.ValueError, what, "got %+v for the ready plan, and a plan, whose styles say it", o.TP.Ready)
		}
		if err := layers.Check(model, o.TP.Plan); err != nil {
			return nil, err
		}
		if l.tp, err = on.Sub(axes.TP); err != nil {
			return nil, err
		}
	}
	if axes.PP != "" {
		l.stages, err = planStages(model, on, axes, o.PP)
	}
	return l, err
}

// facts returns what must be the same on all ranks.
func (l *layout) facts(model nn.Module) []Fact {
	var tensors, values strings.Builder
	for _, n := range nn.NamedTensors(model) {
		fmt.Fprintf(&tensors, " %s %v%v", n.Name, n.Tensor.DType(), n.Tensor.Shape())
		if n.Tensor.Device().Kind() == core.MetaKind {
			digest, err := meta.Digest(n.Tensor)
			fmt.Fprintf(&values, " %s=%x%v", n.Name, digest, err)
		}
	}
	o := l.options.FSDP.Options
	dtypes := ""
	for _, d := range []*core.DType{o.Precision.Param, o.Precision.Reduce, o.Precision.Output} {
		if d != nil {
			dtypes += " " + d.String()
		} else {
			dtypes += " none"
		}
	}
	list := []Fact{
		{"axes", fmt.Sprintf("%+v", l.axes)},
		{"model", fmt.Sprintf("%T%s", model, &tensors)},
		{"values on the meta device, which want the same seed on all ranks,", values.String()},
		{"plan", layers.Describe(l.options.TP.Plan)},
		{"stages", ""},
		{"sharding", fmt.Sprintf("keep after forward %t, partial %d, offload %t, dtypes%s", o.KeepAfterForward, o.Partial, o.Offload != nil, dtypes)},
	}
	if s := l.stages; s != nil {
		list[4].Said = fmt.Sprint(s.schedule, " ", s.micro, " ", s.sizes)
	}
	return list
}

// firstValues returns the tensors of a model that have values to broadcast, each once.
func firstValues(model nn.Module) (list []*core.Tensor) {
	for _, n := range nn.NamedTensors(model) {
		if t := n.Tensor; t.Device().Kind() != core.MetaKind && t.Parts() == nil && t.Numel() > 0 && !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	return list
}

// A layout is how a model lies on the ranks.
type layout struct {
	mesh    *mesh.Mesh
	axes    Axes
	options *Options
	tp      *mesh.Mesh                       // along which layers are divided; nil without one
	units   []*fsdp.FullyShardedDataParallel // whose parameters are sharded or copied
	stages  *staged                          // nil without a pipeline
	copies  *mesh.Mesh                       // of a pipeline; nil without any
	unsync  bool                             // gradients are not averaged now
}

// lay changes the model.
func (l *layout) lay(model nn.Layer) error {
	if l.stages != nil {
		l.stages.takeOut(model.(*nn.Sequential))
	}
	if l.tp != nil {
		if err := layers.Divide(model, l.tp, layers.Here(model, l.options.TP.Plan, elsewhereOf)); err != nil {
			return err
		}
	}
	if err := l.shard(model); err != nil {
		return err
	}
	var rest []*core.Tensor
	sharded := map[*core.Tensor]bool{}
	for _, f := range l.units {
		for _, u := range f.Tree().Units() {
			for _, p := range u.Tensors() {
				sharded[p] = true
			}
		}
	}
	for _, n := range nn.NamedTensors(model) {
		if sharded[n.Tensor] {
			continue
		}
		category := core.Buffer
		if n.Kind == nn.Parameter {
			category = core.Parameter
		}
		if n.Tensor.Device().Kind() == core.MetaKind {
			dev, err := core.CurrentContext().DefaultDevice()
			if err != nil {
				return err
			}
			if err := fsdp.Materialize(n.Tensor, dev, category); err != nil {
				return fmt.Errorf("%s: %w", n.Name, err)
			}
		}
		rest = append(rest, n.Tensor)
	}
	if l.tp != nil {
		tensor.WatchPasses(l.tp, rest)
	}
	if l.stages != nil {
		return l.stages.connect(model.(*nn.Sequential))
	}
	return nil
}

// shard shards, or only copies, the parameters over the axes of data.
func (l *layout) shard(model nn.Layer) error {
	over := l.axes.Data()
	if l.stages != nil && l.axes.DP != "" {
		// Copies of a pipeline average their gradients once for all micro-batches, not in each backward pass.
		var err error
		if l.copies, err = l.mesh.Sub(l.axes.DP); err != nil {
			return err
		}
		over = over[1:]
	}
	if len(over) == 0 {
		return nil
	}
	on, err := l.mesh.Sub(over...)
	if err != nil {
		return err
	}
	o := l.options.FSDP.Options
	o.Name, o.Mesh, o.Broadcast, o.Replicas = "", on, false, nil
	group := on.Group(len(over) - 1)
	if l.axes.FSDP == "" {
		group, o.Replicas = nil, group
	} else if len(over) > 1 {
		o.Replicas = on.Group(0)
	}
	policy := l.options.FSDP.Units
	if policy == nil {
		policy = Blocks
	}
	roots := []nn.Module{model}
	if l.stages != nil {
		roots, policy = l.stages.roots(policy)
	}
	for _, root := range roots {
		f, err := fsdp.New(root, group, policy, o, l.options.FSDP.Ignored...)
		if err != nil {
			return err
		}
		l.units = append(l.units, f)
	}
	return nil
}

// Close ends the layout. The model's tensors stay parts.
func (l *layout) Close() (err error) {
	for _, f := range l.units {
		err = errors.Join(err, f.Close())
	}
	if l.stages != nil && l.stages.executor != nil {
		err = errors.Join(err, l.stages.executor.Release())
	}
	return err
}
