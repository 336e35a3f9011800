package ddp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/internal/agreement"
)

// A description is what ranks tell each other of their parameters before anything else.
type description struct {
	Params, Buffers []described
	Options         Options
	Until           string // what delayed parameters wait for
	Problem         string // what keeps the rank from training
}

type described struct {
	Name         string
	DType        core.DType
	Shape        []int
	RequiresGrad bool
	Delayed      bool
}

func (d described) String() string {
	s := fmt.Sprintf("%v%v", d.DType, d.Shape)
	if !d.RequiresGrad {
		s += " without a gradient"
	}
	if d.Delayed {
		s += " whose reduction is delayed"
	}
	return s
}

func describe(n Named) described {
	return described{n.Name, n.Tensor.DType(), slices.Clone(n.Tensor.Shape()), n.Tensor.RequiresGrad(), false}
}

// until says what delayed parameters wait for.
func (r *Reducer) until() string {
	t := r.options.Until
	if t == nil {
		return "nothing"
	}
	for _, p := range r.params {
		if p.Tensor == t {
			return fmt.Sprintf("%q", p.Name)
		}
	}
	return fmt.Sprintf("another module's %v%v", t.DType(), t.Shape())
}

// verify compares the ranks' parameters, buffers and options. All ranks return the same error.
func (r *Reducer) verify(problem error) error {
	d := description{Options: r.options}
	d.Options.Buffers = nil
	if problem != nil {
		d.Problem = problem.Error()
	} else {
		for _, p := range r.params {
			s := describe(p.Named)
			s.Delayed = p.delayed
			d.Params = append(d.Params, s)
		}
		for _, b := range r.buffers {
			d.Buffers = append(d.Buffers, describe(b))
		}
		d.Until = r.until()
	}
	ranks, err := agreement.Exchange(r.groupFor("the construction"), "ddp", "make its model parallel", d, problem)
	if err != nil {
		return err
	}
	return compare(ranks)
}

// compare returns an error that names the first difference between the ranks' descriptions.
func compare(ranks []description) error {
	for i, d := range ranks {
		if d.Problem != "" {
			return core.Errorf(core.DistributedError, "ddp", "rank %d cannot train: %s", i, d.Problem)
		}
	}
	for _, part := range []struct {
		what string
		of   func(d description) []described
	}{
		{"parameter", func(d description) []described { return d.Params }},
		{"buffer", func(d description) []described { return d.Buffers }},
	} {
		lists := make([][]described, len(ranks))
		least := -1
		for i, d := range ranks {
			lists[i] = part.of(d)
			if least < 0 || len(lists[i]) < least {
				least = len(lists[i])
			}
		}
		for i := range least {
			if v := agreement.Values(len(ranks), func(r int) string { return lists[r][i].String() }); len(v) > 1 {
				return core.Errorf(core.DistributedError, "ddp", "the ranks' models differ: %s %d, %q, is %s", part.what, i, lists[0][i].Name, strings.Join(v, ", "))
			}
		}
		if v := agreement.Values(len(ranks), func(r int) string { return fmt.Sprint(len(lists[r]), " ", part.what, "s") }); len(v) > 1 {
			extra := ""
			for _, l := range lists {
				if len(l) > least {
					extra = l[least].Name
					break
				}
			}
			return core.Errorf(core.DistributedError, "ddp", "the ranks' models differ: %s; the first that some lack is %q", strings.Join(v, ", "), extra)
		}
	}
	if v := agreement.Values(len(ranks), func(r int) string { return ranks[r].Until }); len(v) > 1 {
		return core.Errorf(core.DistributedError, "ddp", "the ranks' options differ: the delayed parameters wait for %s", strings.Join(v, ", "))
	}
	options := func(r int) string {
		b, _ := json.Marshal(ranks[r].Options) // as it came, without pointers
		return string(b)
	}
	if v := agreement.Values(len(ranks), options); len(v) > 1 {
		return core.Errorf(core.DistributedError, "ddp", "the ranks' options differ: %s", strings.Join(v, ", "))
	}
	return nil
}

// broadcastAll makes parameters and buffers those of rank 0.
func (r *Reducer) broadcastAll() error {
	var list []*core.Tensor
	for _, p := range r.params {
		list = append(list, p.Tensor)
	}
	for _, b := range r.buffers {
		list = append(list, b.Tensor)
	}
	return r.groupFor("the first values").BroadcastMany(list, 0).Wait()
}

// broadcastBuffers makes the buffers those of rank 0, or in a [Join] of the lowest rank that still has batches.
func (r *Reducer) broadcastBuffers() error {
	if r.options.KeepBuffers || len(r.buffers) == 0 {
		return nil
	}
	root := 0
	if r.join != nil {
		root = r.join.root
	}
	var list []*core.Tensor
	for _, b := range r.buffers {
		list = append(list, b.Tensor)
		r.stats.Buffers += b.Tensor.Numel() * b.Tensor.DType().Size()
	}
	return r.track(r.groupFor("the buffers").BroadcastMany(list, root))
}
