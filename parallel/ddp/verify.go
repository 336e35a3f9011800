package ddp

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/internal/agreement"
)

// A modelInfo describes a rank's model and options. At construction the ranks exchange and compare them.
type modelInfo struct {
	Params, Buffers []tensorInfo
	Options         Options
	Until           string // describes Options.Until
	Problem         string // the rank's error, if its model or options are invalid
}

// A tensorInfo describes a parameter or buffer.
type tensorInfo struct {
	Name         string
	DType        core.DType
	Shape        []int
	RequiresGrad bool
	Delayed      bool
}

func (d tensorInfo) String() string {
	s := fmt.Sprintf("%v%v", d.DType, d.Shape)
	if !d.RequiresGrad {
		s += " without a gradient"
	}
	if d.Delayed {
		s += " whose reduction is delayed"
	}
	return s
}

func infoOf(n Named) tensorInfo {
	return tensorInfo{n.Name, n.Tensor.DType(), slices.Clone(n.Tensor.Shape()), n.Tensor.RequiresGrad(), false}
}

// untilName describes [Options.Until] for error messages.
func (r *Reducer) untilName() string {
	until := r.options.Until
	if until == nil {
		return "nothing"
	}
	for _, p := range r.params {
		if p.Tensor == until {
			return fmt.Sprintf("%q", p.Name)
		}
	}
	return fmt.Sprintf("another module's %v%v", until.DType(), until.Shape())
}

// verifyRanks compares the ranks' parameters, buffers and options. problem is this rank's own error, if it has one. All ranks return an
// error if one has a problem or if they differ.
func (r *Reducer) verifyRanks(problem error) error {
	d := modelInfo{Options: r.options}
	d.Options.Buffers = nil
	if problem != nil {
		d.Problem = problem.Error()
	} else {
		for _, p := range r.params {
			s := infoOf(p.Named)
			s.Delayed = p.delayed
			d.Params = append(d.Params, s)
		}
		for _, b := range r.buffers {
			d.Buffers = append(d.Buffers, infoOf(b))
		}
		d.Until = r.untilName()
	}
	ranks, err := agreement.Exchange(r.groupFor("the construction"), "ddp", "make its model parallel", d, problem)
	if err != nil {
		return err
	}
	return compareRanks(ranks)
}

// compareRanks returns an error that names the first problem of a rank, or the first difference between the ranks.
func compareRanks(ranks []modelInfo) error {
	for i, d := range ranks {
		if d.Problem != "" {
			return core.Errorf(core.DistributedError, "ddp", "rank %d cannot train: %s", i, d.Problem)
		}
	}
	for _, kind := range []struct {
		what string
		of   func(d modelInfo) []tensorInfo
	}{
		{"parameter", func(d modelInfo) []tensorInfo { return d.Params }},
		{"buffer", func(d modelInfo) []tensorInfo { return d.Buffers }},
	} {
		lists := make([][]tensorInfo, len(ranks))
		least := -1
		for i, d := range ranks {
			lists[i] = kind.of(d)
			if least < 0 || len(lists[i]) < least {
				least = len(lists[i])
			}
		}
		for i := range least {
			if v := agreement.Values(len(ranks), func(r int) string { return lists[r][i].String() }); len(v) > 1 {
				return core.Errorf(core.DistributedError, "ddp", "the ranks' models differ: %s %d, %q, is %s", kind.what, i, lists[0][i].Name, strings.Join(v, ", "))
			}
		}
		if v := agreement.Values(len(ranks), func(r int) string { return fmt.Sprint(len(lists[r]), " ", kind.what, "s") }); len(v) > 1 {
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
		b, _ := json.Marshal(ranks[r].Options) // prints dtypes, not pointers
		return string(b)
	}
	if v := agreement.Values(len(ranks), options); len(v) > 1 {
		return core.Errorf(core.DistributedError, "ddp", "the ranks' options differ: %s", strings.Join(v, ", "))
	}
	return nil
}

// broadcastModel broadcasts the parameters of rank root, and its buffers if asked to.
func (r *Reducer) broadcastModel(root int, buffers bool, purpose string) error {
	var list []*core.Tensor
	for _, p := range r.params {
		list = append(list, p.Tensor)
	}
	if buffers {
		for _, b := range r.buffers {
			list = append(list, b.Tensor)
		}
	}
	return r.groupFor(purpose).BroadcastMany(list, root).Wait()
}

// syncsBuffers reports whether passes, and the end of a join, make buffers equal.
func (r *Reducer) syncsBuffers() bool { return !r.options.KeepBuffers && !r.options.LocalBuffers }

// broadcastBuffers broadcasts the buffers of rank 0, or in a join of the highest rank that has a batch.
func (r *Reducer) broadcastBuffers() error {
	if !r.syncsBuffers() || len(r.buffers) == 0 {
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
