package fsdp

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plait-ml/plait/core"
	"github.com/plait-ml/plait/parallel/collective"
	"github.com/plait-ml/plait/parallel/internal/agreement"
)

// A description is what ranks tell each other of a unit before anything else.
type description struct {
	Unit    string
	Params  []described
	Options string
	Problem string // what keeps the rank from dividing it
}

type described struct {
	Name         string
	DType        core.DType
	Shape        []int
	RequiresGrad bool
}

func (d described) String() string {
	s := fmt.Sprintf("%q, %v%v", d.Name, d.DType, d.Shape)
	if !d.RequiresGrad {
		s += " without a gradient"
	}
	return s
}

// verify compares the ranks' units. All ranks return the same error.
func (u *Unit) verify(problem error) error {
	for _, g := range []*collective.Group{u.group, u.options.Replicas} {
		if g == nil {
			continue
		}
		if u.purpose == "" {
			u.purpose = u.describe(g.Number())
		}
		if err := u.verifyIn(g, problem); err != nil {
			return err
		}
	}
	return problem
}

// describe tells the unit from others, whose parameters may have the same shapes.
func (u *Unit) describe(number int) string {
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

func (u *Unit) verifyIn(g *collective.Group, problem error) error {
	o := u.options
	d := description{Unit: o.Name}
	if problem != nil {
		d.Problem = problem.Error()
	} else {
		for _, p := range u.params {
			t := p.tensor
			d.Params = append(d.Params, described{p.name, t.DType(), slices.Clone(t.Shape()), t.RequiresGrad()})
		}
		d.Options = fmt.Sprintf("keep after forward %v, partial %d, precision %v, offload %v, broadcast %v", o.KeepAfterForward, o.Partial, o.Precision, o.Offload != nil, o.Broadcast)
	}
	ranks, err := agreement.Exchange(g.For("the division of a model"), "fsdp", "divide its model", d, problem)
	if err != nil {
		return err
	}
	return compare(ranks)
}

// compare returns an error that names the first difference between the ranks' units.
func compare(ranks []description) error {
	for i, d := range ranks {
		if d.Problem != "" {
			return core.Errorf(core.DistributedError, "fsdp", "rank %d cannot divide the unit %q: %s", i, d.Unit, d.Problem)
		}
	}
	differ := func(what string, value func(d description) string) error {
		values := agreement.Values(len(ranks), func(r int) string { return value(ranks[r]) })
		if len(values) == 1 {
			return nil
		}
		return core.Errorf(core.DistributedError, "fsdp", "the ranks' models differ: %s is %s", what, strings.Join(values, ", "))
	}
	if err := differ("the unit", func(d description) string { return fmt.Sprintf("%q", d.Unit) }); err != nil {
		return err
	}
	most := 0
	for _, d := range ranks {
		most = max(most, len(d.Params))
	}
	for i := range most {
		err := differ(fmt.Sprintf("parameter %d of the unit %q", i, ranks[0].Unit), func(d description) string {
			if i >= len(d.Params) {
				return "none"
			}
			return d.Params[i].String()
		})
		if err != nil {
			return err
		}
	}
	return differ("how the unit is divided", func(d description) string { return d.Options })
}

// String describes the policy as messages do.
func (p Precision) String() string {
	name := func(d *core.DType) string {
		if d == nil {
			return "same"
		}
		return d.String()
	}
	return fmt.Sprintf("%s/%s/%s", name(p.Param), name(p.Reduce), name(p.Output))
}
