package collective

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/plait-ml/plait/parallel/flight"
)

// heardOf is the number of operations of each rank of other processes, in each group, that a part has.
const heardOf = 16

// FlightRecord returns the last operations of all ranks of the group's world, in all groups, without waiting for any of them. In a world of
// several processes it has only what this process knows: its own ranks' operations, and the calls that it has heard of. [World.Part] gives
// this process's part for a record of all.
func (g *Group) FlightRecord() *flight.Record {
	return flight.Merge([]*flight.Part{g.local.rendezvous.world.part(true)}, nil)
}

// Part returns the last operations of this process's ranks for a record of all processes, which [flight.Merge] makes. With heard it has the last
// calls of other ranks too that this process has heard of. It waits for nobody.
func (w *World) Part(heard bool) *flight.Part { return w.world.part(heard) }

// part describes what this process knows. It takes no lock that is held while a collective waits.
func (w *world) part(heard bool) *flight.Part {
	p := &flight.Part{World: w.flight.world(), Process: w.process, PID: os.Getpid(), Time: wallClock(clockNow()), Homes: slices.Clone(w.homes),
		Groups: []flight.Group{}, Operations: []flight.Operation{}, Faults: w.flight.known()}
	p.Host, _ = os.Hostname()
	if p.Homes == nil {
		p.Homes = make([]int, len(w.detector.ranks)) // all in this process
	}
	for _, m := range w.recorded() {
		m.describe(p, heard)
	}
	return p
}

// describe adds the operations of a group to a part. Sequence numbers count in channels, so each channel is a group there.
func (m *rendezvous) describe(p *flight.Part, heard bool) {
	name, own := fmt.Sprint(m.ranks), len(p.Operations)
	for i := range m.ranks {
		if !m.here(i) && !heard {
			continue
		}
		list := m.operations(i)
		if !m.here(i) {
			list = list[max(len(list)-heardOf, 0):]
		}
		for _, o := range list {
			if o.Group != "" { // other processes do not send the name
				name = o.Group
			}
			if o.GroupID != "" && !slices.ContainsFunc(p.Groups, func(g flight.Group) bool { return g.ID == o.GroupID }) {
				p.Groups = append(p.Groups, flight.Group{ID: o.GroupID, Ranks: slices.Clone(m.ranks)})
			}
			p.Operations = append(p.Operations, o)
		}
	}
	for i := range p.Operations[own:] {
		p.Operations[own+i].Group = name
	}
	for i := range p.Groups {
		if g := &p.Groups[i]; g.Name == "" && strings.HasPrefix(g.ID, m.prefix()) {
			g.Name = name
		}
	}
}

// prefix begins the identifiers of the group's channels in records.
func (m *rendezvous) prefix() string { return fmt.Sprintf("%x/", m.id) }

// operations returns the last operations of rank i.
func (m *rendezvous) operations(i int) []flight.Operation {
	list, prefix := m.records[i].list(), m.prefix()
	for k := range list {
		list[k].Rank, list[k].Heard, list[k].GroupID = m.ranks[i], !m.here(i), prefix+list[k].GroupID
	}
	return list
}
