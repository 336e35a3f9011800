package parallel

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/core/op"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/internal/agreement"
	"github.com/plait-ml/plait/parallel/mesh"
)

// A Fact is something that must be the same on all ranks, in words.
type Fact struct{ What, Said string }

// A statement is what a rank says before it lays a model.
type statement struct {
	Facts   []Fact
	Problem string // why the rank cannot begin
}

// Agree returns an error on every rank of a mesh unless all ranks have the same facts. problem is this rank's own error, if it has one: the
// others are told. All ranks call it.
func Agree(m *mesh.Mesh, name string, mine []Fact, problem error) error {
	own := statement{Facts: mine}
	if problem != nil {
		own.Problem = problem.Error()
	}
	rank, err := worldRank(m)
	if err != nil {
		return err
	}
	said := map[int]statement{rank: own}
	for axis := range m.Shape() {
		all, err := agreement.Exchange(m.Group(axis), name, "the comparison of models", said, nil)
		if err != nil {
			return err
		}
		for _, some := range all {
			maps.Copy(said, some)
		}
	}
	if problem != nil {
		return problem
	}
	ranks := slices.Sorted(maps.Keys(said))
	for _, r := range ranks {
		if why := said[r].Problem; why != "" {
			return core.Errorf(core.DistributedError, name, "rank %d cannot begin: %s", r, why)
		}
	}
	first := said[ranks[0]].Facts
	for i, f := range first {
		for _, r := range ranks {
			other := said[r].Facts
			if len(other) != len(first) || other[i].What != f.What {
				return core.Errorf(core.DistributedError, name, "rank %d compares other facts than rank %d", r, ranks[0])
			}
			if other[i].Said != f.Said {
				return core.Errorf(core.DistributedError, name, "the ranks' %s differ: rank %d has %s, rank %d has %s",
					f.What, ranks[0], excerpt(f.Said, other[i].Said), r, excerpt(other[i].Said, f.Said))
			}
		}
	}
	return nil
}

// worldRank returns the number of the calling rank in the world.
func worldRank(m *mesh.Mesh) (int, error) {
	if m.Coordinate() == nil {
		return 0, core.Errorf(core.StateError, what, "this rank is not in the mesh %v", m)
	}
	g := m.Group(0)
	return g.Ranks()[g.Rank()], nil
}

// excerpt returns a part of a text where it begins to differ from another.
func excerpt(text, other string) string {
	at := 0
	for at < min(len(text), len(other)) && text[at] == other[at] {
		at++
	}
	text = text[strings.LastIndexByte(text[:at], ' ')+1:]
	if text == "" {
		return "nothing more"
	}
	return fmt.Sprintf("'%s'", text[:min(len(text), 80)])
}

// Broadcast gives all ranks of a mesh the values that its first rank has of tensors, of the same shapes on all of them.
func Broadcast(m *mesh.Mesh, tensors []*core.Tensor) (err error) {
	core.NoGrad(func() {
		core.Tidy(func() {
			for _, t := range tensors {
				if err = broadcast(m, t); err != nil {
					return
				}
			}
		})
	})
	return err
}

func broadcast(m *mesh.Mesh, t *core.Tensor) error {
	value := t.Detach()
	sent := op.Contiguous(value)
	for axis, size := range slices.Backward(m.Shape()) {
		if size > 1 {
			if err := m.Group(axis).For("the model's first values").Broadcast(sent, 0).Err(); err != nil {
				return err
			}
		}
	}
	if sent != value {
		return op.CopyInPlace(value, sent).Err()
	}
	return sent.Err()
}

const mostAveraged = 25 << 20 // bytes at once

// gradientsOf says which parameters of a rank have gradients.
type gradientsOf struct {
	Have    []bool
	Problem string // why the rank has none
}

// AverageGradients replaces the gradients of parameters by their averages over the ranks of a group. A gradient that some ranks lack counts as
// zero there, and one that all lack stays absent. Every rank calls it with the same parameters. problem is why the rank's pass has failed, if it
// has: then every rank gets an error.
func AverageGradients(g *collective.Group, params []*core.Tensor, problem error) error {
	params = slices.DeleteFunc(slices.Clone(params), func(p *core.Tensor) bool { return !p.RequiresGrad() })
	own := gradientsOf{Have: make([]bool, len(params))}
	for i, p := range params {
		own.Have[i] = p.Grad() != nil
	}
	if problem != nil {
		own.Problem = problem.Error()
	}
	found, err := agreement.Exchange(g.For("which parameters have gradients"), what, "the average of gradients", own, problem)
	if err != nil {
		return err
	}
	for r, other := range found {
		if other.Problem != "" {
			return core.Errorf(core.DistributedError, what, "the pass of rank %d has failed: %s", g.Ranks()[r], other.Problem)
		}
	}
	var parts []*core.Tensor
	for i, p := range params {
		somewhere := slices.ContainsFunc(found, func(other gradientsOf) bool { return i < len(other.Have) && other.Have[i] })
		if somewhere && p.Grad() == nil {
			zeros := op.ZerosLike(p, op.TensorOptions{}).Keep()
			if err := zeros.Err(); err != nil {
				return err
			}
			p.SetGrad(zeros)
		}
		if grad := p.Grad(); grad != nil {
			if q := grad.Parts(); q != nil {
				grad = q.Local()
			}
			parts = append(parts, grad)
		}
	}
	purpose := g.For("the gradients of copies")
	for len(parts) > 0 {
		n, bytes := 0, 0
		for ; n < len(parts) && (n == 0 || bytes < mostAveraged && parts[n].DType() == parts[0].DType()); n++ {
			bytes += parts[n].Numel() * parts[n].DType().Size()
		}
		if err := purpose.AllReduceMany(parts[:n], collective.Avg).Err(); err != nil {
			return err
		}
		parts = parts[n:]
	}
	return nil
}
