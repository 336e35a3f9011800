package fsdp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/internal/agreement"
	"github.com/plait-ml/plait/parallel/tensor"
)

// A unitDescription is what ranks exchange about a unit, to check that it is the same on all.
type unitDescription struct {
	Unit    string
	Params  []paramDescription
	Options string
	Problem string // error of this rank, if it cannot shard the unit
}

// A paramDescription is what ranks exchange about one parameter.
type paramDescription struct {
	Name         string
	DType        core.DType
	Shape        []int
	RequiresGrad bool
	Placed       string // if it is a distributed tensor
	Dim          int    // along which it is sharded
}

func (d paramDescription) String() string {
	s := fmt.Sprintf("%q, %v%v", d.Name, d.DType, d.Shape)
	if d.Placed != "" {
		s += " placed " + d.Placed
	}
	if !d.RequiresGrad {
		s += " without a gradient"
	}
	if d.Dim > 0 {
		s += fmt.Sprintf(" sharded along dimension %d", d.Dim)
	}
	return s
}

// verify checks that the unit is the same on all ranks. problem is this rank's own error, or nil. All ranks return the same
// error.
func (u *Unit) verify(problem error) error {
	for _, g := range []*collective.Group{u.group, u.options.Replicas} {
		if g == nil {
			continue
		}
		if u.purpose == "" {
			u.purpose = u.describePurpose(g.Number())
		}
		if err := u.verifyOn(g, problem); err != nil {
			return err
		}
	}
	return problem
}

// describePurpose returns a description of the unit for errors: its number, its name and some of its parameters.
func (u *Unit) describePurpose(number int) string {
	var names []string
	for i, p := range u.params {
		if i == 4 && len(u.params) > 5 {
			names = append(names, fmt.Sprintf("... %d in all", len(u.params)))
			break
		}
		names = append(names, p.name)
	}
	return strings.TrimSpace(fmt.Sprintf("FSDP unit %d %s", number, u.options.Name)) + " (" + strings.Join(names, ", ") + ")"
}

// verifyOn is verify for the ranks of one group.
func (u *Unit) verifyOn(g *collective.Group, problem error) error {
	options := u.options
	d := unitDescription{Unit: options.Name}
	if problem != nil {
		d.Problem = problem.Error()
	} else {
		for _, p := range u.params {
			t := p.tensor
			placed := ""
			if q := t.Parts(); q != nil {
				placed = fmt.Sprintf("%v on the mesh %v", q, tensor.Mesh(t))
			}
			d.Params = append(d.Params, paramDescription{p.name, t.DType(), slices.Clone(t.Shape()), t.RequiresGrad(), placed, p.dim})
		}
		d.Options = fmt.Sprintf("keep after forward %v, partial %d, precision %v, offload %v, broadcast %v", options.KeepAfterForward, options.Partial, options.Precision, options.Offload != nil, options.Broadcast)
	}
	ranks, err := agreement.Exchange(g.For("the sharding of a model"), "fsdp", "shard its model", d, problem)
	if err != nil {
		return err
	}
	return compare(ranks)
}

// compare returns an error that names the first difference between the ranks' units.
func compare(ranks []unitDescription) error {
	for i, d := range ranks {
		if d.Problem != "" {
			return core.Errorf(core.DistributedError, "fsdp", "rank %d cannot shard the unit %q: %s", i, d.Unit, d.Problem)
		}
	}
	checkEqual := func(what string, value func(d unitDescription) string) error {
		values := agreement.Values(len(ranks), func(r int) string { return value(ranks[r]) })
		if len(values) == 1 {
			return nil
		}
		return core.Errorf(core.DistributedError, "fsdp", "the ranks' models differ: %s is %s", what, strings.Join(values, ", "))
	}
	if err := checkEqual("the unit", func(d unitDescription) string { return fmt.Sprintf("%q", d.Unit) }); err != nil {
		return err
	}
	most := 0
	for _, d := range ranks {
		most = max(most, len(d.Params))
	}
	for i := range most {
		err := checkEqual(fmt.Sprintf("parameter %d of the unit %q", i, ranks[0].Unit), func(d unitDescription) string {
			if i >= len(d.Params) {
				return "none"
			}
			return d.Params[i].String()
		})
		if err != nil {
			return err
		}
	}
	return checkEqual("how the unit is sharded", func(d unitDescription) string { return d.Options })
}

// String returns the dtypes as Param/Reduce/Output, for messages.
func (p Precision) String() string {
	name := func(d *core.DType) string {
		if d == nil {
			return "same"
		}
		return d.String()
	}
	return fmt.Sprintf("%s/%s/%s", name(p.Param), name(p.Reduce), name(p.Output))
}
