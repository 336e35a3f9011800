package flight

import (
	"cmp"
	"slices"
)

// A Rank says how a rank kept up with the others in the operations of a record. Times are in nanoseconds, on average.
type Rank struct {
	Rank        int     `json:"rank"`
	Collectives int     `json:"collectives"` // at which all ranks have arrived, in groups of several
	Last        int     `json:"last"`        // of these, those at which it was the last to arrive
	Wait        float64 `json:"wait_ns"`     // for the last rank
	Late        float64 `json:"late_ns"`     // behind the median of the ranks, where it was behind it
}

// lateness says which ranks came last. A rank's wait is measured by the clock of its process, from its call to the arrival of the last rank. So
// who waited least came last, whatever the clocks of other processes show.
func (r *Record) lateness() []Rank {
	list := []Rank{}
	at := map[int]int{}
	for _, p := range r.Processes {
		for _, rank := range p.Ranks {
			at[rank] = len(list)
			list = append(list, Rank{Rank: rank})
		}
	}
	for _, x := range r.rounds() {
		if x.seq == 0 || len(x.calls) < 2 || len(x.calls) != len(x.group.Ranks) ||
			slices.ContainsFunc(x.calls, func(o *Operation) bool { return o.Started == 0 || o.Heard }) {
			continue
		}
		wait := func(o *Operation) int64 { return max(o.Started-o.Called, 0) }
		order := slices.SortedStableFunc(slices.Values(x.calls), func(a, b *Operation) int { return cmp.Compare(wait(b), wait(a)) })
		median := wait(order[(len(order)-1)/2])
		for i, o := range order {
			k, known := at[o.Rank]
			if !known {
				continue
			}
			own := &list[k]
			own.Collectives++
			own.Wait += float64(wait(o))
			own.Late += float64(max(median-wait(o), 0))
			if i == len(order)-1 {
				own.Last++
			}
		}
	}
	for i := range list {
		if n := float64(list[i].Collectives); n > 0 {
			list[i].Wait /= n
			list[i].Late /= n
		}
	}
	slices.SortFunc(list, func(a, b Rank) int { return cmp.Compare(a.Rank, b.Rank) })
	return list
}

// shifts returns what to add to the times of each part, so that clocks of different hosts agree: the start of a collective is nearly the same
// moment in all processes.
func shifts(parts []*Part) []int64 {
	started := map[roundKey]int64{}
	list := make([]int64, len(parts))
	for i, p := range parts {
		var differences []int64
		if p.Host != parts[0].Host {
			for _, o := range p.Operations {
				if at := started[roundKey{o.GroupID, o.Seq}]; at != 0 && o.Started != 0 && o.Seq != 0 && !o.Heard {
					differences = append(differences, at-o.Started)
				}
			}
		}
		if slices.Sort(differences); len(differences) > 0 {
			list[i] = differences[len(differences)/2]
		}
		for _, o := range p.Operations {
			key := roundKey{o.GroupID, o.Seq}
			if o.Started != 0 && !o.Heard && started[key] == 0 {
				started[key] = o.Started + list[i]
			}
		}
	}
	return list
}
